"""One description of a table at the widths of terminals and of pipes."""

import io

import pytest
from rich.console import Console

from gpucache.answers.console import PIPE_WIDTH, Column, Grid, shortened, write

INTEL = "opencl:intel-r-opencl/intel-r-xeon-r-processor"
POCL = "opencl:portable-computing-language/pthread-skylake-avx512-intel-xeon-processor"
COLUMNS = (
    Column("key", whole=True),
    Column("program"),
    Column("variant", prose=True, spare=1),
    Column("target", shared=True),
    Column("on disk", numeric=True, spare=2),
    Column("age", numeric=True, spare=3),
)


def _lines(grid: Grid, width: int) -> list[str]:
    file = io.StringIO()
    write(Console(width=width, color_system=None, file=file, highlight=False), [grid])
    lines = file.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    return lines


def _grid(*targets: str, program: str = "nbody.cl", variant: str = "T=float") -> Grid:
    grid = Grid(COLUMNS)
    for target in targets:
        grid.add("0123456789ab", program, variant, target, "178 KiB", "12 min")
    return grid


@pytest.mark.parametrize("width", [80, 120, 200])
def test_what_all_rows_share_is_said_once(width: int) -> None:
    """The common target of all rows is above the table and in none of its rows."""
    lines = _lines(_grid(INTEL, INTEL), width)
    assert lines[0] == f"target: {INTEL}"
    assert sum(INTEL in line for line in lines) == 1


def test_long_targets_become_headings() -> None:
    """Rows whose target is too long for a column are below it as a heading, and no line is broken."""
    lines = _lines(_grid(INTEL, POCL, INTEL), 80)
    assert [line for line in lines if line in (INTEL, POCL)] == [INTEL, POCL]
    assert sum(line.startswith("0123456789ab  nbody.cl  T=float") for line in lines) == 3


def test_columns_go_before_anything_is_broken() -> None:
    """The least important columns go first, and only as many as necessary."""
    program = "kernels/linear-algebra/blocked-multiplication.cl"
    head, _, _group, row, *_ = _lines(_grid("a", "b", program=program), 80)
    assert head.split() == ["key", "program", "variant", "on", "disk"]
    assert row.split()[:3] == ["0123456789ab", program, "T=float"]
    whole = Grid(COLUMNS, every=True)
    for cells in _grid("a", "b", program=program).rows:
        whole.add(*cells)
    assert "age" in _lines(whole, 80)[0]


def test_long_sentences_are_broken_over_lines() -> None:
    """A column of sentences is broken over lines that are wide enough to be read."""
    lines = _lines(_grid("a", "b", variant="-D A=1 " * 10), 80)
    assert "variant" in lines[0] and len([line for line in lines if "-D A=1" in line]) < 8


@pytest.mark.parametrize("forced", [False, True])
def test_every_row_is_whole_in_a_pipe(forced: bool) -> None:
    """In a pipe each row has every column on one line, however long, and no line ends in blanks."""
    file = io.StringIO()
    long = "x" * 500
    grid = _grid(INTEL, INTEL, variant=long)
    grid.add("0123456789ab", "a.cl", "", INTEL, "", "")
    write(Console(file=file, width=PIPE_WIDTH, force_terminal=forced, color_system=None), [grid])
    lines = file.getvalue().splitlines()
    assert sum(long in line and INTEL in line and "178 KiB" in line for line in lines) == 2
    assert all(line == line.rstrip() for line in lines)


def test_columns_without_a_cell_are_left_out() -> None:
    """A column that is empty in every row takes no room."""
    assert "variant" not in _lines(_grid("a", "b", variant=""), 80)[0]


@pytest.mark.parametrize(
    ("path", "width", "shown"),
    [
        ("/home/ada/.cache/pocl", 21, "~/.cache/pocl"),
        ("/home/adam/.cache/pocl", 22, "/home/adam/.cache/pocl"),
        ("/home/ada/.cache/pocl", 10, "~/.\N{HORIZONTAL ELLIPSIS}e/pocl"),
        ("/home/adam/.cache", 10, "/ho\N{HORIZONTAL ELLIPSIS}.cache"),
    ],
)
def test_a_path_is_shortened_by_its_home_and_then_in_its_middle(
    path: str, width: int, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The home always, the middle if need be; another user's directory is not abbreviated as one's own."""
    monkeypatch.setenv("HOME", "/home/ada")
    assert shortened(path, width) == shown


def test_a_place_is_shortened_on_a_terminal_and_whole_in_a_pipe() -> None:
    """The other columns keep their width."""
    grid = Grid((Column("cache", whole=True), Column("place", place=True)))
    grid.add("pyopencl", "/a/" + "b" * 100 + "/c")
    assert any("\N{HORIZONTAL ELLIPSIS}" in line and line.endswith("/c") for line in _lines(grid, 40))
    assert "b" * 100 in _lines(grid, PIPE_WIDTH)[-1]


def test_a_long_cell_in_a_pipe_fills_up_no_other() -> None:
    """Its own row is whole, and the others do not end far to the right."""
    grid = Grid((Column("reason"), Column("age")))
    grid.add("x" * 500, "now")
    grid.add("short", "1 min")
    head, rule, long, short = _lines(grid, PIPE_WIDTH)
    assert long == "x" * 500 + "  now" and short.endswith("1 min")
    assert max(map(len, (head, rule, short))) < 80
