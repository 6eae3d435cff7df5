"""Entries that C reads many at once are those that Python reads one by one."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import xxhash

from gpucache.folders import Folder
from gpucache.keys import cache_key
from gpucache.model import Check, Entry, EntryDetail, EntryHead, KeyField
from gpucache.store import description, scan, together
from gpucache.store.description import decode_head
from gpucache.store.directory import DirectoryStore
from gpucache.store.format import HEADER, encode
from gpucache.store.trust import open_trusted
from tests.store.conftest import build_entry, entry_path, put

pytestmark = pytest.mark.skipif(together._look() is None, reason="the C library is not built")


def _true(seed: str, *fields: KeyField, log: str = "", payload: bytes = b"") -> Entry:
    """An entry under the key of its fields."""
    detail = EntryDetail((KeyField("seed", seed), *fields), log, "1.0", (("from", "a\\b"),))
    payload = payload or f".version 9.0\n.target sm_90\n// {seed}\n".encode()
    made = build_entry(seed, payload)
    head = made.head._replace(artifact_kind="ptx", target="cuda:compute_90", language="cuda-c++")
    return Entry(cache_key(detail.key_fields), head, detail, payload)


@pytest.fixture
def filled(store: DirectoryStore) -> DirectoryStore:
    """True entries: with a long head, with an escape in a key and in a log, and with much in them."""
    several = [
        _true("plain"),
        _true("none", log='it says "no"\n\tin \u00e9'),
        _true("quoted", KeyField("option", '-D"A"')),
        _true("accented", KeyField("option", "\u00e9")),
        _true("many", *(KeyField("option", f"-D{number}") for number in range(300))),
    ]
    long = _true("long")
    several.append(long._replace(head=long.head._replace(options=("-D" + "x" * 5000,))))
    large = _true("large")
    payload = large.payload + b"// x\n" * (1 << 18)
    digest = build_entry("large", payload).head.payload_sha256
    several.append(large._replace(payload=payload, head=large.head._replace(payload_sha256=digest)))
    for one in several:
        store.publish(one)
    return store


def _plain(number: int) -> Entry:
    """An entry of an own program with an option, and else like all of one toolchain."""
    made = _true(f"plain {number}", payload=b".version 9.0\n.target sm_90\n.entry a() {ret; }\n")
    head = made.head._replace(program=f"a/{number}.cu", options=(f'-D"{number}\t\u00e9"',), lowered_names={})
    return made._replace(head=head._replace(compile_ns=number, local_sizes=(), place=f"{number:064x}"))


def _by_python(monkeypatch: pytest.MonkeyPatch, read: Callable[[], object]) -> list[object]:
    with monkeypatch.context() as patch:
        patch.setattr(together, "LEAST", 1 << 30)
        return list(read())  # type: ignore[call-overload, no-any-return]


def _same(store: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> list[scan.Judged]:
    """The entries as C and Python read them, which must be equal."""
    monkeypatch.setattr(together, "LEAST", 1)
    assert list(store.scan()) == _by_python(monkeypatch, store.scan)
    found = list(store.scan_whole())
    assert found == _by_python(monkeypatch, store.scan_whole)
    return found


def test_true_entries_are_read_alike(filled: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads, identities and sizes are the same, and nothing is found."""
    found = _same(filled, monkeypatch)
    assert [claims for _, claims in found] == [()] * 7


