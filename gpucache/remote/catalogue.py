"""The entries that a store holds, by the catalogues in it: which records are there and which are believed.

A catalogue is an object of lines, each a signed record, named by the SHA-256 of its bytes and never changed.
Every push writes one; when there are many, a push writes their lines anew as one and removes them. A store
that lists nothing is read by its index, which names the catalogues and is signed itself. Owns these two
objects and the names of files' objects. Must not know caches.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Annotated, NamedTuple

import msgspec

from gpucache.answers.transfer import Unsound
from gpucache.caches.portable import PortableEntry
from gpucache.caches.registry import OWN
from gpucache.errors import FormatError, RemoteError
from gpucache.model import CacheKey
from gpucache.remote import own_entries
from gpucache.remote.objects import Objects, batches
from gpucache.remote.records import MOST_LINE_BYTES, Signed, entry_of, parse_line
from gpucache.remote.signing import UNSIGNED, SigningKey, TrustedKeys

FOLDER = "catalogues/"
INDEX = "index"
MOST_BYTES = 64 << 20
"""The largest catalogue; some 60,000 records."""
_DIGITS, _HEX = 64, set("0123456789abcdef")
_TOGETHER = 256
"""How many entries are read together at most."""
_MANY = 32
"""How many catalogues are put together into one."""
_SIGNED_AS = b"gpucache index 1\n"
_GARBAGE = "it is not as gpucache wrote it, so it is ignored; remove it with 'gpucache verify URL --repair'"
_CatalogueName = Annotated[str, msgspec.Meta(pattern="^catalogues/[0-9a-f]{64}$")]


class Index(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a store that lists nothing has."""

    catalogues: Annotated[tuple[_CatalogueName, ...], msgspec.Meta(max_length=10_000)]
    signer: str = UNSIGNED
    signature: str = ""

    def is_believed(self, trusted: TrustedKeys) -> bool:
        """Whether a trusted key signed it."""
        try:
            signature = b64decode(self.signature, validate=True)
        except ValueError:
            return False
        return trusted.believes(self.signer, _SIGNED_AS + "\n".join(self.catalogues).encode(), signature)


class Catalogue(NamedTuple):
    """Everything that the catalogues of a store name."""

    records: Mapping[tuple[str, str], Signed]
    """By digest and signer."""
    names: frozenset[str]
    """The catalogues that were read."""
    findings: tuple[Unsound, ...] = ()
    strays: tuple[Signed, ...] = ()
    """Those of the records that no catalogue has: of entries that programs sent one by one."""


def blob_name(digest: str) -> str:
    """The name of a file's object by the SHA-256 of its bytes."""
    return f"blobs/{digest[:2]}/{digest}"


def objects_of(one: Signed) -> list[tuple[str, int]]:
    """The names of the objects of a record's entry, with bounds of their sizes; raises FormatError for a
    key that its system does not have."""
    record = one.record
    if record.system != OWN:
        return [(blob_name(file.sha256), file.size_bytes) for file in record.files]
    if len(record.key) != _DIGITS or set(record.key) - _HEX:
        raise FormatError(f"{record.key[:80]!r} is no key of gpucache")
    name = own_entries.object_name(CacheKey(record.key), one.signer)
    return [(name, record.size_bytes + MOST_LINE_BYTES)]


def whole(one: Signed, data: Mapping[str, bytes | None]) -> PortableEntry:
    """The entry of a record, which is believed, from the bytes of its objects; or FormatError."""
    record = one.record
    found = [(name, data.get(name)) for name, _ in objects_of(one)]
    if record.system == OWN:
        [(_, file)] = found
        if file is None:
            raise FormatError("its bytes are missing")
        key = CacheKey(record.key)
        own = own_entries.decode(key, one.signer, file, TrustedKeys({}), unsigned=True)[1]
        return entry_of(record, {record.files[0].sha256: own})
    return entry_of(record, {name.rpartition("/")[2]: file for name, file in found if file is not None})


def read_catalogue(
    store: Objects, trusted: TrustedKeys, *, unsigned: bool = False, strays: bool = False
) -> Catalogue:
    """All records of a store, believed or not; raises RemoteError if the store cannot be read.

    A server that lists nothing must have an index that a trusted key signed, or any with ``unsigned``. With
    ``strays`` also those of our own entries that programs sent one by one, from a store that can list them.
    """
    names, findings = _listed(store) if store.lists else _indexed(store, trusted, unsigned=unsigned)
    records: dict[tuple[str, str], Signed] = {}
    for name, data in store.read(names, MOST_BYTES):
        if data is None:  # put together with others since it was listed
            continue
        if sha256(data).hexdigest() != name.removeprefix(FOLDER):
            findings.append(Unsound(name, _GARBAGE))
            continue
        for number, line in enumerate(data.splitlines(), 1):
            try:
                one = parse_line(line)
                objects_of(one)
            except FormatError as error:
                findings.append(Unsound(f"{name}:{number}", f"{error}, so it is ignored"))
            else:
                records[one.record.digest, one.signer] = one
    alone = list(_strays(store, records, findings)) if strays and store.lists else []
    records.update(((one.record.digest, one.signer), one) for one in alone)
    return Catalogue(records, frozenset(names), tuple(findings), tuple(alone))


