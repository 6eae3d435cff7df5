"""Fill the cache before it is needed: what is to be built, how a run of it goes, and what a worker does."""
