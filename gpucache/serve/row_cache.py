"""The rows of a root on their way to other machines, beside the entries that they answer with.

To ``push`` and ``pull`` they are entries of one more system, so older gpucaches pass them by. Owns their
keys: the key of the entry, the name of the row's file, and the beginning of the row's digest, so that a pull
fetches only rows of entries that are here. A row with a source stays. Must not know how they travel.
"""

import hashlib
import struct
from collections.abc import Callable, Collection, Container, Iterable, Iterator

from gpucache.answers.entries import CacheEntry, EntryReport, Location
from gpucache.answers.evict import Kept
from gpucache.answers.verify import Checked
from gpucache.caches.interface import Cache, OwnRoot
from gpucache.caches.portable import OWN_MODE, Moving, PortableEntry, PortableFile, Restored
from gpucache.engine.selection import Selected
from gpucache.errors import FormatError
from gpucache.model import CacheKey
from gpucache.serve.index import merged, place_of, travelling
from gpucache.store.records import Row, encode, references_of, rows_of

NAME = "gpucache-rows"
_DIGITS = 16
_LARGEST = 1 << 20


class RowCache(Cache):
    """The rows of a root of our own, each as an entry."""

    name = NAME
    moving = Moving()

    def __init__(self, own: OwnRoot) -> None:
        self._own = own
        self._store = own.store

    def location(self) -> Location:
        return self._own.location()

    def of(self, keys: Container[str]) -> Iterator[CacheEntry]:
        for row in self._store.rows.each():
            bare = travelling(row)
            if bare is not None and all(key.hex in keys for key in references_of(row)):
                file = encode([bare])
                yield CacheEntry(NAME, _key(bare), _name(bare), len(file), 0, 0, handle=file)

    def pack(self, entry: CacheEntry) -> PortableEntry:
        """The file of a row alone, without what is true of its machine only."""
        assert isinstance(entry.handle, bytes)
        return PortableEntry(NAME, entry.key, (PortableFile(entry.path, entry.handle, OWN_MODE),))

    def having(self, keys: Container[str]) -> Callable[[str, Collection[str]], bool]:  # noqa: ARG002
        """Whether a row need not be pulled: it exists, or its entry is missing."""

        def has(key: str, _: Collection[str]) -> bool:
            entry, _, rest = key.partition("-")
            place = rest.partition("-")[0]
            try:
                useless = not self._store.contains(CacheKey(entry))
            except ValueError:
                return True
            here = self._store.rows.of(place)
            return useless or any(_key(bare) == key for row in here if (bare := travelling(row)) is not None)

        return has

    def restore(self, entries: Iterable[PortableEntry]) -> Iterator[Restored]:
        """Add each row to its question's file, after the rows of this machine."""
        return map(self._restore, entries)

    def _restore(self, entry: PortableEntry) -> Restored:
        rows = rows_of(entry.files[0].data) if entry.size_bytes <= _LARGEST else None
        try:
            sound = rows is not None and [entry.key] == list(map(_key, rows))
        except (ValueError, struct.error):
            sound = False
        if not (rows and sound):
            return Restored(done=False, reason="it is not a row", damaged=True)
        place = place_of(rows[0])
        done = self._store.rows.keep(place, lambda here: merged(here, rows))
        return Restored(done=done, reason="" if done else "it cannot be written", failed=not done)

    def report(self, entry: CacheEntry) -> EntryReport:
        """The report of a row, which has nothing but the entry's facts."""
        return EntryReport(entry, (), ())

    def extract(self, entry: CacheEntry) -> bytes:
        """Raise FormatError, as a row contains nothing compiled."""
        raise FormatError(f"{entry.key} has no compiled bytes")

    def check(self, entry: CacheEntry) -> Checked:
        """Report no problem: C checks a row at every hit."""
        return Checked(entry.key)

    def remove(self, entry: CacheEntry, _why: str) -> Kept | None:
        """Remove the rows of its question."""
        self._store.rows.keep(entry.key.split("-")[1], lambda _: [])
        return None


def beside(selected: Selected) -> Selected:
    """Selected entries, those of our own roots followed by their rows."""
    found: list[tuple[Cache, Iterable[CacheEntry]]] = []
    for cache, entries in selected:
        keys: dict[str, None] = {}
        if isinstance(cache, OwnRoot):
            rows = RowCache(cache)
            found += [(cache, _noted(entries, keys)), (rows, rows.of(keys))]
        else:
            found.append((cache, entries))
    return found


def _noted(entries: Iterable[CacheEntry], keys: dict[str, None]) -> Iterator[CacheEntry]:
    for entry in entries:
        keys[entry.key] = None
        yield entry


def _key(row: Row) -> str:
    [first, *_] = references_of(row)
    return f"{first.hex}-{place_of(row)}-{hashlib.sha256(row.record).hexdigest()[:_DIGITS]}"


def _name(row: Row) -> str:
    return f"v1/rows/{place_of(row)}.row"
