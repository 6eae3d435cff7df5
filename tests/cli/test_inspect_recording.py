"""``inspect --recording``: the contents of a recording, as text and as JSON."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpucache.recording.builds import Seen
from gpucache.recording.writing import Writer
from tests.recording.builds import ONE

if TYPE_CHECKING:
    from tests.cli.conftest import Run

_SIZES = frozenset({("twice", (8, 8)), ("twice", ()), ("thrice", (64,))})
_SEEN = Seen(_SIZES, compile_ns=7_000_000, first=(10**18, "solver -v"))


@pytest.fixture
def recording(tmp_path: Path) -> str:
    """Three builds of two programs, one of which failed."""
    writer = Writer(tmp_path / "recording", sources=False)
    writer.build(ONE, _SEEN, {})
    writer.build(replace(ONE, target="opencl:intel/" + "x" * 40), Seen(compile_ns=10**9), {})
    bad = replace(ONE, program="bad", source="d" * 64, options=("-DLONG=" + "y" * 60,))
    writer.build(bad, Seen(refused=True), {})
    return str(tmp_path / "recording")


def test_people_see_what_was_recorded(run: Run, recording: str) -> None:
    """Programs, options, targets, sizes and times are in rows, and a sentence reports the whole."""
    answer = run("inspect", "--recording", recording)
    assert answer.code == 0
    for told in ("twice", "-DN=2", "opencl:pocl/cpu", "thrice 64, twice driver's 8x8", "7.0 ms", "failed"):
        assert told in answer.out
    whole = "3 builds of 2 programs for 2 targets; 1 failed; 1.01 s of compiling; 3 without sources"
    assert whole in answer.out


def test_programs_read_what_was_recorded(run: Run, recording: str) -> None:
    """The document has each build with its observations."""
    document = run("inspect", "--recording", recording, "--json").document
    row = next(row for row in document["outcomes"] if row["recorded"] == ONE.digest)
    assert (row["program"], row["target"], row["options"]) == ("twice", "opencl:pocl/cpu", ["-DN=2"])
    assert {"kernel": "twice", "size": [8, 8]} in row["local_sizes"]
    assert (row["compile_ms"], row["command"], row["kept"]) == (7.0, "solver -v", False)
    assert document["summary"]["failed"] == 1


def test_damage_is_in_the_document(run: Run, recording: str, tmp_path: Path) -> None:
    """A line that cannot be parsed is reported by file and number, and the rest is shown."""
    (tmp_path / "recording" / "0.jsonl").write_bytes(b"{}\n")
    answer = run("inspect", "--recording", recording, "--json")
    [damage] = answer.document["summary"]["damage"]
    assert (damage["file"], damage["line"]) == ("0.jsonl", 1)
    assert len(answer.document["outcomes"]) == 3
