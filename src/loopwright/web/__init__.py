"""The page and the API of a server: it reads journals and writes signals, and owns no state."""
