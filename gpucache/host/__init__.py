"""The operating system under us: interrupts, process groups, temporary folders, and what it refuses."""
