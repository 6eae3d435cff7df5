"""Where PyOpenCL keeps its caches, one for each version of Python, and how it names them.

Reads directory names only. Source: ``_create_built_program_from_source_cached`` and platformdirs'
``user_cache_dir``.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path

from gpucache.answers.entries import Location
from gpucache.caches import places
from gpucache.caches.places import XDG, Place, Places, user_cached
from gpucache.folders import Folder

NAME = "pyopencl"
LOCK = "lock"
SWITCH = "PYOPENCL_NO_CACHE"
KEY = "[0-9a-f]{32}"
_PREFIX = "pyopencl-compiler-cache-v2-py"
ANY_VERSION = re.escape(_PREFIX) + r"\d{1,4}\.\d{1,4}\.\d{1,4}\.[a-z]{1,16}\.\d{1,4}"
_VERSIONED = re.compile(re.escape(_PREFIX) + r"(\d{1,4}\.\d{1,4}\.\d{1,4})\.([a-z]{1,16})\.(\d{1,4})")
_NAMES_LOOKED_AT = 2000
_ON = frozenset({"y", "yes", "t", "true", "on", "1"})
_OFF = frozenset({"n", "no", "f", "false", "off", "0"})


def is_key(name: str) -> bool:
    return re.fullmatch(KEY, name) is not None


def python_of(name: str) -> str:
    """The Python version in a directory's name, such as ``3.11.7`` or ``3.14.0rc1``; empty without one."""
    match = _VERSIONED.fullmatch(name)
    if match is None:
        return ""
    version, level, serial = match.groups()
    short = {"alpha": "a", "beta": "b", "candidate": "rc"}.get(level, level)
    return version if level == "final" else f"{version}{short}{serial}"


def own_folder() -> str:
    return _PREFIX + ".".join(map(str, sys.version_info))


def own_python() -> str:
    return python_of(own_folder())


def version_folders(root: Path) -> list[str]:
    """The versions' directory names in a directory, this Python's first, then the newest first."""
    found: list[str] = []
    with suppress(OSError, ValueError), Folder.at(root) as folder:
        looked = islice(folder.entries(), _NAMES_LOOKED_AT)
        found = [one.name for one in looked if python_of(one.name) and one.is_dir(follow_symlinks=False)]
    own = own_folder()
    return sorted(
        found, key=lambda name: (name != own, [-int(one) for one in re.findall(r"\d+", python_of(name))])
    )


def cache_folders(root: Path) -> Iterator[Path]:
    """The directories with entries that a root covers: itself, or its versions' directories."""
    versions = [] if python_of(root.name) else version_folders(root)
    yield from (root / name for name in versions)
    if not versions:
        yield root


class PyOpenclPlaces(Places):
    """The places of this user."""

    name = NAME
    title = "PyOpenCL compiler cache"
    owner = "PyOpenCL"
    unseen = "a changed byte inside a binary"
    place = Place(user_cached(NAME), opt_in=False)
    below = {
        "intel": "",
        "other": "",
        "pocl": "PyOpenCL leaves PoCL's programs to PoCL's own cache",
        "nvidia": "PyOpenCL leaves NVIDIA's programs to the driver's cache",
    }

    @classmethod
    def off(cls, environ: Mapping[str, str]) -> str:
        """pytools' ``strtobool`` reads the switch."""
        value = environ.get(SWITCH, "false").lower()
        if value in _ON:
            return f"{SWITCH}={environ[SWITCH]} turns the cache off, so every start compiles; unset it"
        what = f"{SWITCH}={value!r} is not true or false, so PyOpenCL cannot be imported; unset it"
        return "" if value in _OFF else what

    @classmethod
    def found(cls, environ: Mapping[str, str]) -> Iterator[Location]:
        """A directory for each version of Python that has one, this Python's first; else their parent."""
        relative = not Path(environ.get(XDG) or os.sep).is_absolute()  # which platformdirs ignores
        for one in super().found({**environ, XDG: ""} if relative else environ):
            found = version_folders(Path(one.root))
            if not found:
                yield one
            for name in found:
                root, role = Path(one.root, name), f"Python {python_of(name)}"
                closed = filter(None, (places.closed(root, move=cls.place.move),))
                yield one._replace(root=str(root), problems=(*one.problems, *closed), role=role)
