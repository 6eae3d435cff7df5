"""The entries of a store by its catalogues: which records there are, and which are believed.

A catalogue is an object of lines, each a signed record, named by the SHA-256 of its bytes and by chance, so
that no name is used again. Its last line may be a seal, by which a signer vouches for all of its own lines: a
reader checks one signature instead of thousands. Every push writes one; when there are many, a push writes
their lines anew as one and marks them for removal; what is marked is not read. A store that lists nothing is
read by its index, which names the catalogues and is not signed, as records are. Each index has a number and
is created under it, once: its writer saw the one before, so it lacks nothing that this one has. ``index`` is
a copy of the newest, or of an older one if a writer was killed; a reader goes on from it by number. Owns
these objects and the names of files' objects. Must not know caches.
"""

import os
import re
import sys
import time
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from itertools import chain, islice, takewhile
from typing import Annotated, NamedTuple

import msgspec

from gpucache.answers.transfer import Unsound
from gpucache.caches.portable import PortableEntry
from gpucache.caches.registry import OWN
from gpucache.errors import FormatError, RemoteError
from gpucache.model import CacheKey
from gpucache.remote import own_entries
from gpucache.remote.objects import (
    MOST_OBJECTS,
    Listed,
    Objects,
    batches,
    in_parallel,
    is_removable,
    read_sized,
)
from gpucache.remote.records import MOST_LINE_BYTES, Signed, entry_of, parse_line
from gpucache.remote.removal import is_signed, mark, marked, read_marks, withdraw
from gpucache.remote.signing import SigningKey, TrustedKeys

FOLDER = "catalogues/"
INDEX, _NUMBERED = "index", "indexes/"
_LAST, _HOUR_NS = 64, 3600 * 10**9
"""How many of the newest indexes are not removed, and for how long older ones: ``index`` may be a copy."""
_MOST_STEPS = 10_000
MOST_BYTES = 64 << 20
"""The largest catalogue; some 60,000 records."""
_DIGITS = 64
_KEY = re.compile(r"[0-9a-f]{64}")
_TOGETHER = 64
_SLOW_S = 0.02  # where reads take less, as in a directory, a thread that reads ahead costs more than it saves
_TRIES = 5
"""How often the listing is repeated if catalogues were merged meanwhile."""
_MOST_UNPROVEN_BYTES = 256 << 20
"""Up to so many bytes of lines all records are kept; beyond that only believed ones."""
_INDEX_BYTES = 1 << 20
_MOST_PLACES = 16
"""How many directories are listed by themselves before all of them are."""
_MANY = 32
_BLOBS = "blobs/"
_GARBAGE = "it is not as gpucache wrote it, so it is ignored; remove it with 'gpucache verify URL --repair'"
_STRANGE = "its name is none that gpucache gives, so it is left alone; remove it if it is not needed"
NO_STORE = "{} is not a store of gpucache, or is empty; check its address, or push there first"
_MOST_SIGNERS = 1000
_Signer = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}\Z")]
_CatalogueName = Annotated[str, msgspec.Meta(pattern=r"^catalogues/[0-9a-f]{64}(-[0-9a-f]{16})?\Z")]


class Index(msgspec.Struct, frozen=True):
    """The records of a store that lists nothing."""

    catalogues: Annotated[tuple[_CatalogueName, ...], msgspec.Meta(max_length=10_000)]
    signers: Annotated[frozenset[_Signer], msgspec.Meta(max_length=_MOST_SIGNERS)]
    """The ids of keys that signed some of them, for people."""
    number: Annotated[int, msgspec.Meta(ge=1)]


class _Seal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last line of a catalogue: the signature of all lines before it."""

    sealer: _Signer
    seal: Annotated[str, msgspec.Meta(max_length=128)]


_SEALED_AS = b"gpucache catalogue 1\n"
_SEALS = msgspec.json.Decoder(_Seal, strict=True)
_INDEXES = msgspec.json.Decoder(Index)


class Catalogue(NamedTuple):
    """Everything that the catalogues of a store name."""

    records: Mapping[bytes, Signed]
    """By their identities."""
    names: frozenset[str]
    """The catalogues whose records are all in ``records``."""
    findings: tuple[Unsound, ...] = ()
    marked: frozenset[str] = frozenset()
    """The objects that are marked for removal, which count as missing."""
    objects: Mapping[str, Listed] = {}
    """The objects of entries and files, if they were listed."""

    @property
    def named(self) -> frozenset[str]:
        """The objects of all records."""
        return frozenset(name for one in self.records.values() for name, _ in objects_of(one))

    def has(self, one: Signed) -> bool:
        """Whether the store lists every object of a record's entry."""
        return all(name in self.objects and name not in self.marked for name, _ in objects_of(one))


