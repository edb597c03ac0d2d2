"""The first steps in a project: what it uses, a loop file for it, and whether all is well here."""
