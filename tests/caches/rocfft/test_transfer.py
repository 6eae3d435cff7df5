"""Databases made of others: which row wins, the same bytes for the same rows, and images of databases."""

import itertools
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from gpucache.caches import databases
from gpucache.caches.rocfft.database import CREATE
from gpucache.caches.rocfft.export import (
    Filters,
    Merged,
    image,
    merge,
    open_source,
    published,
    read_filters,
    restore,
    write_image,
)
from gpucache.errors import CacheUnusableError, FormatError, UsageError
from tests.caches.rocfft.build import (
    OTHER,
    SUM,
    Values,
    answer,
    code,
    database,
    dead_wal,
    execute,
    file_findings,
    live_wal,
    row,
    row_findings,
    trace,
)

ROWS = (
    row(OTHER, seconds=3),
    row(seconds=2),
    row(arch="gfx942", data=code("gfx942", size=20_000), seconds=1),
    row(version=60141133),
    row(total=bytes(32)),
)


def rows_of(path: Path) -> list[Values]:
    """All rows of a database in the order in which they are in it."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT * FROM cache_v1 ORDER BY rowid").fetchall()


def ordered(rows: Sequence[Values]) -> list[Values]:
    return sorted(rows, key=lambda one: (str(one[0]), str(one[1]), one[2], one[3]))


def test_the_rows_of_all_sources_are_there(tmp_path: Path) -> None:
    """A merged database has rocFFT's own schema and answers every lookup that a source answers."""
    first = database(tmp_path / "a.db", ROWS[:2])
    second = dead_wal(tmp_path / "b.db", ROWS[2:4])
    write_image(database(tmp_path / "c.db", ROWS[4:]), tmp_path / "c.image")
    before = trace(tmp_path)
    result = merge([first, second, tmp_path / "c.image"], tmp_path / "out.db")
    assert (result.written.total(), result.older, result.replaced, result.why.total()) == (5, 0, 0, 0)
    assert sorted(result.written.values()) == [1, 2, 2]
    assert all(answer(tmp_path / "out.db", one) == one[4] for one in ROWS)
    assert file_findings(tmp_path / "out.db") == row_findings(tmp_path / "out.db") == []
    with closing(sqlite3.connect(tmp_path / "out.db")) as connection:
        assert connection.execute("SELECT sql FROM sqlite_master WHERE type = 'table'").fetchone() == (
            CREATE,
        )
    (tmp_path / "out.db").unlink()
    assert trace(tmp_path) == before


def test_rows_lie_in_order_with_time_zero(tmp_path: Path) -> None:
    """Rows are written by their key, as rocFFT's own export writes them, unless times are to be kept."""
    source = database(tmp_path / "a.db", ROWS)
    merge([source], tmp_path / "out.db")
    merge([source], tmp_path / "times.db", keep_times=True)
    assert rows_of(tmp_path / "out.db") == [(*one[:5], 0) for one in ordered(ROWS)]
    assert rows_of(tmp_path / "times.db") == ordered(ROWS)


@pytest.mark.parametrize("keep_times", [False, True])
def test_the_same_rows_give_the_same_bytes(tmp_path: Path, keep_times: bool) -> None:
    """However rows are spread and ordered over sources, the result is the same byte for byte."""
    many = [*ROWS, *(row(f"kernel_{number}", data=code(size=number * 37)) for number in range(200))]
    results = []
    for turn, pieces in enumerate(([many], [many[::-1]], [many[1::2], many[::2][::-1]])):
        sources = [
            database(tmp_path / f"{turn}{number}.db", piece, wal=bool(number))
            for number, piece in enumerate(pieces)
        ]
        merge(sources, tmp_path / f"{turn}.out", keep_times=keep_times)
        results.append((tmp_path / f"{turn}.out").read_bytes())
    assert results[0] == results[1] == results[2]


def test_the_newest_row_of_a_key_wins(tmp_path: Path) -> None:
    """Of rows with one key the newest is taken, and the others are counted."""
    old = database(tmp_path / "a.db", [row(data=code(fill=b"\1"), seconds=1)])
    new = database(tmp_path / "b.db", [row(data=code(fill=b"\2"), seconds=2)])
    for number, sources in enumerate(itertools.permutations([old, new])):
        out = tmp_path / f"{number}.out"
        result = merge(sources, out)
        assert (result.written.total(), result.older) == (1, 1)
        assert answer(out, row()) == code(fill=b"\2")


