"""Measured starts: a program or a command started cold and warm in turn, and the resulting figures.

The walk is the same for both: ``sources`` or ``commands`` make the plan, ``run`` takes the starts,
``compare`` folds them into a case. ``check_costs`` times the cost of checks inside kernels.
"""
