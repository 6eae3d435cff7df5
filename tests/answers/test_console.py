"""Output to a pipe without rich equals that of a terminal of the same width, byte for byte."""

import io
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import pytest
from rich.console import Console

from gpucache.answers.console import PIPE_WIDTH, Block, Column, Grid, Line, Pairs, plain, show, write


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
}


def _piped(writes: Callable[[io.TextIOWrapper], object]) -> bytes:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="utf-8", errors="surrogateescape")
    writes(stream)
    stream.flush()
    return raw.getvalue()


@pytest.mark.parametrize("name", BLOCKS)
def test_a_pipe_gets_what_a_wide_terminal_gets(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines, tables and pairs are the same, byte for byte, with rich and without."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    blocks = BLOCKS[name]
    console = partial(Console, width=PIPE_WIDTH, highlight=False, markup=False, emoji=False)
    assert _piped(lambda stream: show(stream, blocks)) == _piped(lambda to: write(console(file=to), blocks))


def test_colours_that_are_asked_for_come_from_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    """FORCE_COLOR colours a pipe as well."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert b"\x1b[31mred" in _piped(lambda stream: show(stream, [plain("red", "red")]))


def test_a_pipe_of_ascii_gets_lines_of_ascii() -> None:
    """Where the rule of a table cannot be written, another is drawn."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    show(stream, BLOCKS["a grid"])
    stream.flush()
    assert b"---" in raw.getvalue()


def test_a_pipe_waits_for_no_rich() -> None:
    """Writing lines, tables and pairs imports nothing of rich."""
    program = (
        "import sys\nfrom gpucache.answers.console import show\n"
        "from gpucache.answers.console import Column, Grid, Pairs, plain\n"
        "grid = Grid((Column('a'),))\ngrid.add('b')\n"
        "show(sys.stdout, [plain('x', 'bold'), grid, Pairs([('a', 'b')])])\n"
        "print(*(name for name in sys.modules if name.split('.')[0] == 'rich'))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["x", "a", "─", "b", "a  b", ""]
