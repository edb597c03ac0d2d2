"""Who judges the work: each module turns one kind of evidence into a `Score`."""
