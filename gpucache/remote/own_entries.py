"""An entry of our own cache as one object of a store: its signed line, then the bytes of its file.

Owns the object's name, which has key and signer so that a program finds it without a listing, and the entry's
portable form. Must not know stores or roots.
"""

from gpucache.caches.portable import OWN_MODE, PortableEntry, own_name
from gpucache.caches.registry import OWN
from gpucache.errors import FormatError
from gpucache.model import CacheKey
from gpucache.remote.objects import File, is_removable
from gpucache.remote.records import MOST_LINE_BYTES, Signed, entry_of, parse_line
from gpucache.remote.signing import UNSIGNED, TrustedKeys

FOLDER = "entries/"
"""The beginning of the names of all such objects."""
_NO_SIGNER = "unsigned"


def object_name(key: CacheKey, signer: str) -> str:
    """The name of an entry's object, by its key and the id of its signer."""
    return f"{FOLDER}{key.hex[:2]}/{key.hex}-{signer or _NO_SIGNER}"


def object_of(made: Signed, entry: PortableEntry) -> tuple[str, bytes]:
    """Name and bytes of an entry's object from its signed record."""
    return object_name(CacheKey(entry.key), made.signer), made.line + entry.files[0].data


def file_of(made: Signed) -> File:
    toolchain = " ".join(value for _, value in made.record.facts[:2])
    return File(made.record.files[0].name, len(made.line), f"{OWN} {made.record.target} {toolchain}".strip())


def named(name: str) -> tuple[CacheKey, str]:
    """The key and the signer's id that an object's name has; raises FormatError for any other name."""
    if not (name.startswith(FOLDER) and is_removable(name)):
        raise FormatError("its name is not one of an entry of gpucache")
    key, _, signer = name.rpartition("/")[2].partition("-")
    return CacheKey(key), UNSIGNED if signer == _NO_SIGNER else signer


def decode(
    key: CacheKey, signer: str, data: bytes, trusted: TrustedKeys | None, known: Signed | None = None
) -> tuple[Signed, PortableEntry]:
    """The record in an object of ``object_name(key, signer)``, and the entry.

    Its bytes are those that the signer recorded for this key; their content is not checked yet, see
    ``DirectoryStore.adopt``. Without trusted keys no signature is checked, nor that of a record which is
    ``known`` from elsewhere. Raises FormatError for anything else, such as the object of another key.
    """
    end = data.find(b"\n", 0, MOST_LINE_BYTES) + 1
    if not end:
        raise FormatError("it does not begin with a record")
    same = known is not None and data.startswith(known.line)
    made, file = known if known and same else parse_line(data[:end]), data[end:]
    record = made.record
    if (record.system, record.key) != (OWN, key.hex):
        raise FormatError(f"it is the entry {record.key[:12]} of {record.system}")
    if [(one.name, one.mode) for one in record.files] != [(own_name(key), OWN_MODE)]:
        raise FormatError("its record names other files than an entry of gpucache has")
    if made.signer != signer or not (same or trusted is None or made.is_believed(trusted)):
        raise FormatError("its signature is not that of the key that it is named after")
    return made, entry_of(record, [file])
