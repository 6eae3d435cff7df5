"""Checks inside kernels: the header for them, their failure tables, and the messages of failures. Pure.

A kernel includes ``gpucache/check.h``, which documents how checks are written. ``calls`` numbers the checks
of a source, and ``failures`` turns the failure record that a kernel wrote into an error. Must not know how
kernels are compiled or launched.
"""

from pathlib import Path

from gpucache.model import Checks

INCLUDE = str(Path(__file__).parents[1] / "include")
"""The directory to search for ``gpucache/check.h``."""


def include_dirs(source: bytes, mode: Checks) -> tuple[str, ...]:
    """The directories a build searches after its own: the header's, if the source may include it."""
    return (INCLUDE,) if mode is not Checks.NONE or b"gpucache/check.h" in source else ()