def blob_name(digest: str) -> str:
    """The name of a file's object by the SHA-256 of its bytes."""
    return f"{_BLOBS}{digest[:2]}/{digest}"


def objects_of(one: Signed) -> list[tuple[str, int]]:
    """The names of the objects of a record's entry, with bounds of their sizes; raises FormatError for a
    key that its system does not have."""
    record = one.record
    if record.system != OWN:
        return [(blob_name(file.sha256), file.size_bytes) for file in record.files]
    if not _KEY.fullmatch(record.key):
        raise FormatError(f"{record.key[:80]!r} is not a key of gpucache")
    name = own_entries.object_name(CacheKey(record.key), one.signer)
    return [(name, record.size_bytes + MOST_LINE_BYTES)]


def whole(one: Signed, data: Mapping[str, bytes | None], trusted: TrustedKeys | None) -> PortableEntry:
    """The entry of a record, which is believed, from the bytes of its objects; or FormatError. No signature
    is checked without trusted keys.

    Of our own entries a store has one for each key and signer, so that an older one serves as well.
    """
    record = one.record
    found = [data.get(name) for name, _ in objects_of(one)]
    if record.system != OWN:
        return entry_of(record, found)
    [file] = found
    if file is None:
        raise FormatError("its bytes are missing")
    return own_entries.decode(CacheKey(record.key), one.signer, file, trusted, one)[1]


def read_catalogue(store: Objects, trusted: TrustedKeys, *, objects: bool = False) -> Catalogue:
    """All records of a store, believed or not; raises RemoteError if the store cannot be read.

    With ``objects`` also its objects, from a store that can list them.
    """
    found, known = _Reading(trusted), set[str]()
    removed, strange, gone = frozenset[str](), list[Unsound](), list[str]()
    for _ in range(_TRIES):
        if store.lists:
            removed = marked(read_marks(store))
            sizes, strange = _listed(store, removed)
        else:
            sizes = dict.fromkeys(_indexed(store), MOST_BYTES)
        new = {name: min(size, MOST_BYTES) for name, size in sizes.items() if name not in known}
        gone = []
        for name, data in read_sized(store, new):
            if data is None:
                gone.append(name)
            else:
                known.add(name)
                found.add(name, data)
        if not gone:
            break
    listed: dict[str, Listed] = {}
    expected = sum(len(one.record.files) for one in found.records.values())
    if expected > MOST_OBJECTS // 2:  # else signatures, which take long, make no difference
        believed = (one for one in found.records.values() if one.is_believed(trusted))
        expected = sum(len(one.record.files) for one in believed)
    for folder in (own_entries.FOLDER, _BLOBS) if objects and store.lists else ():
        for one in store.listed(folder, expected):
            if is_removable(one.name):
                listed[one.name] = one
            else:
                found.findings.append(Unsound(one.name, _STRANGE, wrong=False))
    lost = (Unsound(name, "it is missing or larger than 64 MiB") for name in gone)
    findings = (*strange, *lost, *found.findings)
    return Catalogue(found.records, frozenset(found.names), findings, removed, listed)


def require_store(store: Objects, found: Catalogue) -> Catalogue:
    """The catalogue of a store; raises RemoteError if it is empty as nothing was ever sent there."""
    if not (found.records or found.findings or is_signed(store)):
        raise RemoteError(NO_STORE.format(store.url))
    return found


