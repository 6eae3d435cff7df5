"""Measured starts: a program or a command started cold and warm in turn, and what the figures come to.

The walk is the same for both: ``sources`` or ``commands`` make the plan, ``run`` takes the starts,
``compare`` folds them into a case. ``check_costs`` times what checks inside kernels cost.
"""
