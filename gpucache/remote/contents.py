"""The contents of a store as caches, so that inspect, verify and evict work on it as on any other.

A store is a cache for each system in it. Owns the checks of stored entries, and the removal: an eviction
first writes the catalogue without the entries and their rows, then marks the files that no record names any
more. Removing needs no key, only the right to write. Must not know the kind of store.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256

from gpucache.answers.entries import CacheEntry, EntryReport, FindingKind, Location
from gpucache.answers.evict import Kept
from gpucache.answers.transfer import Pin
from gpucache.answers.verify import Checked, Finding
from gpucache.answers.why import Reach
from gpucache.caches.interface import Cache, Wanted
from gpucache.caches.registry import OWN
from gpucache.errors import FormatError, RemoteError, UsageError
from gpucache.model import KeyField
from gpucache.remote.catalogue import (
    Catalogue,
    blob_name,
    finish_catalogue,
    objects_of,
    read_catalogue,
    read_objects,
    require_store,
    whole,
    write_catalogue,
)
from gpucache.remote.keeping import NOTHING_KEPT, ROWS, Keeping, mark_of, read_keeping
from gpucache.remote.objects import IN_FLIGHT_BYTES, Objects, is_removable, read_sized
from gpucache.remote.records import Signed
from gpucache.remote.removal import mark, sweep
from gpucache.remote.signing import TrustedKeys
from gpucache.remote.store import UNBELIEVED
from gpucache.units import format_count

STORE = "store"
"""The role of a location that is a store."""
_DAY_NS = 24 * 3600 * 10**9
"""The age from which a file that no record names is a leftover; a push may be under way."""
_TRIES = 5
_LATER = (
    "marked {} in {}; the first push, eviction or repair after an hour removes that, as another machine may "
    "be sending the same"
)


class Contents:
    """The entries of a store, read once; shared by the caches of its systems."""

    def __init__(self, store: Objects, trusted: TrustedKeys) -> None:
        self.store = store
        self.trusted = trusted
        self.removed: set[bytes] = set()
        self.unsound: set[str] = set()
        """The entries and the objects that ``finish`` removes together."""

    @cached_property
    def catalogue(self) -> Catalogue:
        """All records; raises RemoteError."""
        return read_catalogue(self.store, self.trusted, objects=True)

    @cached_property
    def keeping(self) -> Keeping:
        """The pins, and when an entry was used or made last; raises RemoteError."""
        records = self.catalogue.records.values()
        found = read_keeping(self.store, {_mark(one) for one in records})
        used_ns = dict(found.used_ns)
        for one in records:
            used_ns[_mark(one)] = max(one.record.made_ns, used_ns.get(_mark(one), 0))
        return found._replace(used_ns=used_ns)

    def data_of(self, records: Sequence[Signed]) -> Iterator[tuple[Signed, Mapping[str, bytes | None]]]:
        """Records with the bytes of their objects; raises RemoteError."""
        for batch, data in read_objects(self.store, records):
            yield from ((one, data) for one in batch)

    def finish(self) -> str:
        """Write the catalogue without the entries that go, and mark their files; a sentence, if there are
        any. Raises RemoteError."""
        going, self.removed = self.removed, set()
        marked, self.unsound = self.unsound, set()
        if not (going or marked):
            return ""
        count = 0
        for _ in range(_TRIES):  # another machine may merge what it read before
            catalogue = self.catalogue
            going &= catalogue.records.keys()
            marks = {one: _mark(catalogue.records[one]) for one in going}
            pins = read_keeping(self.store, {*marks.values()})  # somebody may have pinned one since
            going = {one for one in going if not pins.pinned(marks[one])}
            items = catalogue.records.items()
            keys = {one.record.key for found, one in items if found not in going}
            rows = ((found, one.record.key[:64]) for found, one in items if one.record.system == ROWS)
            going |= {found for found, key in rows if key not in keys}
            kept = [one for found, one in items if found not in going]
            freed = {name for found in going for name, _ in objects_of(catalogue.records[found])}
            marked |= freed - {name for one in kept for name, _ in objects_of(one)}
            count += len(marked)
            if going:
                write_catalogue(self.store, kept)
                marked |= catalogue.names
            mark(self.store, marked)
            marked = set()
            self.__dict__.pop("catalogue", None)
            if not going:
                break
        finish_catalogue(self.store)
        self.store.remove(self.keeping.outdated)
        sweep(self.store, lambda: read_catalogue(self.store, self.trusted).named)
        self.store.finish()
        return _LATER.format(format_count(count, "object", "objects"), self.store.url) if count else ""


class StoredCache(Cache):
    """The entries of one system in a store."""

    def __init__(self, contents: Contents, name: str, *, first: bool) -> None:
        self.name = name
        self._contents = contents
        self._first = first
        self._failed: dict[str, None] = {}

    def location(self) -> Location:
        return Location(self.name, self._contents.store.url, "the URL", enabled=True, role=STORE)

    def scan(self, *, beside: bool = False) -> Iterator[CacheEntry]:  # noqa: ARG002 - a catalogue has no more
        return (_entry(one, self._contents.keeping) for one in self._own())

    @property
    def pins(self) -> Iterator[Pin]:
        entries = list(self.scan())
        for name in sorted({one.pinned for one in entries} - {""}):
            sizes = [one.size_bytes for one in entries if one.pinned == name]
            yield Pin(name, self.name, len(sizes), sum(sizes))

    def unread(self) -> Sequence[str]:
        """Why something could not be removed, a sentence each."""
        return tuple(self._failed)

    def report(self, entry: CacheEntry) -> EntryReport:
        one = _signed(entry)
        facts = tuple(KeyField(*pair) for pair in one.record.facts)
        files = tuple((file.name, f"{file.size_bytes} bytes, {file.sha256}") for file in one.record.files)
        return EntryReport(entry, (*facts, KeyField("signer", one.signer or "none")), files)

    def extract(self, entry: CacheEntry) -> bytes:
        """Refused: only its cache knows the meaning of an entry's file."""
        raise FormatError(f"{entry.key[:12]} is in a store; pull it first, then extract it from its cache")

    def check(self, entry: CacheEntry) -> Checked:
        """The record's signature, and every byte of its files."""
        [(one, data)] = self._contents.data_of([_signed(entry)])
        return self._checked(entry, one, data)

    def checked(self, share: tuple[int, int] = (0, 1)) -> Iterator[tuple[CacheEntry, Checked]]:
        """Every entry with the result of ``check``, read many at once, and rows; raises RemoteError."""
        number, shares = share
        for one, data in self._contents.data_of(list(self._own(ROWS))[number::shares]):
            entry, counts = _entry(one, self._contents.keeping), one.record.system == self.name
            yield entry, self._checked(entry, one, data)._replace(counts=counts)

    def leftovers(self) -> Iterator[Checked]:
        """Garbage, and files older than a day by the store's dates that no record names.

        Raises RemoteError.
        """
        if not self._first:
            return
        catalogue = self._contents.catalogue
        for found in catalogue.findings:
            kind = FindingKind.CORRUPT if found.wrong else FindingKind.LEFTOVER
            yield self._told(found.name, kind, found.detail)
        now_ns = max((one.written_ns for one in catalogue.objects.values()), default=0)
        named = catalogue.named | catalogue.marked
        for one in catalogue.objects.values():
            if one.name not in named and one.written_ns < now_ns - _DAY_NS:
                detail = f"no record names it ({one.size_bytes} bytes); a push that was interrupted left it"
                yield self._told(one.name, FindingKind.LEFTOVER, detail)

    def remove(self, entry: CacheEntry, why: str) -> Kept | None:  # noqa: ARG002 - a store keeps no history
        if not self._contents.store.writes:
            return Kept(f"{self._contents.store.url} can only be read; evict where it was pushed")
        self._contents.removed.add(_signed(entry).identity)
        return None

    def finish_removals(self) -> Sequence[str]:
        """Remove the entries that ``remove`` and ``repair`` noted."""
        try:
            return tuple(filter(None, [self._contents.finish()]))
        except RemoteError as error:
            self._failed[str(error)] = None
        return ()

    finish_repairs = finish_removals

    def repair(self, checked: Checked, entry: CacheEntry | None) -> Checked:
        """Note that a damaged entry goes with its files, so that the next push sends it again; or garbage."""
        store = self._contents.store
        if not store.writes or not checked.findings:
            return checked
        if entry is None:
            if not is_removable(checked.entry):  # also a line of a catalogue with others
                return checked
            self._contents.unsound.add(checked.entry)
            return checked.fixed()
        if all(one.kind is FindingKind.UNTRUSTED for one in checked.findings):
            return checked  # a key of somebody whom this machine does not believe
        one = _signed(entry)
        # A sound file may be one of other entries, too, and a record may have the wrong size for it.
        if all(one.kind is not FindingKind.UNTRUSTED for one in checked.findings):
            sizes = {name: max(size, IN_FLIGHT_BYTES) for name, size in objects_of(one)}
            data = read_sized(store, sizes)
            self._contents.unsound |= {
                name for name, file in data if name != blob_name(sha256(file or b"").hexdigest())
            }
        self._contents.removed.add(one.identity)
        return checked.fixed()

    def explain(self, wanted: Wanted) -> Iterator[Reach]:  # noqa: ARG002 - the protocol's
        """Refused: programs ask caches."""
        raise UsageError("a store is not asked for a miss; pull it, and ask the cache")

    def _own(self, more: str = "") -> Iterator[Signed]:
        """The records of its system; for our own cache also the rows' records."""
        systems = (self.name, more) if self.name == OWN else (self.name,)
        return (one for one in self._contents.catalogue.records.values() if one.record.system in systems)

    def _checked(self, entry: CacheEntry, one: Signed, data: Mapping[str, bytes | None]) -> Checked:
        found: list[tuple[FindingKind, str]] = []
        believed = one.is_believed(self._contents.trusted)
        if not believed:
            why = "no key of GPUCACHE_TRUSTED_KEYS signed it, so pull leaves it"
            found.append((FindingKind.UNTRUSTED, why))
        try:
            whole(one, data, self._contents.trusted if believed else None)
        except FormatError as error:
            found.append((FindingKind.CORRUPT, f"{error}, so pull leaves it"))
        url = self._contents.store.url
        findings = (Finding(url, entry.key, kind, why, entry.program) for kind, why in found)
        return Checked(entry.key, tuple(findings))

    def _told(self, name: str, kind: FindingKind, detail: str) -> Checked:
        return Checked(name, (Finding(self._contents.store.url, name, kind, detail),), counts=False)


