"""The folders that a start's driver caches are given, and what the start writes into them.

Owns which variables move the caches below a program, and what counts as written there: PoCL leaves an
empty file at every start and touches others, so empty files are no entries and a new time is no change.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from gpucache.outcomes import Arm, Held, Snapshot

DRIVERS = {
    "POCL_CACHE_DIR": "pocl",
    "CUDA_CACHE_PATH": "cuda",
    "NEO_CACHE_DIR": "intel-neo",
    "MESA_SHADER_CACHE_DIR": "mesa",
    "AMD_COMGR_CACHE_DIR": "amd-comgr",
}
"""What each driver reads to find its own cache, and what people call that."""
REDIRECTS = tuple(DRIVERS.items())


@dataclass(frozen=True, slots=True)
class Place:
    """Where a start finds its caches."""

    environment: tuple[tuple[str, str | None], ...]
    """Variables to set; to unset where there is None."""
    watched: tuple[tuple[str, str], ...]
    """Caches with their folders."""
    peer: str = ""
    """The folder of a peer's cache that no variable moves."""

    def look(self) -> Snapshot:
        """What the caches hold now: files that are not empty, with their sizes."""
        return {cache: _files(Path(folder)) for cache, folder in self.watched}


def make_place(arm: Arm, folder: Path) -> Place:
    """The place of an arm below a folder; every driver's own folder is made."""
    drivers = {name: folder / cache for name, cache in DRIVERS.items()}
    for path in drivers.values():
        path.mkdir(parents=True, exist_ok=True)  # some drivers cache only where the folder is there
    environment = tuple((name, str(path)) for name, path in drivers.items())
    watched = tuple((cache, str(drivers[name])) for name, cache in REDIRECTS)
    if arm is Arm.PYOPENCL:
        own = (("XDG_CACHE_HOME", str(folder / "xdg")), ("PYOPENCL_NO_CACHE", None))
        # Beside it lies what PyOpenCL keeps of Python code.
        return Place((*environment, *own), (*watched, (arm.value, str(folder / "xdg" / "pyopencl"))))
    alone = (*environment, ("PYOPENCL_NO_CACHE", "1"))
    if arm is Arm.CUDA_CORE:
        peer = str(folder / arm.value)
        return Place(alone, (*watched, (arm.value, peer)), peer)
    return Place(alone, watched)


def _files(folder: Path) -> dict[str, Held]:
    found = {}
    for where, _, names in os.walk(folder):
        for name in names:
            path = Path(where, name)
            try:
                size = path.lstat().st_size
            except OSError:  # it went meanwhile
                continue
            if size:
                found[path.relative_to(folder).as_posix()] = Held(size)
    return found