class _Reading:
    """The records of catalogues as they are read."""

    def __init__(self, trusted: TrustedKeys) -> None:
        self._trusted = trusted
        self._bytes = 0
        self.records: dict[bytes, Signed] = {}
        self.names: set[str] = set()
        self.findings: list[Unsound] = []

    def add(self, name: str, data: bytes) -> None:
        """Add the records of a catalogue; what is not as it should be becomes a finding."""
        if sha256(data).hexdigest() != name.removeprefix(FOLDER)[:_DIGITS]:
            self.findings.append(Unsound(name, _GARBAGE))
            return
        ignored, why, start = 0, "", 0
        data, sealer = _unsealed(data, self._trusted)
        while start < len(data):
            end = data.find(b"\n", start) + 1 or len(data)
            try:
                one = parse_line(data[start:end], sealed=sealer is not None)
                objects_of(one)
                if one.signer == sealer:
                    one.vouch(self._trusted)
                if self._bytes > _MOST_UNPROVEN_BYTES and not one.is_believed(self._trusted):
                    raise FormatError("the store has more than 256 MiB of records")
                self.records[one.identity] = one
                self._bytes += end - start
            except FormatError as error:
                ignored, why = ignored + 1, why or str(error)
            start = end
        if ignored:
            self.findings.append(
                Unsound(f"{name}:{ignored}", f"{ignored} of its lines are ignored, as {why}")
            )
        else:
            self.names.add(name)


def read_objects(
    store: Objects, records: Iterable[Signed]
) -> Iterator[tuple[Sequence[Signed], Mapping[str, bytes | None]]]:
    """Records in groups that are read together, each with the bytes of their objects by name; the next group
    is read while the caller works on one. What came before a RemoteError is in the last groups."""

    def read(
        group: Sequence[Signed],
    ) -> tuple[Sequence[Signed], Mapping[str, bytes | None], RemoteError | None]:
        sizes: dict[str, int] = {}
        for name, size in (pair for one in group for pair in objects_of(one)):
            sizes[name] = max(size, sizes.get(name, 0))
        data: dict[str, bytes | None] = {}
        try:
            data.update(read_sized(store, sizes))
        except RemoteError as error:
            return [one for one in group if data.keys() >= dict(objects_of(one)).keys()], data, error
        return group, data, None

    failed: list[RemoteError] = []
    groups = takewhile(lambda _: not failed, batches(records, _TOGETHER, lambda one: one.record.size_bytes))
    began = time.monotonic()
    first = [*map(read, islice(groups, 1))]
    reading = map if time.monotonic() - began < _SLOW_S else partial(in_parallel, workers=2)
    for group, data, error in chain(first, reading(read, groups)):
        failed.extend([error] if error else [])
        yield group, data
    if failed:
        raise failed[0]


def write_catalogue(store: Objects, records: Iterable[Signed], key: SigningKey | None = None) -> set[str]:
    """Write some records in as few catalogues as possible, sealed with a key; returns their names."""
    made = catalogues_of(records, key)
    list(store.create(made.items()))
    return set(made)


