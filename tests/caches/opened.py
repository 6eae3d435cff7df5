"""Other caches opened at a place, and what tests of all systems ask of them."""

from collections.abc import Callable, Mapping
from pathlib import Path

from gpucache.answers.entries import CacheEntry, FindingKind, Location
from gpucache.answers.verify import Checked
from gpucache.caches.interface import Cache
from gpucache.caches.places import Places

PTX = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry scale()\n{\n ret;\n}\n"
HOUR_NS = 3600 * 10**9


def opened(system: Places, root: Path, now_ns: int | None = None) -> Cache:
    """The cache at a root, as ``--cache`` opens it, at some time of day."""
    location = Location(system.name, str(root), "--cache", enabled=True)
    return system.open(location) if now_ns is None else system.open(location, lambda: now_ns)


def only(cache: Cache) -> CacheEntry:
    (entry,) = cache.scan()
    return entry


def kinds(checked: Checked) -> list[FindingKind]:
    return [finding.kind for finding in checked.findings]


Lay = Callable[[Path], object]
"""Writes into a directory, or to a file."""
Cases = Mapping[str, Lay]
"""By name, what is laid in a cache; ``tests.contracts.test_answers`` holds what is reported about it."""
Environs = Mapping[str, tuple[Mapping[str, str] | str, ...]]
"""By name, an environment and the directories, with a slash behind, and caches that are there."""


def lay(path: Path, data: bytes) -> Path:
    """Write a file that is one's own; its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(0o600)
    return path


def write(name: str, data: bytes) -> Lay:
    """A function that writes a file in a directory."""
    return lambda folder: lay(folder / name, data)


def gone(name: str) -> Lay:
    """A function that removes a file from a directory."""
    return lambda folder: (folder / name).unlink()


def changed(put: Callable[[Path], Path], *changes: Lay) -> Lay:
    """A function that writes an entry and then changes it."""

    def make(root: Path) -> None:
        laid = put(root)
        for change in changes:
            change(laid)

    return make


def together(*parts: Lay) -> Lay:
    """A function that calls others one after another."""
    return lambda root: [part(root) for part in parts]