def read_objects(
    store: Objects, records: Iterable[Signed]
) -> Iterator[tuple[Sequence[Signed], Mapping[str, bytes | None]]]:
    """Records in groups that are read together, each with the bytes of their objects by name."""
    for group in batches(records, _TOGETHER, lambda one: one.record.size_bytes):
        sizes = {name: size for one in group for name, size in objects_of(one)}
        yield group, dict(store.read(sizes, max(sizes.values())))


def write_catalogue(store: Objects, records: Iterable[Signed]) -> str | None:
    """Write a catalogue of some records; its name, or None without any."""
    data = b"".join(one.line for one in records)
    if not data:
        return None
    name = FOLDER + sha256(data).hexdigest()
    list(store.create([(name, data)]))
    return name


def finish_catalogue(store: Objects, key: SigningKey | None) -> None:
    """Put many catalogues together, and write the index; after a push or an eviction."""
    names, _ = _listed(store)
    if len(names) > _MANY:
        found = read_catalogue(store, TrustedKeys({}))
        groups = _groups(list(found.records.values()))
        kept = {write_catalogue(store, group) for group in groups}
        store.remove(sorted(found.names - kept))
        names, _ = _listed(store)
    store.replace(INDEX, lambda _: _index(names, key))


def _groups(records: Sequence[Signed]) -> Iterator[list[Signed]]:
    group: list[Signed] = []
    size = 0
    for one in records:
        size += len(one.line)
        if size > MOST_BYTES // 2:
            yield group
            group, size = [], len(one.line)
        group.append(one)
    if group:
        yield group


def _index(names: Sequence[str], key: SigningKey | None) -> bytes:
    found = Index(tuple(sorted(names)))
    if key is not None:
        signature = key.sign(_SIGNED_AS + "\n".join(found.catalogues).encode())
        found = Index(found.catalogues, key.public.id, b64encode(signature).decode())
    return msgspec.json.encode(found)


def _strays(
    store: Objects, records: Mapping[tuple[str, str], Signed], findings: list[Unsound]
) -> Iterator[Signed]:
    """The records in objects of our own entries that no catalogue names."""
    known = {name for one in records.values() if one.record.system == OWN for name, _ in objects_of(one)}
    listed = [one for one in store.listed(own_entries.FOLDER) if one.name not in known]
    for batch in batches(listed, _TOGETHER, lambda one: one.size_bytes):
        limit = min(max(one.size_bytes for one in batch), own_entries.MOST_OBJECT_BYTES)
        for name, data in store.read([one.name for one in batch], limit):
            try:
                one = parse_line(data[: data.find(b"\n", 0, MOST_LINE_BYTES) + 1]) if data else None
                if one and (one.record.system != OWN or name not in dict(objects_of(one))):
                    raise FormatError("it is the entry of another key")
            except FormatError as error:
                findings.append(Unsound(name, f"{error}, so it is ignored"))
            else:
                if one:
                    yield one


def _listed(store: Objects) -> tuple[list[str], list[Unsound]]:
    names, findings = [], []
    for one in store.listed(FOLDER):
        digits = one.name.removeprefix(FOLDER)
        if len(digits) == _DIGITS and not set(digits) - _HEX:
            names.append(one.name)
        else:
            findings.append(Unsound(one.name, _GARBAGE))
    return names, findings


def _indexed(store: Objects, trusted: TrustedKeys, *, unsigned: bool) -> tuple[list[str], list[Unsound]]:
    [(_, data)] = store.read([INDEX], 1 << 20)
    if data is None:
        raise RemoteError(
            f"{store.url} has no index of gpucache's; check the URL, or push to its place first"
        )
    try:
        found = msgspec.json.decode(data, type=Index)
    except (ValueError, RecursionError) as error:
        raise RemoteError(f"the index of {store.url} cannot be parsed ({error}); push there again") from None
    if not unsigned and not found.is_believed(trusted):
        raise RemoteError(
            f"no key of GPUCACHE_TRUSTED_KEYS signed the index of {store.url}; add the key of who "
            "pushes there, or give --unsigned"
        )
    return list(found.catalogues), []