def test_of_equally_new_rows_the_order_decides_nothing(tmp_path: Path) -> None:
    """Two rows with one key and time give the same result in either order."""
    one = database(tmp_path / "a.db", [row(data=code(fill=b"\1"))])
    other = database(tmp_path / "b.db", [row(data=code(fill=b"\2"))])
    merge([one, other], tmp_path / "1.out")
    merge([other, one], tmp_path / "2.out")
    assert (tmp_path / "1.out").read_bytes() == (tmp_path / "2.out").read_bytes()


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        (read_filters([("arch", "gfx942")]), 1),
        (read_filters([("hip_version", "6.2.41133")]), 4),
        (read_filters([("generator_sum", SUM.hex())]), 4),
        (read_filters([("arch", "gfx90a"), ("hip_version", "6.2.41133"), ("generator_sum", SUM.hex())]), 2),
    ],
)
def test_filters_take_a_part(tmp_path: Path, filters: Filters, count: int) -> None:
    """Only rows of the architectures, HIP versions and sums named are taken; the rest is counted."""
    result = merge([database(tmp_path / "a.db", ROWS)], tmp_path / "out.db", filters=filters)
    assert (result.written.total(), result.filtered) == (count, len(ROWS) - count)
    assert len(rows_of(tmp_path / "out.db")) == count


def test_unsound_rows_are_never_carried_on(tmp_path: Path) -> None:
    """Rows that no lookup can use are left out, and counted."""
    wrong = [row("a", data=b""), row("b", data=code("gfx908")), row("c", version="x"), row("d", total=b"")]
    result = merge([database(tmp_path / "a.db", [row(), *wrong])], tmp_path / "out.db")
    assert (result.written.total(), result.why.total()) == (1, 4)
    assert result.why.total() == 4
    assert {reason.partition(":")[0] for reason, _ in result.why.items()} == {"corrupt", "mislabelled"}


def test_the_reasons_are_counted_the_most_first(tmp_path: Path) -> None:
    """Of rows that are unsound for one reason there is one line."""
    wrong = [row("a", data=b""), row("b", data=code("gfx908")), row("c", data=b"")]
    result = merge([database(tmp_path / "a.db", [row(), *wrong])], tmp_path / "out.db")
    ((first, most), (_, least)) = result.why.most_common()
    assert (most, least, "has no code" in first) == (2, 1, True)


@pytest.mark.parametrize(
    ("rows", "filters", "words"),
    [
        (ROWS, read_filters([("arch", "gfx1")]), f"{len(ROWS)} are left out by the filters"),
        ([row("a", data=b"")], (), "1 are corrupt: it has no code"),
        ([], (), "the sources have no rows"),
    ],
)
def test_an_empty_database_is_not_made(
    tmp_path: Path, rows: Sequence[Values], filters: Filters, words: str
) -> None:
    """Where no row is taken the reason is reported, and nothing is published."""
    source = database(tmp_path / "a.db", rows)
    with pytest.raises(UsageError, match=words):
        merge([source], tmp_path / "out.db", filters=filters)
    assert [path.name for path in tmp_path.iterdir()] == ["a.db"]


def test_nothing_is_replaced(tmp_path: Path) -> None:
    """A file that is there is left as it is."""
    source = database(tmp_path / "a.db", ROWS)
    (tmp_path / "out.db").write_bytes(b"mine")
    with pytest.raises(UsageError, match="exists"):
        merge([source], tmp_path / "out.db")
    with pytest.raises(UsageError, match="exists"):
        write_image(source, tmp_path / "out.db")
    assert (tmp_path / "out.db").read_bytes() == b"mine"


def test_what_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    """A file that another program makes while ours is written stays, and ours leaves nothing behind."""
    out = tmp_path / "out.db"
    with pytest.raises(UsageError, match="exists"), published(out) as temporary:
        temporary.write_bytes(b"ours")
        out.write_bytes(b"theirs")
    assert out.read_bytes() == b"theirs"
    assert list(tmp_path.iterdir()) == [out]


def test_rows_are_added_to_a_database_that_is_there(tmp_path: Path) -> None:
    """Newer rows take the place of older ones, older and equally old ones do not, and the others stay."""
    mine = [row("kept", seconds=9), row("old", seconds=1), row("new", seconds=9), row("same", seconds=9)]
    theirs = [
        row("old", data=code(fill=b"\1"), seconds=5),
        row("new", data=code(fill=b"\1"), seconds=5),
        row("same", data=code(fill=b"\1"), seconds=9),
        row("more"),
    ]
    out = database(tmp_path / "out.db", mine)
    result = merge([database(tmp_path / "a.db", theirs)], out, keep_times=True, into_existing=True)
    assert (result.written.total(), result.replaced, result.older) == (2, 1, 2)
    assert {one[0]: one[5] for one in rows_of(out)} == {
        "kept": 9,
        "old": 5,
        "new": 9,
        "same": 9,
        "more": row()[5],
    }
    assert answer(out, row("new")) == answer(out, row("same")) == code()


