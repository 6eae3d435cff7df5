"""Third-party caches: one engine and a format for each system. To add one, begin with ``format``."""
