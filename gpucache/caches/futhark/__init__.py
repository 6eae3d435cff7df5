"""Futhark's cache files: see ``format``."""
