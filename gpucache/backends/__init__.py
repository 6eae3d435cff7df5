"""Compilers: the interface, the registry, and one folder for each family."""