def catalogues_of(records: Iterable[Signed], key: SigningKey | None) -> dict[str, bytes]:
    """The catalogues of some records, by their names."""
    records = list(records)
    lines = sorted(one.line for one in records)
    groups = map(b"".join, batches(lines, sys.maxsize, len, MOST_BYTES // 2))
    ours = [one for one in records if key and one.signer == key.public.id]
    if key and ours and all(one.is_believed(TrustedKeys({key.public.id: key.public})) for one in ours):
        groups = map(partial(_sealed, key), groups)
    return {f"{FOLDER}{sha256(data).hexdigest()}-{os.urandom(8).hex()}": data for data in groups}


def lacking(
    store: Objects, records: Iterable[Signed], catalogues: Collection[str], expected: int = 0
) -> frozenset[str]:
    """The names of objects that a reader would miss, of some records and the catalogues that name them.

    None of the others goes any more, as they are taken out of all marks.
    """
    names = {name for one in records for name, _ in objects_of(one)}.union(catalogues)
    lost, left = withdraw(store, names), set(names)
    places = {name.rpartition("/")[0] + "/" for name in names}
    if len(places) > _MOST_PLACES:
        places = {place.partition("/")[0] + "/" for place in places}
    for place in sorted(places):
        left.difference_update(one.name for one in store.listed(place, expected))
    return lost | left


def finish_catalogue(store: Objects, key: SigningKey | None = None) -> None:
    """Merge many catalogues into one, and write the index if the store has one; after a push or an
    eviction."""
    if len(_visible(store)) > _MANY:
        found = read_catalogue(store, TrustedKeys({key.public.id: key.public} if key else {}))
        write_catalogue(store, found.records.values(), key)
        mark(store, found.names)
    if store.served:
        _write_index(store, key)


def _write_index(store: Objects, key: SigningKey | None) -> None:
    """Create the next index, unless two other writers do so meanwhile: the second one saw all that is there
    now."""
    for _ in range(2):
        there = sorted(one for one in store.listed(_NUMBERED) if is_removable(one.name))
        number = int(there[-1].name.removeprefix(_NUMBERED), 16) + 1 if there else 1
        old = None
        with suppress(RemoteError):  # it is garbage
            old = read_index(store)
        signers = ({key.public.id} if key else set()) | (old.signers if old else frozenset[str]())
        made = Index(tuple(sorted(_visible(store))), frozenset(sorted(signers)[:_MOST_SIGNERS]), number)
        data = msgspec.json.encode(made, order="deterministic")
        if list(store.create([(_numbered(number), data)])) == [(_numbered(number), True)]:
            break
        [(_, theirs)] = store.read([_numbered(number)], _INDEX_BYTES)
        data = theirs or data
    store.replace(INDEX, partial(_newer, data))
    newest_ns = max((one.written_ns for one in there), default=0)
    store.remove(one.name for one in there[:-_LAST] if one.written_ns < newest_ns - _HOUR_NS)


def _sealed(key: SigningKey, data: bytes) -> bytes:
    """The lines with a seal; the key's own lines among them must be sound."""
    seal = _Seal(key.public.id, key.sign(_SEALED_AS + sha256(data).digest()))
    return data + msgspec.json.encode(seal) + b"\n"


def _unsealed(data: bytes, trusted: TrustedKeys) -> tuple[bytes, str | None]:
    """The lines without the seal, and the trusted key that vouches for its own ones, if any does."""
    start = data.rfind(b"\n", 0, -1) + 1
    try:
        found = _SEALS.decode(data[start:])
    except (ValueError, RecursionError):
        return data, None
    lines = data[:start]
    believed = trusted.believes(found.sealer, _SEALED_AS + sha256(lines).digest(), found.seal)
    return lines, found.sealer if believed else None


def _newer(made: bytes, old: bytes | None) -> bytes:
    """The index with the larger number; an old one may be garbage."""
    with suppress(ValueError, RecursionError):
        if old is not None and _INDEXES.decode(old).number > _INDEXES.decode(made).number:
            return old
    return made


def _numbered(number: int) -> str:
    return f"{_NUMBERED}{number:016x}"


def _visible(store: Objects) -> set[str]:
    return set(_listed(store, marked(read_marks(store)))[0])


def _listed(store: Objects, marked: Container[str]) -> tuple[dict[str, int], list[Unsound]]:
    sizes, findings = {}, []
    for one in store.listed(FOLDER):
        if not is_removable(one.name):
            findings.append(Unsound(one.name, _STRANGE, wrong=False))
        elif one.name not in marked:
            sizes[one.name] = one.size_bytes
    return sizes, findings


def read_index(store: Objects) -> Index | None:
    """The index of a store, believed or not; None if it has none. Raises RemoteError."""
    [(_, data)] = store.read([INDEX], _INDEX_BYTES)
    try:
        return None if data is None else _INDEXES.decode(data)
    except (ValueError, RecursionError) as error:
        raise RemoteError(f"the index of {store.url} cannot be parsed ({error}); push there again") from None


def _indexed(store: Objects) -> Sequence[str]:
    """The catalogues that the newest index names."""
    found = read_index(store)
    if found is None:
        raise RemoteError(
            f"{store.url} has no index of gpucache; check the URL, or push to the place it serves"
        )
    for number in range(found.number + 1, found.number + _MOST_STEPS):
        [(_, data)] = store.read([_numbered(number)], _INDEX_BYTES)
        try:
            later = _INDEXES.decode(data or b"")
        except (ValueError, RecursionError):  # such as a page that says that it is missing
            break
        if later.number != number:
            break
        found = later
    return found.catalogues


def not_believed(signer: str) -> str:
    """A sentence on the signer of a record that is not believed, with the remedy."""
    why = f"it is signed by the key {signer}, which is not trusted" if signer else "it is not signed"
    return f"{why}; add the public key of the machine that pushed it to GPUCACHE_TRUSTED_KEYS"
