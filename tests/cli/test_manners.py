"""Options that contradict each other are refused, and -v says more wherever it is taken."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpucache.cli import main

if TYPE_CHECKING:
    from tests.cli.conftest import Run


@pytest.mark.parametrize(
    "words",
    [
        ["inspect", "--quiet", "--verbose"],
        ["--verbose", "inspect", "-q"],
        ["inspect", "--why", "--list", "x.cl"],
        ["inspect", "--misses", "--extract", "x.bin"],
        ["inspect", "--misses", "x.cl"],
        ["warm", "x.cl", "--check", "--shared"],
        ["warm", "x.cl", "--check", "--retry"],
        ["devices", "--save", "x.json", "--compare", "a.json", "b.json"],
        ["export", "futhark", "x.cache", "x.cu", "-v"],
    ],
)
def test_options_that_contradict_each_other_are_refused(run: Run, words: list[str]) -> None:
    """What cannot both be meant is a usage error that names the options, before anything is done."""
    answer = run(*words)
    options = [word for word in words if word.startswith("--")]
    assert answer.code == 2 and (not options or any(option in answer.err for option in options))


@pytest.mark.parametrize(
    "words", [["devices"], ["verify"], ["inspect", "--list"], ["evict", "--all", "--yes"]]
)
def test_verbose_says_more(run: Run, cache: Path, words: list[str]) -> None:
    """Each verb says more with -v: toolchains, sound entries, whole keys, each entry that went."""
    told = run(*words, "-v").out
    assert any(part in told for part in ("platform version: ", ": sound", " was removed: ")) or any(
        len(word) == 64 for word in told.split()
    )


def test_a_missing_reason_that_many_share_is_told_once(run: Run, root: Path) -> None:
    """Programs that were never built are one sentence with their number; -v tells of each."""
    words = ("warm", "--example", "--target", "cuda:sm_90", "--check")
    short, whole = run(*words).out, run(*words, "-v").out
    assert short.count("never-built") == 1 and "3 missing: never-built: " in short
    assert whole.count("never-built") == 3


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("run", "ls", "-la"), "write '--' before the command, as in 'gpucache run -- ls -la'"),
        (("run", "--learn", "ls"), "write '--' before the command, as in 'gpucache run -- ls'"),
        (("record", "-o", "new", "ls"), "as in 'gpucache record -o DIR -- ls'"),
        (("run", "ls", "--", "true"), "only options may stand before '--'; leave 'ls' out"),
        (("warm", "--"), "as in 'gpucache warm -- ./app'"),
        (("bench", "--"), "as in 'gpucache bench -- ./app'"),
        (("record", "-o", "new", "--"), "as in 'gpucache record -o DIR -- ./app'"),
        (("export", "layer", "new", "--"), "as in 'gpucache export layer DIR -- ./app'"),
    ],
)
def test_where_a_command_is_written_is_told_for_the_verb(
    words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the command has options of its own, which are not ours."""
    assert main(words) == 2
    assert why in capsys.readouterr().err
