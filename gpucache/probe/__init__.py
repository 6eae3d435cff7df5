"""What devices and compilers are here, asked in child processes so that a broken driver harms nobody."""

from gpucache.probe.ask import ask
from gpucache.probe.last_targets import load_last, save_last

__all__ = ["ask", "load_last", "save_last"]
