"""Run something until it adds nothing to any cache.

Some stacks need three runs: a first that compiles, a second that finds what the first wrote under other
names, a third that writes nothing. Must not know which caches there are.
"""

from collections.abc import Callable, Iterator, Sequence

from gpucache.engine.commands import CommandRun
from gpucache.engine.watch import Snapshot, growth, joined
from gpucache.outcomes import SettleRun, SettleSummary

MOST_RUNS = 10


def settle(
    run: Callable[[], CommandRun], look: Callable[[], Snapshot], most: int = MOST_RUNS
) -> Iterator[SettleRun]:
    """Each run with what it added; the last added nothing, failed, or was one too many."""
    before = look()
    for number in range(1, most + 1):
        done = run()
        after = look()
        added = growth(before, after)
        yield SettleRun(number, done.duration_ns, added, done.error, done.cpu_ns)
        if done.error or not added:
            return
        before = after


def summarise_settle(
    runs: Sequence[SettleRun], environment: tuple[tuple[str, str], ...] = (), notes: tuple[str, ...] = ()
) -> SettleSummary:
    """Whether it came to rest, and all that was added."""
    last = runs[-1] if runs else None
    settled = last is not None and not last.growth and not last.error
    return SettleSummary(
        runs=len(runs),
        settled=settled,
        failed=last.error if last else "it was not run",
        growth=joined(tuple(run.growth for run in runs)),
        restless=() if settled or last is None else last.growth,
        environment=environment,
        notes=notes,
    )