def test_adding_to_a_locked_database_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another program writes nothing is added, and that is said."""
    monkeypatch.setattr(databases, "BUSY_SECONDS", 0.0)
    out = database(tmp_path / "out.db", [row("mine")])
    source = database(tmp_path / "a.db", ROWS)
    with closing(sqlite3.connect(out, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(CacheUnusableError, match="locked"):
            merge([source], out, into_existing=True)
    assert [one[0] for one in rows_of(out)] == ["mine"]


def test_nothing_is_added_to_what_is_not_rocffts(tmp_path: Path) -> None:
    """A database without the table, or with triggers on it, is left alone."""
    source = database(tmp_path / "a.db", ROWS)
    others = database(tmp_path / "out.db", schema="CREATE TABLE bookmarks (a)")
    with pytest.raises(FormatError, match="left unchanged"):
        merge([source], others, into_existing=True)


def test_a_source_that_is_damaged_is_refused(tmp_path: Path) -> None:
    """Junk, cut files and databases of others end in a sentence, and nothing is made."""
    (tmp_path / "junk.db").write_bytes(b"junk")
    data = database(tmp_path / "whole.db", [row(f"kernel_{number}") for number in range(200)]).read_bytes()
    (tmp_path / "cut.db").write_bytes(data[:20_000])
    database(tmp_path / "others.db", schema="CREATE TABLE t (a)")
    (tmp_path / "empty.db").touch()
    for name in ("junk.db", "cut.db", "others.db", "empty.db"):
        with pytest.raises(FormatError):
            merge([tmp_path / name], tmp_path / "out.db")
    assert not (tmp_path / "out.db").exists()
    assert not list(tmp_path.glob(".gpucache-*"))


def test_what_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    """No source, one twice, one that is missing, one that is the result: each ends in a sentence."""
    source = database(tmp_path / "a.db", ROWS)
    out = tmp_path / "out.db"
    for sources, place in (([], out), ([source, source], out), ([tmp_path / "no"], out), ([source], source)):
        with pytest.raises(UsageError):
            merge(sources, place)
    with pytest.raises(UsageError):
        merge([source], source, into_existing=True)
    with pytest.raises(UsageError):
        merge([source], out, into_existing=True)


def test_a_place_that_takes_no_file_is_told(tmp_path: Path) -> None:
    """A directory that does not exist ends in a sentence."""
    with pytest.raises(CacheUnusableError, match="cannot be made"):
        merge([database(tmp_path / "a.db", ROWS)], tmp_path / "no" / "out.db")


@pytest.mark.parametrize("wal", [False, True])
def test_an_image_is_what_rocfft_can_deserialise(tmp_path: Path, wal: bool) -> None:
    """An image opens in memory with all rows, also that of a database in write-ahead mode."""
    data = image(database(tmp_path / "a.db", ROWS, wal=wal))
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(data)
        assert connection.execute("SELECT count(*) FROM cache_v1").fetchone() == (len(ROWS),)


def test_an_image_has_what_the_log_holds(tmp_path: Path) -> None:
    """Rows that another program has only written to its log are in the image."""
    with closing(live_wal(tmp_path / "a.db", ROWS)):
        before = trace(tmp_path)
        data = image(tmp_path / "a.db")
        assert trace(tmp_path) == before
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(data)
        assert connection.execute("SELECT count(*) FROM cache_v1").fetchone() == (len(ROWS),)


def test_an_image_becomes_a_database_again(tmp_path: Path) -> None:
    """A restored database has every row, and is sound; also of an image whose header says otherwise."""
    source = database(tmp_path / "a.db", ROWS, wal=True)
    size = write_image(source, tmp_path / "a.image")
    (tmp_path / "raw.image").write_bytes(source.read_bytes())
    for name in ("a.image", "raw.image"):
        assert restore(tmp_path / name, tmp_path / f"{name}.db") == size
        assert file_findings(tmp_path / f"{name}.db") == []
        assert ordered(rows_of(tmp_path / f"{name}.db")) == ordered(ROWS)


def test_a_damaged_image_is_not_restored(tmp_path: Path) -> None:
    """An image that is junk, cut, damaged or not rocFFT's makes no database."""
    data = bytearray(image(database(tmp_path / "a.db", [row(f"k{number}") for number in range(200)])))
    images = [b"", b"junk" * 100, bytes(data[:9000]), image_of_others(tmp_path)]
    data[2 * 4096 : 3 * 4096] = bytes(4096)
    for number, wrong in enumerate([*images, bytes(data)]):
        path = tmp_path / f"{number}.image"
        path.write_bytes(wrong)
        with pytest.raises(FormatError):
            restore(path, tmp_path / "out.db")
    with pytest.raises(UsageError):
        restore(tmp_path / "missing", tmp_path / "out.db")
    assert not (tmp_path / "out.db").exists()


def image_of_others(folder: Path) -> bytes:
    return database(folder / "others.db", schema="CREATE TABLE t (a)").read_bytes()


def test_an_image_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database too large for an image is reported with the remedy."""
    monkeypatch.setattr("gpucache.caches.rocfft.export.LIMIT_BYTES", 4096)
    with pytest.raises(UsageError, match="merge a part"):
        image(database(tmp_path / "a.db", ROWS))


def test_a_source_that_changes_is_told(tmp_path: Path) -> None:
    """A row that another program replaces while rows are copied ends in a sentence, not in another row."""
    path = database(tmp_path / "a.db", [row()])
    done = Merged({path: open_source(path)})
    (taken,) = done.taken(path, ())
    execute(path, "UPDATE cache_v1 SET timestamp = 7")
    with pytest.raises(CacheUnusableError, match="changes while"):
        done.code(taken)
