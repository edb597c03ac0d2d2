"""Who performs commands: the process that calls `drive`."""
