"""Rows and memos beside the entries: small ones in one file, others in their own."""

import operator
import struct
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import xxhash

from gpucache.model import Entry
from gpucache.serve.index import Answered, Reference, row_of
from gpucache.serve.wire import Kind
from gpucache.store import records
from gpucache.store.directory import DirectoryStore
from gpucache.store.records import FILE_ROWS, Row, encode, rows_of
from tests.store.conftest import build_entry


def _row(question: int, body: bytes = b"a") -> Row:
    return Row(1, question, struct.pack("<Q", xxhash.xxh64_intdigest(body)) + body)


def _keep(store: DirectoryStore, row: Row) -> bool:
    return store.rows.keep(row.name, lambda before: [row, *before])


def _own(store: DirectoryStore) -> list[str]:
    return store.rows.names()


def test_small_rows_share_a_file(store: DirectoryStore) -> None:
    """The rows of a question are found there, and no others."""
    for number in range(5):
        assert _keep(store, _row(number))
    assert _own(store) == [] and [path.name for path in store.root.rglob("*.row")] == ["records.row"]
    assert [store.rows.of(_row(number).name) for number in range(6)] == [
        *([_row(number)] for number in range(5)),
        [],
    ]
    assert sorted(store.rows.each()) == [_row(number) for number in range(5)]


def test_a_large_row_and_one_too_many_have_their_own_files(store: DirectoryStore) -> None:
    """None is lost; where all rows of a question become large, none of them stays among the small ones."""
    large = _row(0, bytes(8192))
    assert _keep(store, _row(0)) and _keep(store, large)
    assert store.rows.of(large.name) == [large, _row(0)]
    assert not rows_of((store.root / "v1" / "records.row").read_bytes())
    for number in range(1, FILE_ROWS + 3):
        assert _keep(store, _row(number))
    assert _own(store) == [_row(number).name for number in (0, FILE_ROWS + 1, FILE_ROWS + 2)]
    assert all(store.rows.of(_row(number).name) for number in range(FILE_ROWS + 3))


def test_rows_of_many_questions_are_replaced_at_once(store: DirectoryStore) -> None:
    """Those that no longer fit have their own files; a question without rows is gone."""
    assert _keep(store, _row(0))
    many = [_row(number) for number in range(1, FILE_ROWS + 3)]
    chosen = [(row.name, partial(operator.add, [row])) for row in many]
    assert store.rows.keep_all([(_row(0).name, lambda _: []), *chosen]) == {row.name for row in many}
    assert _own(store) == [row.name for row in many[FILE_ROWS:]]
    assert [store.rows.of(row.name) for row in (_row(0), *many)] == [[], *([row] for row in many)]


def test_a_row_with_its_own_file_moves_to_the_small_ones(store: DirectoryStore) -> None:
    """As older gpucaches wrote it."""
    store.rows.put(_row(1).name, encode([_row(1)]))
    assert store.rows.of(_row(1).name) == [_row(1)]
    assert _keep(store, _row(1, b"b"))
    assert store.rows.of(_row(1).name) == [_row(1, b"b"), _row(1)] and _own(store) == []


def test_processes_that_write_at_once_lose_no_row(root: Path) -> None:
    """Each takes the lock; without it a row has its own file."""
    with ThreadPoolExecutor(8) as threads:
        rows = [_row(number) for number in range(64)]
        kept = threads.map(lambda row: _keep(DirectoryStore(root, writable=True), row), rows)
        assert all(kept)
    store = DirectoryStore(root, writable=True)
    assert [store.rows.of(row.name) for row in rows] == [[row] for row in rows]


def test_without_the_lock_a_row_has_its_own_file(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a file system without locks."""
    monkeypatch.setattr("gpucache.store.lock._try", lambda *_: None)
    monkeypatch.setattr(records, "_WAIT_S", 0.0)
    assert _keep(store, _row(1))
    assert _own(store) == [_row(1).name] and store.rows.of(_row(1).name) == [_row(1)]


def test_a_damaged_record_harms_no_other(store: DirectoryStore) -> None:
    """Of many in one file only the damaged one is lost."""
    for number in range(3):
        _keep(store, _row(number, b"body %d" % number))
    file = store.root / "v1" / "records.row"
    file.write_bytes(file.read_bytes().replace(b"body 1", b"body x"))
    assert [len(store.rows.of(_row(number).name)) for number in range(3)] == [1, 0, 1]


def test_rows_that_share_a_record_are_refused() -> None:
    """Rows together are never larger than their file, so a small file takes little memory."""
    front, row = struct.Struct("<8sIIQ8x"), struct.Struct("<QQQQ")
    magic, version, _, _ = front.unpack_from(encode([_row(1)]))
    record = _row(1, bytes(200)).record
    place = front.size + 2 * row.size
    rows = row.pack(1, 1, place, len(record)) + row.pack(2, 2, place, len(record))
    assert rows_of(front.pack(magic, version, 2, place + len(record)) + rows + record) is None


def test_rows_and_memos_leave_each_other_alone(store: DirectoryStore) -> None:
    """A memo is no row, though its name may begin with the digits of a question."""
    _keep(store, _row(1))
    store.remember(f"{1:016x}".ljust(64, "0"), b"data")
    assert store.rows.of(_row(1).name) == [_row(1)] == list(store.rows.each())
    assert store.rows.keep(_row(1).name, lambda _: []) is False
    assert (store.rows.of(_row(1).name), store.recall(f"{1:016x}".ljust(64, "0"))) == ([], b"data")


def _of_entry(entry: Entry, source: bytes = b"kernel") -> Row:
    """The row of a build that the entry answers."""
    question = (b"1", b"/", b"", b"-O1", source, b"0")
    reference = Reference(1, entry.key, bytes(16), 0)
    return row_of(Answered("a", Kind.BUILD, question, (b"", b"", b""), (), references=(reference,)))


def test_an_eviction_that_leaves_an_entry_leaves_its_row(store: DirectoryStore) -> None:
    """However small the limit; the row of a removed entry goes with it, in either form."""
    stays, goes = build_entry("a"), build_entry("b")
    rows = [_of_entry(stays), _of_entry(goes, b"other"), _of_entry(goes, bytes(8192))]
    for one in (stays, goes):
        store.publish(one)
    for row in rows:
        _keep(store, row)
    store.rows.put(rows[2].name, encode([rows[2]]))
    store.remember("c" * 64, b"data")
    [gone] = [one for one in store.scan() if one.key == goes.key]
    assert store.remove(gone, "--program") is None
    store.sweep(16 << 10)
    assert list(store.rows.each()) == rows[:1]
    assert store.recall("c" * 64) == b"data"
    store.sweep(0, "--all")
    assert list(store.rows.each()) == []
