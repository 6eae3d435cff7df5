"""The bytes of an entry: they are read back as written, and anything else is refused."""

import json
import os
import pickle
import struct
from pathlib import Path

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucache.model import CacheKey, Check, Entry, EntryDetail, EntryHead, FindingKind, KeyField
from gpucache.store import format as entry_format
from gpucache.store.description import BUILD_LOG_CAP, decode_head, encode_head
from gpucache.store.format import HEADER, Description, EntryFormatError, encode, read_sound
from tests.store.conftest import build_entry

_TEXT = st.text(max_size=12) | st.just(os.fsdecode(b"caf\xe9"))
_TEXTS = st.lists(_TEXT, max_size=3).map(tuple)
_PAIRS = st.lists(st.tuples(_TEXT, _TEXT), max_size=3).map(tuple)
_NUMBER = st.integers(0, 2**63 - 1)
_HEADS = st.builds(
    EntryHead,
    program=_TEXT,
    target=_TEXT,
    artifact_kind=_TEXT,
    created_ns=_NUMBER,
    compile_ns=_NUMBER,
    payload_sha256=_TEXT,
    language=_TEXT,
    variant=_TEXT,
    options=_TEXTS,
    local_sizes=st.lists(st.lists(_NUMBER, max_size=3).map(tuple), max_size=2).map(tuple),
    located=st.booleans(),
    lowered_names=st.dictionaries(_TEXT, _TEXT, max_size=3),
    toolchain=_PAIRS,
    toolchain_identity=_TEXTS,
    failures=st.lists(st.builds(Check, _NUMBER, _TEXT, _TEXT, _TEXT), max_size=3).map(tuple),
    has_log=st.booleans(),
    checks=_TEXT,
)
_DETAILS = st.builds(
    EntryDetail, st.lists(st.builds(KeyField, _TEXT, _TEXT), max_size=4).map(tuple), _TEXT, _TEXT, _PAIRS
)
_KEYS = st.binary(min_size=32, max_size=32).map(lambda data: CacheKey(data.hex()))


def _read(path: Path, data: bytes, key: CacheKey) -> tuple[Description, bytes]:
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    try:
        return read_sound(fd, len(data), key)
    finally:
        os.close(fd)


def _damage(path: Path, data: bytes, entry: Entry) -> FindingKind:
    with pytest.raises(EntryFormatError) as caught:
        _read(path, data, entry.key)
    return caught.value.damage


def _assemble(entry: Entry, head: bytes, detail: bytes) -> bytes:
    """An entry with correct lengths and checksums around any head and detail."""
    start = -(-(HEADER.size + len(head) + len(detail)) // 64) * 64
    lengths = (len(head), len(detail), len(entry.payload), start + len(entry.payload))
    front = HEADER.pack(b"GPUCACHE", 1, *lengths, 0, bytes.fromhex(entry.key.hex), b"", b"")[:80]
    sums = xxhash.xxh3_128_digest(front + head + detail) + xxhash.xxh3_128_digest(entry.payload)
    return (front + sums + head + detail).ljust(start, b"\0") + entry.payload


@settings(max_examples=30)
@given(key=_KEYS, head=_HEADS, detail=_DETAILS, payload=st.binary(max_size=200))
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory,
    key: CacheKey,
    head: EntryHead,
    detail: EntryDetail,
    payload: bytes,
) -> None:
    """Whatever an entry says comes back as it was written."""
    path = tmp_path_factory.getbasetemp() / "round-trip.gpc"
    read, found = _read(path, encode(Entry(key, head, detail, payload)), key)
    assert (read.head, read.detail(), found) == (head, detail, payload)


def test_table_of_the_format() -> None:
    """Every field is at the offset and with the meaning that the format's table gives."""
    entry = build_entry()
    data = encode(entry)
    version, head, detail = struct.unpack_from("<IIQ", data, 8)
    payload, total, zero = struct.unpack_from("<QQQ", data, 24)
    start = total - payload
    assert data[:8] == b"GPUCACHE" and (version, zero, total) == (1, 0, len(data))
    assert data[48:80].hex() == entry.key.hex
    assert data[80:96] == xxhash.xxh3_128_digest(data[:80] + data[112 : 112 + head + detail])
    assert data[96:112] == xxhash.xxh3_128_digest(entry.payload)
    assert json.loads(data[112 : 112 + head])["program"] == entry.head.program
    assert json.loads(data[112 + head : 112 + head + detail])["tool_version"] == "1.0"
    assert start % 64 == 0 and data[start:] == entry.payload
    assert not any(data[112 + head + detail : start])


def test_equal_entries_are_equal_files() -> None:
    """The order in which lowered names were put in does not change the bytes."""
    entry = build_entry()
    there = entry._replace(head=entry.head._replace(lowered_names={"a": "1", "b": "2"}))
    back = entry._replace(head=entry.head._replace(lowered_names={"b": "2", "a": "1"}))
    assert encode(there) == encode(back)


