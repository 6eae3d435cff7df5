"""Our own cache: entries on disk and in memory. Knows bytes, files, locks and history, but not GPUs."""
