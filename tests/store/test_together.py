"""Entries that C reads many at once are those that Python reads one by one."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from gpucache.folders import Folder
from gpucache.keys import cache_key
from gpucache.model import Entry, EntryDetail, KeyField
from gpucache.store import scan, together
from gpucache.store.directory import DirectoryStore
from gpucache.store.format import HEADER, encode
from gpucache.store.trust import open_trusted
from tests.store.conftest import build_entry, entry_path, put

pytestmark = pytest.mark.skipif(together._look() is None, reason="the C library is not built")


def _true(seed: str, *fields: KeyField, log: str = "") -> Entry:
    """An entry under the key of its fields."""
    detail = EntryDetail((KeyField("seed", seed), *fields), log, "1.0", (("from", "a\\b"),))
    payload = f".version 9.0\n.target sm_90\n// {seed}\n".encode()
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
