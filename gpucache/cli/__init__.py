"""The command line: one file per verb. Parse, call, render, exit code; nothing else.

Must not load a GPU stack, numpy or rich to show help: every verb imports what it needs when it runs.
"""

from gpucache.cli.entry import main
from gpucache.cli.group import gpucache

__all__ = ["gpucache", "main"]
