"""The stored entries that come nearest to a build that would miss, and what tells them apart.

An entry stores neither options nor device. Where a log names the options, and for other versions of
PyOpenCL, the key is made again and compared, so that what differs is known and not guessed.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import islice
from pathlib import Path

from gpucache.caches import files
from gpucache.caches.pyopencl import entry_files, names
from gpucache.caches.pyopencl.keys import DeviceIdentity, Keyed
from gpucache.errors import FormatError
from gpucache.keys import Difference
from gpucache.payload.source import kernel_names
from gpucache.units import printable

_SOLVED = 64
"""Entries of the same source whose keys are tried."""
_COMPARED = 500
"""Entries of other sources that are compared, up to this many lines each."""
_LINES = 2000
_ALIKE = 0.5
_YEARS = range(2018, 2031)


@dataclass(frozen=True, slots=True)
class Near:
    """An entry of the same source, and its options where its log names them."""

    key: str
    options: str | None


@dataclass(frozen=True, slots=True)
class Found:
    """What a folder has of a source."""

    same: tuple[Near, ...] = ()
    similar: str = ""
    """The key of the entry with the nearest other source; empty where none is near."""
    line: Difference | None = None
    """The first line where that differs."""


@dataclass(frozen=True, slots=True)
class Solved:
    """Which inputs give a stored key."""

    key: str
    options: str
    version: tuple[int, ...]


def search(folder: Path, source: bytes) -> Found:
    """The entries of a source in a folder, or else the nearest other; nothing where it cannot be read."""
    same: list[Near] = []
    nearest, nearest_source, best = "", b"", _ALIKE
    for index, (key, stored, options) in enumerate(_stored(folder)):
        if stored == source:
            same.append(Near(key, options))
        elif not same and index < _COMPARED:
            alike = _likeness(stored, source)
            if alike > best:
                nearest, nearest_source, best = key, stored, alike
    if same or not nearest:
        return Found(tuple(same))
    return Found(similar=nearest, line=_first_difference(nearest_source, source))


def solve(
    found: Iterable[Near],
    source: bytes,
    readings: Iterable[tuple[str, ...]],
    device: DeviceIdentity,
    version: tuple[int, ...],
) -> Solved | None:
    """The inputs that give the key of an entry of the same source, the fewest changes first; or None."""
    near = list(islice(found, _SOLVED))
    keys = {one.key for one in near}
    logged = (one.options for one in near if one.options is not None)
    joined = dict.fromkeys([*map(" ".join, readings), *logged])
    for versions in ((version,), _versions()):
        for options in joined:
            keyed = Keyed(source, (options,))
            for one in versions:
                key = keyed(device, one)
                if key in keys:
                    return Solved(key, options, one)
    return None


def _versions() -> tuple[tuple[int, ...], ...]:
    pairs = [(year, minor) for year in _YEARS for minor in range(1, 5)]
    return (*pairs, *((*pair, patch) for pair in pairs for patch in range(10)))


def _stored(folder: Path) -> Iterator[tuple[str, bytes, str | None]]:
    """Key, source and logged options of every entry whose source can be read."""
    with suppress(OSError), files.open_folder(folder) as opened:
        for key in [one.name for one in opened.entries() if names.is_key(one.name)]:
            with suppress(OSError, FormatError), opened.folder(key) as inner:
                source = entry_files.read_source(inner)
                options: str | None = None
                with suppress(OSError, FormatError):
                    options = entry_files.logged_options(entry_files.info_of(inner).log)
                yield key, source, options


def _likeness(stored: bytes, wanted: bytes) -> float:
    """How many lines two sources share, from 0 to 1; 1 also where their first kernels have one name."""
    first = next(kernel_names(wanted), None)
    if first is not None and next(kernel_names(stored), None) == first:
        return 1.0
    left, right = (source.splitlines()[:_LINES] for source in (stored, wanted))
    return float(SequenceMatcher(None, left, right, autojunk=False).quick_ratio())


def _first_difference(stored: bytes, wanted: bytes) -> Difference:
    left, right = stored.splitlines(), wanted.splitlines()
    number = next(
        (index for index, (one, other) in enumerate(zip(left, right, strict=False)) if one != other),
        min(len(left), len(right)),
    )
    return Difference(f"source, line {number + 1}", _line(left, number), _line(right, number))


def _line(lines: list[bytes], index: int) -> str | None:
    return printable(lines[index]) if index < len(lines) else None