def test_build_log_is_cut(tmp_path: Path) -> None:
    """A long build log is kept up to its cap and says that it was cut."""
    entry = build_entry()
    entry = entry._replace(detail=entry.detail._replace(build_log="é" * BUILD_LOG_CAP))
    log = _read(tmp_path / "entry", encode(entry), entry.key)[0].detail().build_log
    assert log.startswith("éé") and log.endswith("[cut]")
    assert BUILD_LOG_CAP - 8 < len(log.encode()) <= BUILD_LOG_CAP


_HEAD_FIELDS = sorted(json.loads(encode_head(EntryHead("", "", "", 0, 0, ""))))


def test_a_table_that_tells_no_functions_is_read() -> None:
    """Entries from before failure tables had functions and files keep theirs."""
    fields = json.loads(encode_head(build_entry().head))
    for row, check in ((["7", "%d"], Check(7, "%d")), (["7", "%d", "f", "a.h"], Check(7, "%d", "f", "a.h"))):
        assert decode_head(json.dumps(fields | {"failures": [row]}).encode()).failures == (check,)


@pytest.mark.parametrize("row", [[], ["7"], ["7", "", "f"], ["7", "", "", "", ""], ["x", ""], [7, ""], "7"])
def test_a_table_of_other_rows_is_refused(row: object) -> None:
    """A row has a line in digits, a format, a function and a file, all of them text."""
    fields = json.loads(encode_head(build_entry().head))
    with pytest.raises(ValueError, match=r".+"):
        decode_head(json.dumps(fields | {"failures": [row]}).encode())


@pytest.mark.parametrize("name", ["has_log", "place"])
def test_a_head_of_before_there_was_a_field_is_read(name: str) -> None:
    """The field is empty, and the rest of the head counts."""
    fields = json.loads(encode_head(build_entry().head))
    del fields[name]
    assert decode_head(json.dumps(fields).encode()) == build_entry().head


@pytest.mark.parametrize("name", _HEAD_FIELDS)
def test_head_of_other_types_is_corrupt(tmp_path: Path, name: str) -> None:
    """A head with a field of another type, or without one of old, is refused though its checksum matches."""
    entry = build_entry()
    fields = json.loads(encode_head(entry.head))
    values = [None, 1.5, {"a": 1}, [1], [["a"]], [[["a"]]], -1, 2**63, [[-1]], [["a", "b", "c"]]]
    values += [True] if name not in ("located", "has_log") else [1]
    heads = [fields | {name: value} for value in values]
    if name not in ("place", "has_log", "checks"):
        heads.append({key: value for key, value in fields.items() if key != name})
    for head in heads:
        data = _assemble(entry, json.dumps(head).encode(), b"{}")
        assert _damage(tmp_path / "entry", data, entry) is FindingKind.CORRUPT


@pytest.mark.parametrize(
    "head", [b"", b"[]", b"null", b"{", b"\xff\xfe", b"[" * 200_000, b'{"a":NaN}', b"1" * 9999]
)
def test_head_that_is_no_object_is_corrupt(tmp_path: Path, head: bytes) -> None:
    """Anything but a JSON object is refused, however deep or long."""
    assert (
        _damage(tmp_path / "entry", _assemble(build_entry(), head, b"{}"), build_entry())
        is FindingKind.CORRUPT
    )


@pytest.mark.parametrize(
    "detail",
    [b"", b"{}", b'{"key_fields":[["a"]],"build_log":"","tool_version":""}', b'{"key_fields":7}'],
)
def test_detail_of_other_types_is_corrupt(tmp_path: Path, detail: bytes) -> None:
    """A detail that cannot be parsed is refused when it is read."""
    entry = build_entry()
    read, _ = _read(tmp_path / "entry", _assemble(entry, encode_head(entry.head), detail), entry.key)
    with pytest.raises(EntryFormatError) as caught:
        read.detail()
    assert caught.value.damage is FindingKind.CORRUPT


@pytest.mark.parametrize("cap", ["HEAD_CAP", "DETAIL_CAP", "TOTAL_CAP"])
def test_an_entry_beyond_a_cap_is_neither_written_nor_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cap: str
) -> None:
    """The writer refuses the same sizes as readers do, with an error like the file system's."""
    data = encode(build_entry())
    monkeypatch.setattr(entry_format, cap, 1)
    with pytest.raises(OSError, match="larger than"):
        encode(build_entry())
    assert _damage(tmp_path / "entry", data, build_entry()) is FindingKind.CORRUPT


def test_error_survives_a_process_boundary() -> None:
    """The error with its damage can be sent back from a worker."""
    error = pickle.loads(pickle.dumps(EntryFormatError(FindingKind.CORRUPT, "why")))
    assert (error.damage, str(error)) == (FindingKind.CORRUPT, "why")


@pytest.mark.skipif(not hasattr(os, "pread"), reason="read() has a position of its own here")
def test_an_entry_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call of the system returns at most 2 GiB, and may return less."""
    pread, entry = os.pread, build_entry()
    monkeypatch.setattr(os, "pread", lambda fd, count, offset: pread(fd, min(count, 100), offset))
    assert _read(tmp_path / "entry", encode(entry), entry.key)[1] == entry.payload
    with pytest.raises(EntryFormatError) as caught:
        _read(tmp_path / "entry", encode(entry)[:-1], entry.key)
    assert caught.value.damage is FindingKind.TRUNCATED
