"""Where an agent works: snapshots, diffs, restore, protected files."""
