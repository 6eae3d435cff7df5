"""Checks inside kernels: the header for them, their failure tables, and what a failure says. Pure.

A kernel includes ``gpucache/check.h``, which says how checks are written. ``instrument`` gives each check of
a source its number, ``read_record`` reads what a kernel wrote into its failure record, and ``Launches`` makes
an error of it. Must not know how anything is compiled or launched.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from gpucache.model import BuildRequest, Checks

if TYPE_CHECKING:
    from gpucache.checks.calls import Instrumented, instrument
    from gpucache.checks.launches import Checked, Launches
    from gpucache.checks.record import NO_FAILURE, RECORD_BYTES, read_record

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


_HOMES = {"instrument": "calls", "Instrumented": "calls", "Checked": "launches", "Launches": "launches"}


def __getattr__(name: str) -> object:
    """A name of a module, which few programs need."""
    if name not in __all__:
        raise AttributeError(f"module 'gpucache.checks' has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(f"gpucache.checks.{_HOMES.get(name, 'record')}"), name)
    return found


def include_dirs(source: bytes, mode: Checks) -> tuple[str, ...]:
    """What a build searches behind its own folders: the header's, where the source may include it."""
    return (INCLUDE,) if mode is not Checks.NONE or b"gpucache/check.h" in source else ()


def instrumented(request: BuildRequest) -> "Instrumented":
    """The source of a request as it is compiled, with its failure table; raises SourceError."""
    from gpucache.checks.calls import instrument

    return instrument(request.program.source, request.checks)
