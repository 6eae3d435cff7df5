"""The operating system: environment, interrupts, process groups, temporary folders, and its errors."""
