"""The operating system: interrupts, process groups, temporary folders, and its errors."""
