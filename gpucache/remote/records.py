"""Records: small signed descriptions of entries, each naming its files by their SHA-256.

Owns the form of a record, its digest and its line. A line is canonical JSON, one record with its signer and
signature; a catalogue is many lines. The signature covers the record alone, so anyone may put lines together
anew. Everything read is bounded and held to the form before it is used. Must not know where records are kept.

The digest of a record covers system, key, names, modes and digests of the files, and nothing of the
machine: an entry that was pulled has the digest under which it was pushed.
"""

from collections.abc import Sequence
from functools import cached_property
from hashlib import sha256
from typing import Annotated

import msgspec

from gpucache.caches.portable import (
    MOST_BYTES,
    MOST_FILES,
    PortableEntry,
    PortableFile,
    require_name,
)
from gpucache.errors import FormatError
from gpucache.remote.signing import UNSIGNED, SigningKey, TrustedKeys

MOST_LINE_BYTES = 4 << 20
"""The longest line; that of a real entry has about one kB."""
_SIGNED_AS = b"gpucache record 1\n"
_BELIEVED = "believed"
_Text = Annotated[str, msgspec.Meta(max_length=4096)]
_Hex = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
_Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}\Z")]
_MOST_NS = (1 << 63) - 1
_Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST_NS)]


class RecordedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of an entry."""

    name: _Text
    """Its path below the root of the cache, with slashes."""
    sha256: _Hex
    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=MOST_BYTES)]
    mode: Annotated[int, msgspec.Meta(ge=0, le=0o777)]


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """The description of one entry."""

    system: _Name
    key: _Text
    files: Annotated[tuple[RecordedFile, ...], msgspec.Meta(max_length=MOST_FILES)]
    """In the order in which they are published."""
    facts: Annotated[tuple[tuple[_Text, _Text], ...], msgspec.Meta(max_length=64)] = ()
    """The facts that must be the same elsewhere: labels of ``portable.Fact`` or of the system, and values."""
    program: _Text = ""
    target: _Text = ""
    kind: _Text = ""
    compile_ns: _Count | None = None
    made_ns: _Count = 0

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in self.files)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 that identifies the entry, in hex."""
        return sha256(
            _encode((self.system, self.key, sorted(self.files, key=lambda one: one.name)))
        ).hexdigest()


class Signed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """A record with its signer's id and the signature; a record without them is not believed."""

    record: Record
    signer: Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{16})?\Z")] = UNSIGNED
    signature: Annotated[str, msgspec.Meta(max_length=128)] = ""

    @property
    def line(self) -> bytes:
        return _encode(self) + b"\n"

    @property
    def identity(self) -> bytes:
        """The SHA-256 of its line, as anyone may give another record the same signature."""
        return sha256(self.line).digest()

    def is_believed(self, trusted: TrustedKeys) -> bool:
        """Whether a trusted key signed it, which is checked once."""
        key = trusted.keys.get(self.signer)
        if key is not None and key.raw == self.__dict__.get(_BELIEVED):
            return True
        if not trusted.believes(self.signer, _SIGNED_AS + _encode(self.record), self.signature):
            return False
        self.vouch(trusted)
        return True

    def vouch(self, trusted: TrustedKeys) -> None:
        """Believe it unchecked, as its signer, a trusted key, made it or a seal that covers it."""
        self.__dict__[_BELIEVED] = trusted.keys[self.signer].raw


def record_of(entry: PortableEntry) -> Record:
    """The record of an entry; raises FormatError for one that no machine would take from a store."""
    files = tuple(
        RecordedFile(one.name, sha256(one.data).hexdigest(), len(one.data), one.mode) for one in entry.files
    )
    program, target, kind = (
        one[:4096].encode("utf-8", "replace").decode() for one in (entry.program, entry.target, entry.kind)
    )
    record = Record(
        entry.system,
        entry.key,
        files,
        entry.facts,
        program,
        target,
        kind,
        entry.compile_ns if 0 <= (entry.compile_ns or 0) <= _MOST_NS else None,
        min(max(entry.made_ns, 0), _MOST_NS),
    )
    try:
        return parse_line(Signed(record, "0" * 16, "0" * 88).line).record
    except (ValueError, FormatError) as error:
        raise FormatError(f"it cannot be described: {error}") from None


def signed(record: Record, key: SigningKey) -> Signed:
    made = Signed(record, key.public.id, key.sign(_SIGNED_AS + _encode(record)))
    made.vouch(TrustedKeys({key.public.id: key.public}))
    return made


def parse_line(line: bytes, *, sealed: bool = False) -> Signed:
    """A record from a line; raises FormatError for one that is not valid, larger than any entry, or, unless
    a trusted key ``sealed`` it, not written as ``Signed.line`` writes it."""
    if len(line) > MOST_LINE_BYTES:
        raise FormatError("a record is longer than 4 MiB")
    try:
        found = _DECODER.decode(line)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"a record cannot be parsed ({error})") from None
    if not sealed and _encode(found) != line.rstrip(b"\n"):
        raise FormatError("a record is not written as gpucache writes it")
    for one in found.record.files:
        require_name(one.name)
    names = {one.name for one in found.record.files}
    if not names or len(names) < len(found.record.files) or found.record.size_bytes > MOST_BYTES:
        raise FormatError("a record names no file, one twice, or more than 4 GiB")
    return found


def entry_of(record: Record, data: Sequence[bytes | None]) -> PortableEntry:
    """The entry of a record from the bytes of its files, each compared with its record.

    Raises FormatError for bytes that are missing or differ.
    """
    files = []
    for one, found in zip(record.files, data, strict=True):
        if found is None:
            raise FormatError(f"the bytes of {one.name} are missing")
        if len(found) != one.size_bytes or sha256(found).hexdigest() != one.sha256:
            raise FormatError(f"the bytes of {one.name} are not those that were recorded")
        files.append(PortableFile(one.name, found, one.mode))
    return PortableEntry(
        record.system,
        record.key,
        tuple(files),
        record.facts,
        record.program,
        record.target,
        record.kind,
        record.compile_ns,
        record.made_ns,
    )


_DECODER = msgspec.json.Decoder(Signed, strict=True)


def _encode(value: object) -> bytes:
    return msgspec.json.encode(value, order="deterministic")
