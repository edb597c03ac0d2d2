"""Who does the work: each module turns one kind of agent into a function of an `Attempt`."""