def test_python_reads_none_that_is_plainly_sound(
    filled: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file is opened once by C: again only for a long head, a key with an escape, or a large entry."""
    monkeypatch.setattr(together, "LEAST", 1)
    opened: list[str] = []

    def noted(folder: Folder, name: str) -> AbstractContextManager[tuple[int, os.stat_result]]:
        opened.append(name)
        return open_trusted(folder, name)

    monkeypatch.setattr("gpucache.store.scan.open_trusted", noted)
    programs = {one.name: one.head.program for one in filled.scan() if one.head}
    assert len(programs) == 7 and [programs[name] for name in opened] == ["program-long"]
    opened.clear()
    list(filled.scan_whole())
    wanted = ["program-accented", "program-large", "program-quoted"]
    assert sorted(programs[name] for name in opened) == wanted


@pytest.mark.parametrize("place", ["header", "key", "head", "detail", "padding", "payload"])
def test_a_changed_byte_is_found_by_both(
    filled: DirectoryStore, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Wherever it is, the finding is the one that Python has."""
    path = entry_path(filled, _true("plain"))
    data = bytearray(path.read_bytes())
    _, _, head, detail, payload, *_ = HEADER.unpack_from(data)
    start = len(data) - payload
    assert start > HEADER.size + head + detail, "there is no padding to change"
    at = {"header": 8, "key": 48, "head": HEADER.size + 1, "detail": HEADER.size + head + 1}
    at |= {"padding": start - 1, "payload": start + 3}
    data[at[place]] ^= 1
    put(path, bytes(data))
    found = _same(filled, monkeypatch)
    assert sum(claims is None for _, claims in found) == 1


def test_other_faults_are_found_by_both(filled: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """False labels, keys and digests, entries elsewhere, cut ones, links and files that others may write."""
    plain = _true("plain")
    wrong = plain.head._replace(target="cuda:compute_80")
    put(entry_path(filled, plain), encode(plain._replace(head=wrong)))
    other = _true("quoted", KeyField("option", '-D"A"'))
    put(entry_path(filled, other), encode(other._replace(detail=EntryDetail((KeyField("a", "b"),)))))
    path = entry_path(filled, _true("accented", KeyField("option", "\u00e9")))
    path.write_bytes(path.read_bytes()[:-1])
    false = build_entry("a")
    filled.publish(false._replace(head=false.head._replace(payload_sha256="0" * 64)))
    moved = entry_path(filled, build_entry("b"))
    put(moved, encode(build_entry("c")))
    link = entry_path(filled, build_entry("d"))
    link.parent.mkdir(0o700, exist_ok=True)
    link.symlink_to(path)
    written = entry_path(filled, build_entry("e"))
    put(written, encode(build_entry("e"))).chmod(0o666)
    put(entry_path(filled, build_entry("f")), b"")
    found = _same(filled, monkeypatch)
    assert sum(claims is None for _, claims in found) == 6
    assert sum(bool(claims) for _, claims in found) == 2


def test_entries_of_one_toolchain_cost_one_parsed_head(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each further one costs Python no JSON of its head and no look at its PTX."""
    for number in range(20):
        store.publish(_plain(number))
    assert [claims for _, claims in _same(store, monkeypatch)] == [()] * 20
    parsed: list[bytes] = []

    def noted(data: bytes) -> EntryHead:
        parsed.append(data)
        return decode_head(data)

    monkeypatch.setattr("gpucache.store.description.decode_head", noted)
    monkeypatch.setattr("gpucache.store.scan.decode_head", noted)
    monkeypatch.setattr("gpucache.payload.describe", None)
    description._frame.cache_clear()
    assert len(list(store.scan_whole())) == len(list(store.scan())) == 20
    assert len(parsed) == 1


_UNUSUAL: list[dict[str, Any]] = [
    {"program": 'a"b'},
    {"program": "\u00e9\udc80"},
    {"program": ""},
    {"place": "\\"},
    {"payload_sha256": "0" * 63},
    {"options": ()},
    {"options": ("-DA", "", "]")},
    {"compile_ns": 0},
    {"compile_ns": 0, "created_ns": 0},
    {"created_ns": (1 << 63) - 1},
    {"created_ns": 1 << 63},
    {"located": True, "has_log": True, "checks": "sync", "variant": "v"},
    {"lowered_names": {"created_ns": "_Z"}},
    {"local_sizes": ((16,),)},
    {"failures": (Check(1, "a", "b", "c"),)},
    {"target": ',"target":'},
    {"toolchain": (("created_ns", "1"), ("a", "\u00e9")), "toolchain_identity": ("a",)},
]


@pytest.mark.parametrize("unusual", _UNUSUAL, ids=str)
def test_unusual_heads_are_read_alike(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch, unusual: dict[str, Any]
) -> None:
    """Values that a head has rarely, or never."""
    plain = _plain(0)
    put(entry_path(store, plain), encode(plain._replace(head=plain.head._replace(**unusual))))
    store.publish(_plain(1))
    _same(store, monkeypatch)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"compile_ns":1', b'"compile_ns":01'),
        (b'"compile_ns":1', b'"compile_ns":1.0'),
        (b'"compile_ns":1', b'"compile_ns":-1'),
        (b'"compile_ns":1', b'"compile_ns":99999999999999999999'),
        (b',"target":', b',"target":"cuda:compute_90","program":"other","target":'),
        (b',"target":', b',"failures":[],"target":'),
        (b',"variant":""', b',"created_ns":7,"variant":""'),
        (b',"variant":""', b',"variant":0'),
        (b',"variant":""}', b',"variant":""} '),
        (b'"options":[', b'"options":[["a"],'),
        (b'"options":[', b'"options":["\\u12",'),
    ],
)
def test_heads_that_gpucache_does_not_write_are_read_alike(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch, old: bytes, new: bytes
) -> None:
    """A field that is there twice, numbers of other forms, and no JSON at all."""
    plain = _plain(1)
    data = encode(plain)
    _, _, head, detail, payload, *_ = HEADER.unpack_from(data)
    text, told = (
        data[HEADER.size : HEADER.size + head],
        data[HEADER.size + head : HEADER.size + head + detail],
    )
    assert text.count(old) == 1
    text = text.replace(old, new)
    size = -(-(HEADER.size + len(text) + detail) // 64) * 64
    lengths = (len(text), detail, payload, size + payload)
    begin = HEADER.pack(b"GPUCACHE", 1, *lengths, 0, bytes.fromhex(plain.key.hex), b"", b"")[:80]
    sums = xxhash.xxh3_128_digest(begin + text + told) + data[96:112]
    put(entry_path(store, plain), (begin + sums + text + told).ljust(size, b"\0") + plain.payload)
    store.publish(_plain(2))
    _same(store, monkeypatch)


_PTX = b".version 8.5\n.target sm_90a, debug\n.visible .entry k(.param .u64 p)\n{\n\tret;\n}\n"


@pytest.mark.parametrize(
    "payload",
    [
        _PTX,
        b"//\n// a { comment\n" + _PTX + b"\0",
        _PTX + b"// at the end {",
        _PTX + b" \r\n\t",
        _PTX + b"/",
        _PTX + b"*",
        _PTX + b'"}',
        _PTX + b"/* } */",
        _PTX + b"{",
        _PTX + b")",
        _PTX + b"ret",
        _PTX + b"\0\0",
        _PTX[:20] + b"\0" + _PTX[20:],
        _PTX[:-3],
        _PTX[:30],
        _PTX[:12],
        b"",
        b"//",
        b"/* .version */ " + _PTX,
        _PTX.replace(b"sm_90a", b"compute_90"),
        _PTX.replace(b"sm_90a", b"sm_90ab"),
        _PTX.replace(b"sm_90a", b"sm_90000"),
        _PTX.replace(b"sm_90a", b"sm_a"),
        _PTX.replace(b"sm_90a,", b"sm_90a//"),
        _PTX.replace(b"sm_90a, debug", b"sm_90a"),
        _PTX.replace(b"8.5", b"8"),
        _PTX.replace(b"8.5", b"8.5,"),
        _PTX.replace(b"8.5", b"1234.5"),
        _PTX.replace(b".version ", b".version"),
        _PTX.replace(b".target", b".address_size 64\n.target"),
        _PTX.replace(b"\n", b"\r\n"),
        _PTX.replace(b"ret", b"a / b // c"),
        _PTX + b".address_size 64",
    ],
    ids=repr,
)
@pytest.mark.parametrize("target", ["cuda:compute_90", "cuda:compute_90a"])
def test_ptx_is_judged_alike(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch, payload: bytes, target: str
) -> None:
    """Whole, cut and of other architectures: C leaves to Python whatever is not plainly sound."""
    for seed in ("a", "b"):
        made = _true(seed, payload=payload)._replace(payload=payload)
        digest = build_entry(seed, payload).head.payload_sha256
        store.publish(made._replace(head=made.head._replace(target=target, payload_sha256=digest)))
    _same(store, monkeypatch)
