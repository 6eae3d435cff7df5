"""Checks inside kernels: the header for them, their failure tables, and what a failure says. Pure.

A kernel includes ``gpucache/check.h``, which says how checks are written. ``instrument`` gives each check of
a source its number, ``Failure`` is what a kernel wrote into its failure record, ``told`` makes an error of
it. Must not know how anything is compiled or launched.
"""

from pathlib import Path

from gpucache.checks.calls import Instrumented, instrument
from gpucache.checks.messages import told
from gpucache.checks.record import NO_FAILURE, RECORD_BYTES, Failure, read_record, state

INCLUDE = str(Path(__file__).parents[1] / "include")
"""The folder to search for ``gpucache/check.h``."""

__all__ = [
    "INCLUDE",
    "NO_FAILURE",
    "RECORD_BYTES",
    "Failure",
    "Instrumented",
    "include_dirs",
    "instrument",
    "read_record",
    "state",
    "told",
]


def include_dirs(source: bytes, *, checked: bool) -> tuple[str, ...]:
    """What a build searches beside its own folders: the header's, where the source may include it."""
    return (INCLUDE,) if checked or b"gpucache/check.h" in source else ()
