"""Packages of owners that are installed where programs of this machine run: found by files, never imported.

Programs may run in another environment than gpucache, so three are looked at: gpucache's own, the active
virtual one, and that of the first python3 in PATH. Must not know any system.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import Distribution, distributions
from pathlib import Path


@cache
def versions(name: str) -> frozenset[str]:
    """The versions of a package that are installed; empty if there are none. Raises nothing."""
    return frozenset(one.version for one in _installed(name) if one.version)


def places(name: str) -> frozenset[str]:
    """The directories in which a package is installed; empty if there are none. Raises nothing."""
    return frozenset(str(one.locate_file("")) for one in _installed(name))


def _installed(name: str) -> Iterator[Distribution]:
    yield from distributions(name=name, path=[*sys.path, *map(str, _site_packages())])


@cache
def _site_packages() -> tuple[Path, ...]:
    return tuple(dict.fromkeys(path for prefix in _prefixes() for path in _below(prefix)))


def _prefixes() -> Iterator[Path]:
    if active := os.environ.get("VIRTUAL_ENV"):
        yield Path(active)
    if python := shutil.which("python3"):
        yield Path(python).parent.parent


def _below(prefix: Path) -> Iterator[Path]:
    for pattern in ("lib*/python3*/site-packages", "lib/python3/dist-packages", "lib/python3*/dist-packages"):
        yield from prefix.glob(pattern)
