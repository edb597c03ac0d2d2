"""How requests and news reach people and how decisions come back, one file each: a `Card` drawn in its own way."""
