"""Running a command until it adds nothing to any cache, and finding what it keeps elsewhere."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpucache.answers.bench import SettleSummary
from gpucache.answers.entries import Held, Snapshot
from gpucache.engine.warm.command import settle, summarise_settle, warm_command
from gpucache.host.process_groups import CommandRun
from tests.one_cache import OneCache

_GOOD = CommandRun(5, "", "")


def _looks(*sizes: int) -> Callable[[], Snapshot]:
    moments: Iterator[Snapshot] = iter({"pocl": {str(n): Held(1) for n in range(size)}} for size in sizes)
    return lambda: next(moments)


def test_it_ends_with_the_first_run_that_adds_nothing() -> None:
    """Three runs may be needed: the last one adds nothing."""
    runs = list(settle(lambda: _GOOD, _looks(0, 2, 3, 3)))
    assert [sum(one.entries for one in run.growth) for run in runs] == [2, 1, 0]
    summary = summarise_settle(runs)
    assert summary.settled and summary.growth[0].entries == 3 and summary.restless == ()


def test_it_gives_up_on_what_never_settles() -> None:
    """The additions of the last run are named."""
    runs = list(settle(lambda: _GOOD, _looks(*range(5)), most=4))
    summary = summarise_settle(runs)
    assert (summary.runs, summary.settled) == (4, False)
    assert [one.names for one in summary.restless] == [("3",)]


def test_what_every_run_writes_again_is_rejected_by_the_program() -> None:
    """An entry that is replaced at each start is never a hit; one that is new each time is none of these."""
    moments = iter({"jax": {"jit_f": Held(9, made_ns)}} for made_ns in range(9))
    summary = summarise_settle(list(settle(lambda: _GOOD, lambda: next(moments), most=4)))
    assert [(one.cache, one.again, one.names) for one in summary.restless] == [("jax", 1, ("jit_f",))]
    assert len(summary.missed) == 1 and "jit_f" in summary.missed[0]
    assert summarise_settle(list(settle(lambda: _GOOD, _looks(*range(5)), most=4))).missed == ()


def test_a_failure_ends_it() -> None:
    """A failed command is not run again, and is not called settled although it wrote nothing."""
    runs = list(settle(lambda: CommandRun(5, "it ended with exit code 1", ""), _looks(0, 0, 0)))
    summary = summarise_settle(runs)
    assert (len(runs), summary.settled, summary.failed) == (1, False, "it ended with exit code 1")


# It computes for long unless its cache has the result; PINNED is a place that only it knows.
_APP = """
import os, pathlib
place = pathlib.Path(os.environ.get("PINNED") or os.environ["PLACE"])
entry = place / "entry"
try:
    entry.read_text()
except OSError:
    total = sum(i * i for i in range(6_000_000))
    place.mkdir(exist_ok=True)
    entry.write_text(str(total))
"""


def _warm(
    tmp_path: Path, into: Path | None, code: str = _APP, off: frozenset[str] = frozenset(), **environ: str
) -> SettleSummary:
    around = OneCache({**os.environ, "PLACE": str(tmp_path / "own"), **environ}, off)
    argv = (sys.executable, "-c", code)
    return warm_command(argv, 60.0, around, into, lambda _: None)[1]


def test_a_command_that_was_moved_misses_nothing(tmp_path: Path) -> None:
    """Its entries are below the directory, and a second run adds nothing and misses nothing."""
    for runs, added in ((2, 1), (2, 0)):
        summary = _warm(tmp_path, tmp_path / "into")
        assert (summary.runs, summary.settled, summary.missed) == (runs, True, ())
        assert sum(one.entries for one in summary.growth) == added
    assert not (tmp_path / "own").exists()


def test_a_place_that_only_the_command_knows_is_told_with_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written where caches were moved, and still the second run is much faster."""
    monkeypatch.setattr("gpucache.engine.warm.command.shutil.which", lambda _: None)
    summary = _warm(tmp_path, tmp_path / "into", PINNED=str(tmp_path / "pinned"))
    (missed,) = summary.missed
    assert missed.startswith("nothing was warmed: it wrote into no cache that is known, and yet run 2 used")
    assert missed.endswith("so it caches where gpucache does not look")


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_place_that_only_the_command_knows_is_named(tmp_path: Path) -> None:
    """If it can be traced, the directory is reported."""
    summary = _warm(tmp_path, tmp_path / "into", PINNED=str(tmp_path / "pinned"))
    assert summary.missed[0] == f"it also caches in {tmp_path / 'pinned'}, which was not moved"


@pytest.mark.slow
@pytest.mark.parametrize("traced", [True, False])
def test_a_second_cache_in_the_home_directory_is_named(
    traced: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the first was moved: a start with an empty home directory fills it again."""
    if not traced:
        monkeypatch.setattr("gpucache.engine.warm.command.shutil.which", lambda _: None)
    second = (
        "import os, pathlib\n"
        "kernel = pathlib.Path(os.environ['HOME'], '.second', 'kernel')\n"
        "if not kernel.exists():\n"
        "    sum(i * i for i in range(20_000_000))\n"
        "    kernel.parent.mkdir()\n"
        "    kernel.write_bytes(b'code')\n"
    )
    (tmp_path / "home").mkdir()
    summary = _warm(tmp_path, tmp_path / "into", f"{_APP}\n{second}", HOME=str(tmp_path / "home"))
    (missed,) = summary.missed
    assert missed.startswith("it also caches below the home directory in ~/.second")


@pytest.mark.slow
def test_a_command_that_keeps_nothing_is_not_warm(tmp_path: Path) -> None:
    """It computes as long as before, and that is reported with both times, below a directory and in place."""
    hard = "sum(i * i for i in range(3_000_000))"
    (missed,) = _warm(tmp_path, tmp_path / "into", hard).missed
    assert "it wrote into no cache that is known, and run 2 used" in missed
    assert _warm(tmp_path, None, hard).missed == ("nothing was warmed: it wrote into no cache that is known",)


@pytest.mark.slow
def test_what_was_warm_already_is_told_by_empty_caches(tmp_path: Path) -> None:
    """In place, a command that adds nothing was warm if it fills empty caches, except disabled ones."""
    assert _warm(tmp_path, None).settled
    summary = _warm(tmp_path, None)
    assert (summary.runs, summary.growth, summary.missed) == (1, (), ())
    assert _warm(tmp_path, None, off=frozenset({"app"})).missed


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_folder_may_be_named_in_a_roundabout_way(tmp_path: Path) -> None:
    """Caches below the directory were moved, however it is spelled."""
    (tmp_path / "here").mkdir()
    assert _warm(tmp_path, tmp_path / "here" / ".." / "into").missed == ()


def test_what_still_goes_into_the_users_own_caches_is_told(tmp_path: Path) -> None:
    """A command that uses its default place does not follow a variable."""
    own = f"import os; os.environ['PLACE'] = {str(tmp_path / 'own')!r};"
    summary = _warm(tmp_path, tmp_path / "into", own + _APP)
    assert any("own cache of app" in one or str(tmp_path / "own") in one for one in summary.missed)
    assert any(one.startswith("nothing was warmed") for one in summary.missed)


def test_a_failing_command_misses_nothing_else(tmp_path: Path) -> None:
    """Only its failure is reported."""
    summary = _warm(tmp_path, tmp_path / "into", "raise SystemExit('no device')")
    assert "no device" in summary.failed and summary.missed == ()
