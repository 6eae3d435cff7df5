"""PoCL's kernel cache as a ``gpucache.caches.interface.System``.

Source of where it lies and what turns it off: PoCL, lib/CL/pocl_cache.c (``pocl_cache_init_topdir``) and
lib/CL/pocl_runtime_config.c.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from gpucache.caches import places
from gpucache.caches.files import open_folder
from gpucache.caches.interface import Isolation
from gpucache.caches.pocl import entries, explaining, leftovers, names
from gpucache.caches.pocl.cache import PoclCache
from gpucache.caches.pocl.tree import Role, read_tree
from gpucache.folders import Folder
from gpucache.outcomes import Location

VARIABLE = "POCL_CACHE_DIR"
SWITCH = "POCL_KERNEL_CACHE"
_MOVE = f"set {VARIABLE}"
_LOOKED_AT = 300
"""Names of a folder that may be a cache; there are 256 folders of two letters."""
_EMPTY = f"{VARIABLE} is set and empty, at which PoCL shows 0 devices or dies; unset it"
_IN_TMP = (
    "neither XDG_CACHE_HOME nor HOME is set, so it lies in /tmp, which all users share: for all but the "
    f"first PoCL shows 0 devices; {_MOVE}"
)
_NOT_MADE = (
    f"PoCL makes it at its start and shows 0 devices where it cannot; {_MOVE} to a place that can be written"
)
_NOT_WRITTEN = f"PoCL builds no program where it cannot write, not even one that is here; {_MOVE}"


class PoclSystem:
    """Caches of PoCL's CPU and other devices. PoCL bounds none and never evicts."""

    name = entries.NAME
    title = "PoCL kernel cache"
    nowhere = "PoCL finds no place; set POCL_CACHE_DIR"
    wanted: Mapping[str, str] = explaining.FIELDS
    tracing: Mapping[str, str] = {"POCL_DEBUG": "general,cache,llvm"}
    """``general`` tells each kernel that is taken from the cache or compiled, also in PoCL 3."""

    def locations(self, environ: Mapping[str, str]) -> Sequence[Location]:
        """The one place that PoCL looks in; while it is off, the one where it builds."""
        named, decided_by = _place(environ, windows=sys.platform == "win32")
        root = _absolute(named)
        problems = (*_of_setting(environ, named, decided_by), *_of_place(root))
        return (Location(self.name, str(root), decided_by, _enabled(environ), problems=problems),)

    def recognises(self, path: Path) -> bool:
        """Whether a folder holds a program of PoCL, or is called as PoCL calls it and holds nothing else."""
        try:
            with Folder.at(path) as folder:
                found = sorted(entry.name for entry in islice(folder.entries(), _LOOKED_AT))
            if any(_holds_program(path, pair) for pair in filter(names.is_pair, found)):
                return True
            ours = all(names.is_pair(name) or names.temporary_group(name) for name in found)
            return ours and path.parts[-2:] == (self.name, "kcache")
        except (OSError, ValueError):
            return False

    def open(self, location: Location) -> PoclCache:
        """The cache at a location, there or not; raises CacheUnusableError for what is no folder."""
        root = Path(location.root)
        places.require_folder(root, "name the folder of a PoCL cache")
        return PoclCache(replace(location, problems=location.problems or tuple(_of_place(root))))

    def isolation(self, folder: Path) -> Isolation:
        """A cache of its own, turned on."""
        return Isolation(((VARIABLE, str(folder / self.name)), (SWITCH, "1")))


def _absolute(path: Path) -> Path:
    """A path from the root; as it stands where the current directory is gone."""
    try:
        return path.absolute()
    except OSError:
        return path


def _enabled(environ: Mapping[str, str]) -> bool:
    """PoCL takes every value that does not begin with 1 for off."""
    return environ.get(SWITCH, "1").startswith("1")


def _place(environ: Mapping[str, str], *, windows: bool) -> tuple[Path, str]:
    if environ.get(VARIABLE):
        return Path(environ[VARIABLE]), VARIABLE
    if windows:
        variable = "LOCALAPPDATA" if "LOCALAPPDATA" in environ else "TEMP"
        return Path(environ.get(variable, ""), entries.NAME), variable
    last = Path(entries.NAME, "kcache" if _enabled(environ) else "uncached")
    if environ.get("XDG_CACHE_HOME"):
        return Path(environ["XDG_CACHE_HOME"]) / last, "XDG_CACHE_HOME"
    if "HOME" in environ:
        return Path(f"{environ['HOME']}/.cache") / last, "HOME"
    return Path("/tmp") / last, "the default"  # as PoCL does


def _of_setting(environ: Mapping[str, str], root: Path, decided_by: str) -> Iterator[str]:
    if not _enabled(environ):
        yield (
            f"{SWITCH}={environ.get(SWITCH, '')} turns the cache off, as PoCL takes every value for off that "
            f"does not begin with 1, so every start compiles; unset {SWITCH}"
        )
    if environ.get(VARIABLE) == "":
        yield _EMPTY
    if not root.is_absolute():
        what = "" if decided_by == VARIABLE else f", or set {VARIABLE}"
        yield (
            f"{decided_by} makes it {root}, another place for every current directory; set an absolute "
            f"path in {decided_by}{what}"
        )
    if (
        sys.platform != "win32"
        and not any(map(environ.get, (VARIABLE, "XDG_CACHE_HOME")))
        and "HOME" not in environ
    ):
        yield _IN_TMP


def _of_place(root: Path) -> Iterator[str]:
    yield from places.problems(root, move=_MOVE, runs=True)
    if unread := leftovers.unread(root):
        yield unread
    try:
        nearest = next((path for path in (root, *root.parents) if path.exists()), root)
        folder = nearest.is_dir()
    except (OSError, ValueError):
        yield _NOT_MADE
        return
    if not (folder and os.access(nearest, os.W_OK)):
        yield _NOT_WRITTEN if nearest == root and folder else _NOT_MADE


def _holds_program(root: Path, pair: str) -> bool:
    try:
        with open_folder(root, pair) as folder:
            found = sorted(entry.name for entry in islice(folder.entries(), _LOOKED_AT))
        return any(_is_program(root, pair, rest) for rest in filter(names.is_rest, found))
    except OSError:
        return False


def _is_program(root: Path, pair: str, rest: str) -> bool:
    try:
        tree = read_tree(root, pair, rest)
    except OSError:
        return False
    return bool(tree.program or tree.variants or tree.of(Role.LOG) or tree.of(Role.ACCESSED))
