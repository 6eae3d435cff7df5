"""The operating system: environment, interrupts, process groups, temporary directories, and its errors."""
