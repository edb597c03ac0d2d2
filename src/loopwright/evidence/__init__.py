"""Report readers: bytes to counts, pure; a report that proves nothing raises `BadEvidence`."""
