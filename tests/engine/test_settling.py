"""Running something until it adds nothing to any cache."""

from collections.abc import Callable, Iterator

from gpucache.engine.commands import CommandRun
from gpucache.engine.settling import settle, summarise_settle
from gpucache.outcomes import Held, Snapshot

_GOOD = CommandRun(5, "", "")


def _looks(*sizes: int) -> Callable[[], Snapshot]:
    moments: Iterator[Snapshot] = iter({"pocl": {str(n): Held(1) for n in range(size)}} for size in sizes)
    return lambda: next(moments)


def test_it_ends_with_the_first_run_that_adds_nothing() -> None:
    """Three runs may be needed: the last one is the proof."""
    runs = list(settle(lambda: _GOOD, _looks(0, 2, 3, 3)))
    assert [sum(one.entries for one in run.growth) for run in runs] == [2, 1, 0]
    summary = summarise_settle(runs)
    assert summary.settled and summary.growth[0].entries == 3 and summary.restless == ()


def test_it_gives_up_on_what_never_settles() -> None:
    """After the last run what it still added is named."""
    runs = list(settle(lambda: _GOOD, _looks(*range(5)), most=4))
    summary = summarise_settle(runs)
    assert (summary.runs, summary.settled) == (4, False)
    assert [one.names for one in summary.restless] == [("3",)]


def test_a_failure_ends_it() -> None:
    """A command that fails is not run again, and is not called settled although it wrote nothing."""
    runs = list(settle(lambda: CommandRun(5, "it ended with exit code 1", ""), _looks(0, 0, 0)))
    summary = summarise_settle(runs)
    assert (len(runs), summary.settled, summary.failed) == (1, False, "it ended with exit code 1")
