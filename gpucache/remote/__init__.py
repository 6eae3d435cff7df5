"""Caches on other machines: stores elsewhere, signed records of entries, push and pull."""
