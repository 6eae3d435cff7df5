"""Compilers: the interface, the registry, and one directory for each family."""
