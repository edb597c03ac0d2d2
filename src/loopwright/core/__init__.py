"""The pure part: facts, their fold, and what to do next.

Two rules. Nothing here does I/O, reads a clock, draws chance or awaits. Nothing here imports
anything but the standard library.
"""
