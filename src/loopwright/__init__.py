"""Run any agent in a loop that knows when to stop."""
