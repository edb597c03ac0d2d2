"""Pocket: the books of a household, kept in a plain text file."""
