"""Fill the cache before it is needed: the items to build, the course of a run, and the work of a worker."""
