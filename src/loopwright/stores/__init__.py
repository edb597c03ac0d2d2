"""Where journals are kept; every store passes the same conformance suite."""
