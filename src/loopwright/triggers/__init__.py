"""What starts runs by itself: schedules, deliveries, changed files. Each says when; who starts what is `serving`."""
