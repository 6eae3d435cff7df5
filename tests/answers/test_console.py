"""What a pipe gets without rich is what rich would have written there, byte for byte."""

import io
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from rich.console import Console

from gpucache.answers import bench_text as bench
from gpucache.answers import inspect
from gpucache.answers.bench import BenchCase
from gpucache.answers.console import show, write
from gpucache.answers.entries import Location
from gpucache.answers.grid import PIPE_WIDTH, Block, Column, Grid, Line, Pairs, plain
from gpucache.answers.inspect import CacheState
from gpucache.answers.lookup import Verdict

_PLACE = Location("cupy", "/tmp/a place/\u4e2d\u6587", "HOME", True, 1 << 20, ("it lies in /tmp; move it",))
_STATE = CacheState(_PLACE, 4, 32 << 10, 4, 2, 1, findings=("one is damaged",), beside_bytes=9)
_MISS = {"when_ns": 5, "program": "a.cl", "target": "t", "verdict": Verdict.NEVER_BUILT, "detail": "x"}


def _grid(*rows: tuple[str | Line, ...]) -> Grid:
    grid = Grid((Column("program"), Column("on disk", numeric=True), Column("why", prose=True)))
    for row in rows:
        grid.add(*row)
    return grid


BLOCKS: dict[str, list[Block]] = {
    "text": ["", "one", plain("two\nlines\n", "bold"), plain("[not] markup :smile: \x1b[31mred"), plain("")],
    "blanks": [plain("  before and after  "), plain("a\tb\tc"), plain("\n")],
    "a grid": [_grid(("a.cl", "1 KiB", "because"), ("longer.cl", "100 KiB", plain("red", "red")))],
    "no rows": [_grid()],
    "an empty column": [_grid(("a", "", "x"), ("b", "", ""))],
    "cells of several lines": [_grid(("a\nb", "1", "c"), ("d", "2", "e\n\nf"), ("g", "3", ""))],
    "wide characters": [_grid(("\u4e2d\u6587.cl", "1", "\u00e9"), ("e\u0301.cl", "22", "\U0001f600"))],
    "tabs in cells": [_grid(("a\tb", "1", "c\td"))],
    "pairs": [Pairs([("cache", "/a/b"), ("\u4e2d", "two\nlines"), ("size", " x ")])],
    "a state": list(inspect.state(_STATE)),
    "a state of another system": list(inspect.foreign_state(_STATE, [("A", "b")], {"T": "1"}, "no way")),
    "an overview": [*inspect.overview([_STATE, _STATE]), *inspect.overview([])],
    "misses": [*inspect.misses([_MISS], 10**9), *inspect.processes([{"hits": 1}], 9), *inspect.misses([], 1)],
}


def _piped(blocks: list[Block], writes: Callable[[io.TextIOWrapper], object]) -> bytes:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="utf-8", errors="surrogateescape")
    writes(stream)
    stream.flush()
    return raw.getvalue()


def _by_rich(blocks: list[Block]) -> bytes:
    def writes(stream: io.TextIOWrapper) -> None:
        write(Console(file=stream, width=PIPE_WIDTH, highlight=False, markup=False, emoji=False), blocks)

    return _piped(blocks, writes)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_pipe_gets_what_rich_would_write(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines, tables and pairs are the same, byte for byte, whichever way they are written."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    blocks = BLOCKS[name]
    assert _piped(blocks, lambda stream: show(stream, blocks)) == _by_rich(blocks)


def test_a_case_of_bench_is_the_same_too(cases: list[BenchCase]) -> None:
    """Where only rich can draw a part, as bars, the parts before and after it keep their order."""

    def blocks() -> Iterator[object]:
        return iter(list(bench.bench(cases, whole=True)))

    def by_rich(stream: io.TextIOWrapper) -> None:
        write(Console(file=stream, width=PIPE_WIDTH, highlight=False, markup=False, emoji=False), blocks())  # type: ignore[arg-type]

    piped = _piped([], lambda stream: show(stream, blocks()))  # type: ignore[arg-type]
    assert piped == _piped([], by_rich)


def test_colours_that_are_asked_for_come_from_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    """FORCE_COLOR colours a pipe as well."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert b"\x1b[31mred" in _piped([], lambda stream: show(stream, [plain("red", "red")]))


def test_a_pipe_of_ascii_gets_lines_of_ascii() -> None:
    """Where the rule of a table cannot be written, rich draws another."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    show(stream, BLOCKS["a grid"])
    stream.flush()
    assert b"---" in raw.getvalue()


def test_a_pipe_waits_for_no_rich() -> None:
    """Writing lines, tables and pairs imports nothing of rich."""
    program = (
        "import sys\nfrom gpucache.answers.console import show\n"
        "from gpucache.answers.grid import Column, Grid, Pairs, plain\n"
        "grid = Grid((Column('a'),))\ngrid.add('b')\n"
        "show(sys.stdout, [plain('x', 'bold'), grid, Pairs([('a', 'b')])])\n"
        "print(*(name for name in sys.modules if name.split('.')[0] == 'rich'))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["x", "a", "─", "b", "a  b", ""]
