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

_BELOW = ("lib*/python3*/site-packages", "lib/python3/dist-packages", "lib/python3*/dist-packages")


@cache
def versions(name: str) -> frozenset[str]:
    """The versions of a package that are installed; empty if there are none. Raises nothing."""
    return frozenset(one.version for one in _installed(name) if one.version)


@cache
def places(name: str) -> frozenset[str]:
    """The directories in which a package is installed; empty if there are none. Raises nothing."""
    return frozenset(str(one.locate_file("")) for one in _installed(name))


def _installed(name: str) -> Iterator[Distribution]:
    yield from distributions(name=name, path=[*sys.path, *_site_packages()])


@cache
def _site_packages() -> tuple[str, ...]:
    python = shutil.which("python3")
    prefixes = filter(None, (os.environ.get("VIRTUAL_ENV"), python and str(Path(python).parent.parent)))
    found = (path for prefix in prefixes for below in _BELOW for path in Path(prefix).glob(below))
    return tuple(dict.fromkeys(map(str, found)))
