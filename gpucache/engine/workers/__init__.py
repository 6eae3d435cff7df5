"""Processes that may crash, hang or eat memory at the cost of their own item alone, and what they read."""
