"""Checks inside kernels: the header for them, their failure tables, and what a failure says. Pure.

A kernel includes ``gpucache/check.h``, which says how checks are written. ``calls`` gives each check of a
source its number, and ``failures`` makes an error of what a kernel wrote into its failure record. Must not
know how anything is compiled or launched.
"""

from pathlib import Path

from gpucache.model import Checks

INCLUDE = str(Path(__file__).parents[1] / "include")
"""The folder to search for ``gpucache/check.h``."""


def include_dirs(source: bytes, mode: Checks) -> tuple[str, ...]:
    """What a build searches behind its own folders: the header's, where the source may include it."""
    return (INCLUDE,) if mode is not Checks.NONE or b"gpucache/check.h" in source else ()
