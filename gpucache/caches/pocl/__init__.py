"""PoCL's kernel cache: see ``format``."""
