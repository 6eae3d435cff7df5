"""Lists of thousands of entries: they begin at once, take no memory, and none of their rows is broken."""

import io
from collections.abc import Iterator

import pytest
from rich.console import Console

from gpucache.answers import inspect
from gpucache.answers.console import PIPE_WIDTH, Grid, write
from gpucache.answers.entries import CacheEntry
from gpucache.answers.inspect import ROWS_IN_A_TABLE

ENTRY = CacheEntry("gpucache", "k", "/k", 4096, 0, 0, "p.cu", "cuda:sm_90", "cubin", "-DN=7")


@pytest.mark.parametrize("width", [80, PIPE_WIDTH])
def test_many_entries_are_lines_below_each_other(width: int) -> None:
    """Thousands of entries are printed row by row: aligned, unbroken, common values only once."""
    found = [("", ENTRY._replace(key=f"{number:012}")) for number in range(ROWS_IN_A_TABLE + 2)]
    file = io.StringIO()
    write(Console(file=file, width=width, color_system=None), inspect.entries(found, 0))
    lines = file.getvalue().splitlines()
    rows = [line for line in lines if "p.cu" in line]
    assert [row[:12] for row in rows] == [entry.key for _, entry in found]
    assert {len(row) for row in rows} == {len(rows[0])}
    assert ("cuda:sm_90" in rows[0]) is (width == PIPE_WIDTH)
    assert sum(line.startswith("key ") for line in lines) == 2
    assert lines[-1] == rows[-1] and rows[-1].split()[:3] == ["000000002001", "p.cu", "-DN=7"]


def test_a_list_without_end_is_drawn_in_tables() -> None:
    """Only one table is in memory at once; each row is in one, in the order of names."""
    found = (("", ENTRY._replace(key=f"{number:012x}")) for number in range(2 * inspect.ROWS_IN_A_TABLE + 1))
    drawn = list(inspect.entries(found, 0))
    assert [len(one.rows) for one in drawn if isinstance(one, Grid)] == [2000, 2000, 1]


def test_a_list_begins_before_all_of_it_is_read() -> None:
    """The first table is drawn once it is known whether another follows."""
    read: list[int] = []

    def found() -> Iterator[tuple[str, CacheEntry]]:
        for number in range(5 * inspect.ROWS_IN_A_TABLE):
            read.append(number)
            yield "", ENTRY._replace(key=f"{number:012x}")

    assert next(iter(inspect.entries(found(), 0)))
    assert len(read) <= 2 * inspect.ROWS_IN_A_TABLE
