"""Entries of our own cache in a store: one object each, and only recorded content is accepted."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest

from gpucache.caches.portable import PortableEntry, PortableFile, of_own
from gpucache.errors import FormatError
from gpucache.keys import cache_key
from gpucache.model import CacheKey, Entry, EntryDetail, EntryHead, KeyField
from gpucache.remote.own_entries import decode, object_name, object_of
from gpucache.remote.records import Signed, record_of, signed
from gpucache.remote.signing import SigningKey, load_signing_key, make_pair, read_trusted
from gpucache.store.directory import DirectoryStore
from gpucache.store.format import encode as encode_file


def encode(entry: PortableEntry, key: SigningKey) -> tuple[str, bytes]:
    """Name and bytes of an entry's object, signed with a key."""
    return object_of(signed(record_of(entry), key), entry)


def made_entry(value: str = "-O3", payload: bytes = b".version 8.0\n.target sm_90\n") -> Entry:
    """An entry of PTX, whose key follows from an option."""
    fields = (KeyField("language", "cuda-c++"), KeyField("option", value))
    head = EntryHead("k.cu", "cuda:sm_90", "ptx", 5, 7, sha256(payload).hexdigest(), "cuda-c++")
    return Entry(cache_key(fields), head, EntryDetail(fields), payload)


@dataclass
class Made:
    """An entry with its object."""

    entry: Entry
    file: bytes
    key: SigningKey
    name: str
    data: bytes

    def decoded(self, data: bytes, key: CacheKey | None = None) -> tuple[Signed, bytes]:
        """The result of decoding some bytes on a machine that trusts the key."""
        trusted = read_trusted(self.key.public.text)
        found, entry = decode(key or self.entry.key, self.key.public.id, data, trusted)
        return found, entry.files[0].data


@pytest.fixture(name="made")
def _made(tmp_path: Path) -> Made:
    make_pair(tmp_path / "mine")
    key = load_signing_key(tmp_path / "mine")
    entry = made_entry()
    file = encode_file(entry)
    return Made(entry, file, key, *encode(of_own(entry.key, entry.head, file), key))


def test_an_object_comes_back_as_the_bytes_of_the_file(made: Made) -> None:
    """Key and signer are its name; the record is that of the portable entry."""
    found, file = made.decoded(made.data)
    assert file == made.file
    assert made.name == object_name(made.entry.key, made.key.public.id)
    assert found.record == record_of(of_own(made.entry.key, made.entry.head, file))


def test_each_changed_byte_and_each_truncation_of_an_object_is_refused(made: Made) -> None:
    """A store cannot change anything that was signed."""
    for at in range(len(made.data)):
        with pytest.raises(FormatError):
            made.decoded(made.data[:at] + bytes([made.data[at] ^ 1]) + made.data[at + 1 :])
        with pytest.raises(FormatError):
            made.decoded(made.data[:at])


@pytest.mark.parametrize("wrong", ["key", "system", "name", "mode", "files", "signer", "unsigned", "more"])
def test_a_record_of_something_else_is_refused(made: Made, tmp_path: Path, wrong: str) -> None:
    """A validly signed record of another entry, system or file is refused."""
    make_pair(tmp_path / "other")
    other = load_signing_key(tmp_path / "other")
    entry = of_own(made.entry.key, made.entry.head, made.file)
    [file] = entry.files
    changes = {
        "key": entry._replace(key=made_entry("-O2").key.hex),
        "system": entry._replace(system="triton"),
        "name": entry._replace(files=(file._replace(name="v1/entries/ab/x.gpc"),)),
        "mode": entry._replace(files=(file._replace(mode=0o644),)),
        "files": entry._replace(files=(file, PortableFile("v1/more", b"", 0o600))),
    }
    record = record_of(changes.get(wrong, entry))
    line = signed(record, other if wrong == "signer" else made.key).line
    if wrong == "unsigned":
        line = Signed(record).line
    with pytest.raises(FormatError):
        made.decoded(line + made.file + b"x" * (wrong == "more"))


def test_an_object_below_the_name_of_another_signer_is_refused(made: Made) -> None:
    """A record names its signer, and so must the name of its object."""
    trusted = read_trusted(made.key.public.text)
    for signer in ("", "0" * 16):
        with pytest.raises(FormatError):
            decode(made.entry.key, signer, made.data, trusted)


def test_adopted_bytes_are_the_entry_of_another_root(made: Made, tmp_path: Path) -> None:
    """They are stored unchanged, and hit; a sound entry is never replaced, and not used by the attempt."""
    store = DirectoryStore(tmp_path / "root", writable=True)
    assert store.adopt(made.entry.key, made.file)
    [path] = (tmp_path / "root" / "v1" / "entries").rglob("*.gpc")
    before = path.stat().st_ino, path.stat().st_mtime_ns
    assert path.read_bytes() == made.file
    assert not store.adopt(made.entry.key, made.file)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == before
    [event] = store.history.events("k.cu")
    assert (event.what, event.key, event.target) == ("pulled", made.entry.key.hex, "cuda:sm_90")


def test_a_damaged_entry_is_replaced_by_adopted_bytes(made: Made, tmp_path: Path) -> None:
    """An unsound file is not an obstacle."""
    store = DirectoryStore(tmp_path / "root", writable=True)
    store.adopt(made.entry.key, made.file)
    [path] = (tmp_path / "root" / "v1" / "entries").rglob("*.gpc")
    path.write_bytes(made.file[:-1])
    assert store.adopt(made.entry.key, made.file)
    assert path.read_bytes() == made.file


def test_bytes_that_are_not_sound_or_not_true_are_not_adopted(made: Made, tmp_path: Path) -> None:
    """Every byte, the key of the key fields and the kind of the payload are verified; nothing is written."""
    entry = made.entry
    forged = CacheKey("ab" * 32)
    mislabelled = made_entry(payload=b"\x7fELF")
    store = DirectoryStore(tmp_path / "root", writable=True)
    for key, data in (
        (forged, made.file),
        (forged, encode_file(entry._replace(key=forged))),
        (mislabelled.key, encode_file(mislabelled)),
        *((entry.key, made.file[:at]) for at in range(0, len(made.file), 7)),
        *(
            (entry.key, made.file[:at] + bytes([made.file[at] ^ 1]) + made.file[at + 1 :])
            for at in range(0, len(made.file), 7)
        ),
    ):
        with pytest.raises(FormatError):
            store.adopt(key, data)
    assert not (tmp_path / "root").exists()
