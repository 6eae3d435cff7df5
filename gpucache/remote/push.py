"""Push: the sound entries of caches that a store does not have yet, packed, signed and sent.

Files go first, then the catalogue that names them, so that whoever reads the store finds all of an entry or
nothing; a push that is interrupted has lost at most the entries since the last catalogue, whose files are
there. Must not know what kind of store it is, or which systems there are.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from gpucache.answers.entries import CacheEntry
from gpucache.answers.transfer import Immovable, Moved, Pushed, PushResult, Unsound
from gpucache.caches.interface import Cache, Moves
from gpucache.caches.registry import OWN
from gpucache.errors import FormatError
from gpucache.remote import own_entries
from gpucache.remote.catalogue import (
    Catalogue,
    blob_name,
    finish_catalogue,
    objects_of,
    read_catalogue,
    write_catalogue,
)
from gpucache.remote.objects import Objects
from gpucache.remote.records import Record, Signed, record_of, signed
from gpucache.remote.signing import UNSIGNED, SigningKey, TrustedKeys

Progress = Callable[[int, int | None, str], object]
Outcome = Pushed | Immovable | Unsound
_AT_ONCE = 256
"""After how many entries a catalogue is written."""
_NO_SOURCES = "it contains {}, which everybody who reads the store then sees; give --sources to send it"


class _Sent(NamedTuple):
    """An entry whose objects are on their way."""

    entry: Moved
    record: Signed
    tells: str
    waits: set[str]
    """The names of the objects that are not there yet."""


def push(
    selected: Sequence[tuple[Cache, Iterable[CacheEntry]]],
    store: Objects,
    *,
    key: SigningKey | None,
    trusted: TrustedKeys,
    sources: bool,
    dry_run: bool,
    progress: Progress,
) -> Iterator[Outcome]:
    """The outcome of each selected entry; raises RemoteError if the store cannot be read or written.

    Without a key records are not signed. ``sources`` sends entries that contain source text, too.
    """
    believed = trusted if key is None else TrustedKeys({**trusted.keys, key.public.id: key.public})
    own = any(cache.name == OWN for cache, _ in selected)
    catalogue = read_catalogue(store, believed, strays=own)
    yield from catalogue.findings
    sending = _Sending(catalogue, key, believed, sources=sources, progress=progress)
    if dry_run:
        for _ in sending.objects(selected):
            yield from sending.drain()
        yield from sending.drain()
        yield from (sending.outcome(one, PushResult.WOULD_SEND, 0) for one in sending.under_way)
        return
    wrote = False
    try:
        for name, created in store.create(sending.objects(selected)):
            sending.arrived(name, created=created)
            yield from sending.drain()
            if len(sending.done) >= _AT_ONCE:
                wrote = _catalogued(store, sending) or wrote
        yield from sending.drain()
    finally:  # also after Ctrl-C: what was sent is kept
        sending.done += catalogue.strays
        wrote = _catalogued(store, sending) or wrote
        if wrote:
            finish_catalogue(store, key)


def _catalogued(store: Objects, sending: "_Sending") -> bool:
    done, sending.done = sending.done, []
    return write_catalogue(store, done) is not None


class _Sending:
    """The entries of one push on their way: which objects each still waits for."""

    def __init__(
        self,
        catalogue: Catalogue,
        key: SigningKey | None,
        believed: TrustedKeys,
        *,
        sources: bool,
        progress: Progress,
    ) -> None:
        self._key = key
        self._believed = believed
        self._sources = sources
        self._progress = progress
        self._outcomes: list[Outcome] = []
        self._waiting: dict[str, list[_Sent]] = {}
        self._bytes: dict[str, int] = {}
        self._new: dict[str, int] = {}
        self._signer = key.public.id if key else UNSIGNED
        self._there: dict[str, list[Signed]] = {}
        for (digest, _), one in catalogue.records.items():
            self._there.setdefault(digest, []).append(one)
        self._own = {
            one.record.key
            for one in catalogue.records.values()
            if one.record.system == OWN and one.signer == self._signer
        }
        self._count = 0
        self.done: list[Signed] = []
        """Records of entries that are there and that no catalogue names yet."""

    @property
    def under_way(self) -> list[_Sent]:
        """The entries that wait for an object."""
        return list({id(one): one for waiting in self._waiting.values() for one in waiting}.values())

    def drain(self) -> Iterator[Outcome]:
        """The outcomes so far, once."""
        told, self._outcomes = self._outcomes, []
        yield from told

    def objects(self, selected: Sequence[tuple[Cache, Iterable[CacheEntry]]]) -> Iterator[tuple[str, bytes]]:
        """The objects of all entries that the store does not have, one by one."""
        for cache, entries in selected:
            moving = cache.moving if isinstance(cache, Moves) else None
            if not isinstance(cache, Moves) or moving is None or moving.why_not:
                if next(iter(entries), None) is not None:
                    why = moving.why_not if moving else "its entries cannot be taken one by one"
                    self._outcomes.append(Immovable(cache.name, why))
                continue
            for entry in entries:
                self._progress(self._count, None, entry.program or entry.key[:12])
                self._count += 1
                yield from self._objects(cache, entry)

    def _objects(self, cache: Moves, entry: CacheEntry) -> Iterator[tuple[str, bytes]]:
        moved = Moved(entry.cache, entry.key, entry.program, entry.target, entry.size_bytes)
        moving = cache.moving
        if moving.sources and not self._sources:
            why = _NO_SOURCES.format(moving.tells)
            self._outcomes.append(Pushed(moved, PushResult.REFUSED, why))
            return
        if entry.cache == OWN and entry.key in self._own:  # any sound build of a key serves
            self._outcomes.append(Pushed(moved, PushResult.PRESENT))
            return
        try:
            packed = cache.pack(entry)
        except FormatError as error:
            self._outcomes.append(Pushed(moved, PushResult.FAILED, str(error)))
            return
        record = record_of(packed)
        moved = moved._replace(size_bytes=record.size_bytes)
        if self._is_there(record):
            self._outcomes.append(Pushed(moved, PushResult.PRESENT))
            return
        made = signed(record, self._key)
        if record.system == OWN:
            objects = [own_entries.object_of(made, packed)]
        else:
            objects = list({
                blob_name(one.sha256): file.data
                for one, file in zip(record.files, packed.files, strict=True)
            }.items())  # fmt: skip
        sent = _Sent(moved, made, moving.tells, {name for name, _ in objects})
        for name, data in objects:
            if name in self._waiting:
                self._waiting[name].append(sent)
            elif name in self._bytes:  # sent for an earlier entry
                sent.waits.discard(name)
            else:
                self._waiting[name] = [sent]
                self._bytes[name] = len(data)
                yield name, data
        if not sent.waits:
            self._arrived_whole(sent)

    def arrived(self, name: str, *, created: bool) -> None:
        """Note that an object is in the store."""
        if created:
            self._new[name] = self._bytes[name]
        for sent in self._waiting.pop(name, ()):
            sent.waits.discard(name)
            if not sent.waits:
                self._arrived_whole(sent)

    def outcome(self, sent: _Sent, result: PushResult, sent_bytes: int) -> Pushed:
        """The outcome of an entry."""
        return Pushed(sent.entry, result, sent_bytes=sent_bytes, tells=sent.tells)

    def _arrived_whole(self, sent: _Sent) -> None:
        new = sum(self._new.pop(name, 0) for name in dict(objects_of(sent.record)))
        self.done.append(sent.record)
        self._outcomes.append(self.outcome(sent, PushResult.SENT, new))

    def _is_there(self, record: Record) -> bool:
        """Whether the store has a record of this entry that this machine would write or believes."""
        return any(
            one.signer == self._signer or not self._key or one.is_believed(self._believed)
            for one in self._there.get(record.digest, ())
        )
