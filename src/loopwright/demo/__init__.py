"""The demo: a small project with planted bugs, and an agent that repairs it."""
