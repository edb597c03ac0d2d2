"""The command line: one file per group of verbs, no logic of its own."""
