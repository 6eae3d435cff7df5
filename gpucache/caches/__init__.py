"""The caches of others, and our own shown the same way: the interface, the registry, one module each."""