def stored_caches(store: Objects, trusted: TrustedKeys) -> tuple[Cache, ...]:
    """A cache for each system of a store, rows in that of our own; that one if the store is empty.

    Raises RemoteError.
    """
    contents = Contents(store, trusted)
    found = {one.record.system for one in require_store(store, contents.catalogue).records.values()}
    systems = sorted({OWN if one == ROWS else one for one in found or {OWN}})
    return tuple(StoredCache(contents, name, first=not number) for number, name in enumerate(systems))


def believed_entries(store: Objects, trusted: TrustedKeys) -> Iterator[CacheEntry]:
    """The entries of our own that a trusted key signed.

    Reads catalogues alone. Raises UsageError without a trusted key, RemoteError.
    """
    if not trusted.keys:
        raise UsageError(UNBELIEVED)
    catalogue = require_store(store, read_catalogue(store, trusted))
    for one in catalogue.records.values():
        if one.record.system == OWN and one.is_believed(trusted):
            yield _entry(one, NOTHING_KEPT)


def _mark(one: Signed) -> str:
    return mark_of(one.record.system, one.record.key)


def _entry(one: Signed, keeping: Keeping) -> CacheEntry:
    record, mark = one.record, _mark(one)
    used_ns = keeping.used_ns.get(mark, record.made_ns)
    return CacheEntry(
        record.system,
        record.key,
        record.files[0].name,
        record.size_bytes,
        record.made_ns or used_ns,  # a row has no date of its own
        used_ns,
        record.program,
        record.target,
        record.kind,
        unique=True,
        fields=record.facts,
        compile_ns=record.compile_ns,
        pinned=keeping.pinned(mark),
        handle=one,
    )


def _signed(entry: CacheEntry) -> Signed:
    if not isinstance(entry.handle, Signed):
        raise TypeError("an entry of another cache")
    return entry.handle
