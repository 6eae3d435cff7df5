"""Run a command until it adds nothing to any cache, and what it keeps elsewhere all the same.

Some stacks need three runs: a first that compiles, a second that finds what the first wrote under other
names, a third that writes nothing. Owns the runs, what is known of a command afterwards, and whether that
is what was wanted: it may keep to a place that nobody moved, or use no cache that is known. Must not know
which caches there are nor how they are redirected.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gpucache.engine.commands import CommandRun, run_command
from gpucache.engine.hidden_caches import UNTRACED, Watched, is_far_more, listed, trace
from gpucache.outcomes import Growth, SettleRun, SettleSummary, Snapshot
from gpucache.outcomes.growth import entries, growth, joined, texts
from gpucache.units import format_duration

MOST_RUNS = 10
_AT_LEAST = 2
"""Runs with moved caches: what nothing was written for may still be faster the second time."""
_LONG_NS = 1_000_000_000
_AS_LONG = 0.9


class CacheEnvironment(Protocol):
    """What a program runs among: how caches are kept below a folder, and what they hold."""

    @property
    def environ(self) -> Mapping[str, str]:
        """The user's own environment."""
        ...

    @property
    def off(self) -> frozenset[str]:
        """Caches that are off there, and on where they are moved."""
        ...

    def variables(self, folder: Path) -> Mapping[str, str]:
        """The variables that keep every known cache below a folder."""
        ...

    def isolate(self, folder: Path) -> Mapping[str, str]:
        """The same, once the folder is made; raises OSError."""
        ...

    def look(self, environ: Mapping[str, str], *, private: bool) -> Snapshot:
        """What the caches of an environment hold; ``private`` for one below a folder of ours."""
        ...

    def root_of(self, path: Path) -> Path | None:
        """The root of the known cache that a folder belongs to; None for any other folder."""
        ...

    def notes(self, written: Collection[str]) -> tuple[str, ...]:
        """What is worth saying of caches that were written, a sentence each."""
        ...


@dataclass(frozen=True, slots=True)
class Proof:
    """What else was seen of a command that warmed caches."""

    holds: bool = True
    """Whether the caches that were to be warmed hold entries."""
    places: tuple[str, ...] | None = ()
    """Caches that it reads and that were not moved; None if it could not be traced."""
    off: tuple[str, ...] = ()
    """Caches that it would use if they were not off."""
    stray: tuple[Growth, ...] = ()
    """What the user's own caches gained although others were to be warmed."""
    texts: tuple[str, ...] = ()
    """Files that lie there, too, and look like no entry of a cache."""


def warm_command(
    argv: Sequence[str],
    timeout_s: float,
    around: CacheEnvironment,
    into: Path | None,
    place: Path,
    progress: Callable[[int], None],
) -> tuple[list[SettleRun], Proof]:
    """The runs, and what else was seen; caches lie below ``into``, or where the user has them.

    Beyond the runs that warm there is one under a trace where caches were moved, and one with empty caches
    where the user's own gained nothing, which tells a command that was warm already from one that uses no
    known cache. ``place`` is an empty folder of ours; ``progress`` is told the number of each run that
    begins. Raises UsageError for a command that cannot be started, OSError for a folder that cannot be made.
    """
    environ = around.environ if into is None else {**around.environ, **around.isolate(into)}
    private = into is not None

    def run(words: Sequence[str], environ: Mapping[str, str] = environ) -> CommandRun:
        return run_command(words, environ, timeout_s)

    begun_ns, own = time.time_ns(), around.look(around.environ, private=False) if private else {}
    runs: list[SettleRun] = []
    progress(1)
    least = _AT_LEAST if private else 1
    for done in settle(lambda: run(argv), lambda: around.look(environ, private=private), least=least):
        runs.append(done)
        progress(len(runs) + 1)
    if runs[-1].error:
        return runs, Proof()
    if into is None:
        return runs, Proof() if runs[0].growth else _with_empty_caches(argv, run, around, place)
    stray = growth(own, around.look(around.environ, private=False))
    watched = Watched(begun_ns, time.time_ns(), into, around.root_of)
    places = trace(run, argv, place / "trace", watched)
    held = around.look(environ, private=True)
    return runs, Proof(entries(held) > 0, places, stray=stray, texts=texts(held))


def _with_empty_caches(
    argv: Sequence[str],
    run: Callable[[Sequence[str], Mapping[str, str]], CommandRun],
    around: CacheEnvironment,
    place: Path,
) -> Proof:
    """Whether a command fills known caches when they are empty, by those that are on for it."""
    environ = {**around.environ, **around.isolate(place / "empty")}
    before = around.look(environ, private=False)
    run(argv, environ)
    filled = [one.cache for one in growth(before, around.look(environ, private=False))]
    off = tuple(name for name in filled if name in around.off)
    return Proof(holds=len(off) < len(filled), off=off)


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
