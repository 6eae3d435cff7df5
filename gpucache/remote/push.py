"""Push: the sound entries of caches that a store does not have yet, packed, signed and sent.

Files go first, then the catalogue that names them, so that a reader of the store finds all of an entry or
nothing; a push that is interrupted has lost at most the entries since the last catalogue, whose files are
there. Nothing is reported as sent before the store was seen to have it, unmarked for removal, after that
catalogue. Must not know the kind of store, or which systems there are.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import chain
from time import monotonic
from typing import NamedTuple

from gpucache.answers.entries import CacheEntry
from gpucache.answers.transfer import Immovable, Moved, Pushed, PushResult, Unsound
from gpucache.caches.interface import Cache
from gpucache.caches.portable import Fact, ImmovableError, PortableEntry
from gpucache.caches.registry import OWN
from gpucache.errors import FormatError, RemoteError
from gpucache.remote import own_entries
from gpucache.remote.catalogue import (
    Catalogue,
    blob_name,
    finish_catalogue,
    lacking,
    objects_of,
    read_catalogue,
    write_catalogue,
)
from gpucache.remote.keeping import ROWS
from gpucache.remote.objects import File, Files, Objects, Progress
from gpucache.remote.records import MOST_LINE_BYTES, Record, Signed, record_of, signed
from gpucache.remote.removal import sign, sweep
from gpucache.remote.signing import SigningKey, TrustedKeys

Outcome = Pushed | Immovable | Unsound
_AT_ONCE = 256
_ANEW_S = 300.0
"""How long a continuous push relies on its last reading of the store."""
_LOST = "the store is removing it, or lost it meanwhile; push it again"
_NO_SOURCES = "it contains {}, which every reader of the store then sees; pass --sources to send it"


class _Sent(NamedTuple):
    """An entry whose objects are on their way."""

    entry: Moved
    record: Signed
    tells: str
    waits: set[str]
    """The names of its objects that have not arrived yet."""


def push(
    selected: Sequence[tuple[Cache, Iterable[CacheEntry]]],
    store: Objects,
    *,
    key: SigningKey,
    trusted: TrustedKeys,
    sources: bool,
    dry_run: bool,
    progress: Progress,
    more: Iterable[Sequence[tuple[Cache, Iterable[CacheEntry]]]] = (),
) -> Iterator[Outcome]:
    """The outcome of each selected entry.

    Raises RemoteError if the store cannot be read or written.
    ``sources`` sends entries that contain source text, too. ``more`` are further selections, which may wait
    for entries to be written: what came before each is safe in the store.
    """
    believed = TrustedKeys({**trusted.keys, key.public.id: key.public})
    sending = _Sending(store, key, believed, sources=sources, progress=progress)
    yield from sending.read().findings
    if dry_run:
        yield from sending.foreseen(selected)
        return
    stopped: BaseException | None = None
    sign(store)
    try:
        for some in chain([selected], more):
            if monotonic() - sending.read_s > _ANEW_S:
                sending.read()
            yield from sending.send(some)
            if more and sending.done:
                yield from sending.catalogued()
                finish_catalogue(store, key)
                store.finish()
    except (KeyboardInterrupt, RemoteError) as error:  # the sent entries are kept
        stopped = error
    yield from sending.drain()
    if sending.done:
        yield from sending.catalogued()
    if sending.wrote:
        finish_catalogue(store, key)
    if sweep(store, lambda: read_catalogue(store, believed).named) or sending.wrote:
        store.finish()
    if stopped:
        raise stopped


class _Sending:
    """The entries of one push on their way: which objects each still waits for."""

    def __init__(
        self, store: Objects, key: SigningKey, believed: TrustedKeys, *, sources: bool, progress: Progress
    ) -> None:
        self._store = store
        self._key = key
        self._believed = believed
        self._sources = sources
        self._progress = progress
        self._outcomes: list[Outcome] = []
        self._waiting: dict[str, list[_Sent]] = {}
        self._bytes: dict[str, int] = {}
        self._new: dict[str, int] = {}
        self._signer = key.public.id
        self._files: dict[str, bytes] = {}
        self._count = 0
        self.files = Files({}, [])
        """The objects in transit, as files for other programs."""
        self.done: list[_Sent] = []
        """Entries whose objects exist and that no catalogue names yet."""
        self.wrote = False

    def read(self) -> Catalogue:
        """Learn what the store has; no entry may be in transit."""
        self.read_s = monotonic()
        catalogue = read_catalogue(self._store, self._believed, objects=True)
        self._marked = catalogue.marked
        self._expected = len(catalogue.objects)
        self._there: dict[str, list[Signed]] = {}
        for one in filter(catalogue.has, catalogue.records.values()):
            self._there.setdefault(_place(one.record), []).append(one)
        self._bytes.clear()
        return catalogue

    def send(self, selected: Sequence[tuple[Cache, Iterable[CacheEntry]]]) -> Iterator[Outcome]:
        """Send what the store lacks; the outcomes of entries that a catalogue names by then, or of none."""
        for name, created in self._store.create(self.objects(selected), self.files):
            if not created:
                self.settle(name)
            self.arrived(name, created=created)
            yield from self.drain()
            if len(self.done) >= _AT_ONCE:
                yield from self.catalogued()
        yield from self.drain()

    def drain(self) -> Iterator[Outcome]:
        told, self._outcomes = self._outcomes, []
        yield from told

    def objects(self, selected: Sequence[tuple[Cache, Iterable[CacheEntry]]]) -> Iterator[tuple[str, bytes]]:
        """The objects of all entries that the store does not have, one by one."""
        for cache, entries in selected:
            if cache.moving.why_not:
                if next(iter(entries), None) is not None:
                    self._outcomes.append(Immovable(cache.name, cache.moving.why_not))
                continue
            for entry in entries:
                self._progress(self._count, None, entry.program or entry.key[:12])
                self._count += 1
                yield from self._objects(cache, entry)

    def foreseen(self, selected: Sequence[tuple[Cache, Iterable[CacheEntry]]]) -> Iterator[Outcome]:
        for _ in self.objects(selected):
            yield from self.drain()
        yield from self.drain()
        waiting = {id(one): one for some in self._waiting.values() for one in some}
        yield from (self.outcome(one, PushResult.WOULD_SEND, 0) for one in waiting.values())

    def _objects(self, cache: Cache, entry: CacheEntry) -> Iterator[tuple[str, bytes]]:
        moved = Moved(entry.cache, entry.key, entry.program, entry.target, entry.size_bytes)
        moving = cache.moving
        if moving.sources and not self._sources:
            why = _NO_SOURCES.format(moving.tells)
            self._outcomes.append(Pushed(moved, PushResult.REFUSED, why))
            return
        seen = cache.seen(entry)
        digest = cache.sound.digest(entry.key, seen) or ""
        if one := self._believed_at(entry.key if entry.cache == OWN else digest, digest):
            moved = moved._replace(program=one.record.program, target=one.record.target)
            self._outcomes.append(Pushed(moved, PushResult.PRESENT))
            return
        try:
            packed = cache.pack(entry)
            record = record_of(packed)
        except FormatError as error:
            result = PushResult.REFUSED if isinstance(error, ImmovableError) else PushResult.FAILED
            [found, *_] = cache.find(entry.key) or [entry]  # which has its head
            moved = moved._replace(program=found.program, target=found.target)
            self._outcomes.append(Pushed(moved, result, str(error)))
            return
        cache.sound.note(entry.key, seen, record.digest)
        moved = Moved(entry.cache, entry.key, record.program, record.target, record.size_bytes)
        if self._believed_at(_place(record), record.digest):
            self._outcomes.append(Pushed(moved, PushResult.PRESENT))
            return
        made = signed(record, self._key)
        head = made.line if record.system == OWN else b""
        names = [name for name, _ in objects_of(made)]
        objects = {name: head + file.data for name, file in zip(names, packed.files, strict=True)}
        if record.system == OWN and objects.keys() <= self._bytes.keys():  # sent from another root
            self._outcomes.append(Pushed(moved, PushResult.PRESENT))
            return
        new = {name: data for name, data in objects.items() if name not in self._bytes}
        if not self._store.served:
            self._lay_out(made, packed, new)
        self._bytes |= {name: len(data) for name, data in new.items()}
        waits = objects.keys() & (self._waiting.keys() | new.keys())
        sent = _Sent(moved, made, moving.tells, waits)
        for name in waits:
            self._waiting.setdefault(name, []).append(sent)
        self._files |= {
            name: data for name, data in new.items() if record.system == OWN or name in self._marked
        }
        if not waits:
            self.done.append(sent)
        yield from new.items()

    def _believed_at(self, place: str, digest: str) -> Signed | None:
        """The record that the store has of an entry, and that this machine would write or believes."""
        there = self._there.get(place, ())
        mine = (one for one in there if one.record.digest == digest or one.signer == self._signer)
        return next((one for one in mine if one.is_believed(self._believed)), None)

    def _lay_out(self, made: Signed, packed: PortableEntry, new: Container[str]) -> None:
        """Note the paths that an entry's files have in their owner's cache."""
        record = made.record
        if record.system == OWN:
            self.files.by_name[objects_of(made)[0][0]] = own_entries.file_of(made)
            return
        version = dict(record.facts).get(Fact.VERSION, "")
        about = " ".join(filter(None, (record.system, record.target, version)))
        for one, file in zip(record.files, packed.files, strict=True):
            name, place = blob_name(one.sha256), "" if record.system == ROWS else f"{record.system}/"
            path = f"{place}{one.name}"  # rows are part of our own root
            if name in new and name not in self.files.by_name:
                self.files.by_name[name] = File(path, about=about)
            else:
                self.files.more.append((path, file.data))

    def settle(self, name: str) -> None:
        """Make sure of an object that was there already: it is of another push at the same time, marked, or
        garbage.

        A file's object is not read: its name is the digest of its bytes, so pull and verify see garbage. One
        of our own is found by its key alone, so that garbage there would hide the entry for ever. A marked
        object may be damaged.
        """
        if (data := self._files.get(name)) is None:
            return
        if name in self._marked:
            self._store.replace(name, lambda _: data)
            return
        key, signer = own_entries.named(name)
        [(_, found)] = self._store.read([name], 2 * len(data) + MOST_LINE_BYTES)
        try:
            made, _ = own_entries.decode(key, signer, found or b"", self._believed)
        except FormatError:
            self._store.replace(name, lambda _: data)
        else:
            self._waiting[name] = [one._replace(record=made) for one in self._waiting[name]]

    def arrived(self, name: str, *, created: bool) -> None:
        self._files.pop(name, None)
        self.files.by_name.pop(name, None)
        if created:
            self._new[name] = self._bytes[name]
        for sent in self._waiting.pop(name, ()):
            sent.waits.discard(name)
            if not sent.waits:
                self.done.append(sent)

    def catalogued(self) -> Iterator[Outcome]:
        """Name the entries that arrived in a catalogue; their outcomes, once the store has them for sure."""
        done, self.done, self.wrote = self.done, [], True
        names = write_catalogue(self._store, (one.record for one in done), self._key)
        expected = self._expected + len(self._bytes)
        lost = lacking(self._store, (one.record for one in done), names, expected)
        for sent in done:
            objects = dict(objects_of(sent.record))
            new = sum(self._new.pop(name, 0) for name in objects)
            if lost.isdisjoint(objects) and lost.isdisjoint(names):
                yield self.outcome(sent, PushResult.SENT, new)
            else:
                for name in objects:
                    self._bytes.pop(name, None)
                yield Pushed(sent.entry, PushResult.FAILED, _LOST)

    def outcome(self, sent: _Sent, result: PushResult, sent_bytes: int) -> Pushed:
        return Pushed(sent.entry, result, sent_bytes=sent_bytes, tells=sent.tells)


def _place(record: Record) -> str:
    """A text that is equal for entries of which one suffices: for our own cache, builds with one key."""
    return record.key if record.system == OWN else record.digest
