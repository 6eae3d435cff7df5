"""Processes that may crash, hang or use up memory without harm to other items, and the files they open."""
