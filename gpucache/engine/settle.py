"""Run something until it adds nothing to any cache.

Some stacks need three runs: a first that compiles, a second that finds what the first wrote under other
names, a third that writes nothing. Owns what is known of a command afterwards, and whether that is what was
wanted: it may keep to a place that nobody moved, or use no cache that is known. Must not know which caches
there are.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gpucache.engine.commands import CommandRun
from gpucache.engine.elsewhere import UNTRACED, is_far_more, listed
from gpucache.engine.watch import Snapshot, growth, joined
from gpucache.outcomes import Growth, SettleRun, SettleSummary
from gpucache.units import format_duration

MOST_RUNS = 10


@dataclass(frozen=True, slots=True)
class Proof:
    """What else was seen of a command that warmed caches."""

    holds: bool = True
    """Whether the caches that were to be warmed hold entries."""
    places: tuple[str, ...] | None = ()
    """Caches that it reads and that were not moved; None where it could not be traced."""
    off: tuple[str, ...] = ()
    """Caches that it would use if they were not off."""
    stray: tuple[Growth, ...] = ()
    """What the user's own caches gained although others were to be warmed."""
    texts: tuple[str, ...] = ()
    """Files that lie there, too, and look like no entry of a cache."""


def settle(
    run: Callable[[], CommandRun], look: Callable[[], Snapshot], most: int = MOST_RUNS, least: int = 1
) -> Iterator[SettleRun]:
    """Each run with what it added; the last added nothing, failed, or was one too many."""
    before = look()
    for number in range(1, most + 1):
        done = run()
        after = look()
        added = growth(before, after)
        yield SettleRun(number, done.duration_ns, added, done.error, done.cpu_ns)
        if done.error or (not added and number >= least):
            return
        before = after


def summarise_settle(
    runs: Sequence[SettleRun],
    environment: tuple[tuple[str, str], ...] = (),
    notes: tuple[str, ...] = (),
    proof: Proof | None = None,
) -> SettleSummary:
    """Whether it came to rest, all that was added, and what was missed."""
    last = runs[-1] if runs else None
    settled = last is not None and not last.growth and not last.error
    failed = last.error if last else "it was not run"
    return SettleSummary(
        runs=len(runs),
        settled=settled,
        failed=failed,
        growth=joined(tuple(run.growth for run in runs)),
        restless=() if settled or last is None else last.growth,
        environment=environment,
        missed=() if failed or proof is None else tuple(_missed(runs, proof)),
        notes=(*(() if failed else _unhelped(runs)), *notes, *_unseen(proof)),
    )


def _missed(runs: Sequence[SettleRun], proof: Proof) -> Iterator[str]:
    """Why a deployment may have to compile all the same, a sentence each."""
    if proof.places:
        yield f"it also caches in {listed(proof.places)}, which was not moved"
    elif proof.stray:
        yield f"it also wrote into your own cache of {listed([one.cache for one in proof.stray])}"
    if not proof.holds:
        hidden = "" if proof.places else _hidden(runs)
        yield f"nothing was warmed: it wrote into no cache that is known{hidden}"


def _unseen(proof: Proof | None) -> Iterator[str]:
    if proof is not None and proof.places is None:
        yield UNTRACED
    if proof is not None and proof.texts:
        yield f"text of a program that gpucache does not know is no entry: {listed(proof.texts)}"


def _hidden(runs: Sequence[SettleRun]) -> str:
    """What the CPU times of the first and the last run say of a command that wrote nothing."""
    first, last = runs[0], runs[-1]
    if first is last or not first.cpu_ns:
        return ""
    figures = f"run {last.number} used {format_duration(last.cpu_ns)} of CPU time"
    before = format_duration(first.cpu_ns)
    if is_far_more(first.cpu_ns, [last.cpu_ns]):
        return f", and yet {figures} after {before} in run 1, so it caches where gpucache does not look"
    return f", and {figures}, run 1 {before}"


def _unhelped(runs: Sequence[SettleRun]) -> Iterator[str]:
    """A command that takes as long as ever may compile what no cache keeps, or have other work to do."""
    first, last = runs[0], runs[-1]
    if first.growth and last.cpu_ns >= _LONG_NS and last.cpu_ns >= _AS_LONG * first.cpu_ns:
        yield (
            f"run {last.number} used as much CPU time as run 1 ({format_duration(last.cpu_ns)} and "
            f"{format_duration(first.cpu_ns)}): what was warmed saves none"
        )


_LONG_NS = 1_000_000_000
_AS_LONG = 0.9
