"""Checks inside kernels: the header for them, their failure tables, and what a failure says. Pure.

A kernel includes ``gpucache/check.h``, which says how checks are written. ``instrument`` gives each check of
a source its number, ``read_record`` reads what a kernel wrote into its failure record, and ``Launches`` makes
an error of it. Must not know how anything is compiled or launched.
"""

from pathlib import Path

from gpucache.checks.calls import Instrumented, instrument
from gpucache.checks.launches import Checked, Launches
from gpucache.checks.record import NO_FAILURE, RECORD_BYTES, read_record
from gpucache.model import BuildRequest, Checks

INCLUDE = str(Path(__file__).parents[1] / "include")
"""The folder to search for ``gpucache/check.h``."""

__all__ = [
    "INCLUDE",
    "NO_FAILURE",
    "RECORD_BYTES",
    "Checked",
    "Instrumented",
    "Launches",
    "include_dirs",
    "instrument",
    "instrumented",
    "read_record",
]


def include_dirs(source: bytes, mode: Checks) -> tuple[str, ...]:
    """What a build searches behind its own folders: the header's, where the source may include it."""
    return (INCLUDE,) if mode is not Checks.NONE or b"gpucache/check.h" in source else ()


def instrumented(request: BuildRequest) -> Instrumented:
    """The source of a request as it is compiled, with its failure table; raises SourceError."""
    return instrument(request.program.source, request.checks)
