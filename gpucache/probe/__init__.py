"""What devices and compilers are here, asked in child processes so that a broken driver harms nobody."""
