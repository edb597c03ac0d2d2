"""What people and machines read of a run: one gathering of its journal, and a file per format.

Rule: everything here is pure. It is made from facts on record, every text of an agent, a gate or a
repository is shown and never obeyed, and a run of any length gives a report of bounded size.
"""
