"""The report of bench on a terminal, whatever its width."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from gpucache.answers import bench as bench
from gpucache.answers.bench import BenchCase, BenchVerdict
from gpucache.answers.console import write
from tests.answers.cases import CASES, COMMAND, PROGRAM


def _text(*cases: BenchCase, width: int = 80, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="strict", newline="")
    write(Console(width=width, color_system=None, file=file, highlight=False), bench.bench(cases, whole=True))
    file.flush()
    text = raw.getvalue().decode(encoding)
    assert [line for line in text.splitlines() if len(line) > width] == []
    return text


@pytest.mark.parametrize("width", [40, 120, 240])
def test_nothing_is_lost_at_any_width(width: int) -> None:
    """No line is wider than the terminal, and every sentence of a case is printed."""
    told = "".join(_text(*CASES, width=width).split())
    for sentence in (*PROGRAM.notes, *COMMAND.notes, CASES[2].reason, CASES[2].program):
        assert "".join(sentence.split()) in told


@pytest.mark.parametrize(("verdict", "colour"), [("degraded", "\x1b[33m"), ("failed", "\x1b[31m")])
def test_doubt_and_failure_are_coloured(verdict: str, colour: str) -> None:
    """On a terminal doubt is yellow and failure red."""
    file = io.StringIO()
    console = Console(
        width=80, color_system="standard", force_terminal=True, no_color=False, highlight=False, file=file
    )
    write(console, bench.bench([replace(PROGRAM, verdict=BenchVerdict(verdict), reason="why")], whole=True))
    assert f"{colour}{verdict}: why" in file.getvalue()
