"""Warming by a command: it is run until it settles, which means that a run adds nothing to any cache.

Some stacks need three runs: the first compiles, the second finds the files of the first and writes them under
other names, the third writes nothing. Owns the runs and the question whether they achieved their aim: the
command may use a cache that was not moved, or none that is known. Must not know which caches there are, or
how they are redirected.
"""

import shlex
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gpucache.answers.bench import SettleRun, SettleSummary
from gpucache.answers.growth import Growth, Snapshot, entries, growth, joined, texts
from gpucache.engine.hidden_caches import UNTRACED, Watched, is_far_more, trace
from gpucache.host import os_errors
from gpucache.host.process_groups import CommandRun, run_command
from gpucache.host.scratch import absent, remove_empty, scratch
from gpucache.units import format_duration, format_list

MOST_RUNS = 10
ENVIRONMENT_FILE = "gpucache.env"
_AT_LEAST = 2
"""With moved caches there are at least two runs, to compare their CPU times."""
_LONG_NS = 1_000_000_000
_AS_LONG = 0.9


class CacheEnvironment(Protocol):
    """The caches around a program: how they are moved below a directory, and their contents."""

    @property
    def environ(self) -> Mapping[str, str]:
        """The user's own environment."""
        ...

    @property
    def off(self) -> frozenset[str]:
        """Caches that are off there, and that are turned on when they are moved."""
        ...

    def variables(self, folder: Path) -> Mapping[str, str]:
        """The variables that keep every known cache below a directory."""
        ...

    def isolate(self, folder: Path) -> Mapping[str, str]:
        """The same variables, after making the directories; raises OSError."""
        ...

    def look(self, environ: Mapping[str, str], *, private: bool) -> Snapshot:
        """The contents of the caches of an environment; ``private`` for one below a directory of ours."""
        ...

    def root_of(self, path: Path) -> Path | None:
        """The root of the known cache that a directory belongs to; None for any other directory."""
        ...

    def notes(self, written: Collection[str]) -> tuple[str, ...]:
        """Remarks on caches that were written, a sentence each."""
        ...

    def used(self, folder: Path) -> tuple[tuple[str, str], ...]:
        """The variables of the caches below a directory that have entries."""
        ...

    def remove_unused(self, folder: Path) -> None:
        """Remove the directories that were made below a directory for caches and are still empty."""
        ...


@dataclass(frozen=True, slots=True)
class Proof:
    """The other findings about a command that warmed caches."""

    holds: bool = True
    """Whether the caches to be warmed have entries."""
    places: tuple[str, ...] | None = ()
    """Caches that it reads and that were not moved; None if it could not be traced."""
    off: tuple[str, ...] = ()
    """Caches that it would use if they were not off."""
    stray: tuple[Growth, ...] = ()
    """The additions to the user's own caches although others were to be warmed."""
    texts: tuple[str, ...] = ()
    """Files in these caches that do not look like entries."""


def warm_command(
    argv: Sequence[str],
    timeout_s: float,
    around: CacheEnvironment,
    into: Path | None,
    progress: Callable[[int], None],
) -> tuple[list[SettleRun], SettleSummary]:
    """Warm every known cache by a command, with ``into`` only caches below that directory, and summarise.

    The directory gets a file with the variables that lead to its caches, unless the command fails.
    ``progress`` is called with the number of each run that begins. Raises CommandError for a command that
    cannot be started, UsageError or SystemRefusedError for a directory that cannot be written.
    """
    folder = into.absolute() if into is not None else None
    new = absent(folder) if folder is not None else ()
    warmed: tuple[tuple[str, str], ...] = ()
    try:
        with scratch("warm") as place:
            runs, proof = _run(argv, timeout_s, around, folder, place, progress)
        written = {one.cache for run in runs for one in run.growth}
        notes = around.notes(proof.off if folder is None else written)
        if folder is not None and not runs[-1].error:
            warmed = around.used(folder)
            write_variables(folder, warmed)
        elif folder is not None and written:
            notes = (*notes, f"its caches are left below {into}; no {ENVIRONMENT_FILE} was written")
    finally:
        if folder is not None:
            around.remove_unused(folder)
            remove_empty(new)
    return runs, summarise_settle(runs, warmed, notes, proof)


def write_variables(folder: Path, environment: tuple[tuple[str, str], ...]) -> None:
    """Write the variables of caches below a directory to its file; raises UsageError, SystemRefusedError."""
    file = folder / ENVIRONMENT_FILE
    lines = [f"{name}={shlex.quote(value)}\n" for name, value in environment] or ["# nothing is cached\n"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(lines), encoding="utf-8")
    except OSError as error:
        raise os_errors.unwritable(file, error, "name another directory") from None


def _run(
    argv: Sequence[str],
    timeout_s: float,
    around: CacheEnvironment,
    into: Path | None,
    place: Path,
    progress: Callable[[int], None],
) -> tuple[list[SettleRun], Proof]:
    """The runs, and the other findings; caches are below ``into``, or where the user has them.

    One more run follows. If caches were moved, it is traced. If the user's own caches gained nothing, it has
    empty caches, to distinguish a command that was warm already from one that uses no known cache. ``place``
    is an empty directory of ours.
    """
    try:
        environ = around.environ if into is None else {**around.environ, **around.isolate(into)}
    except OSError as error:
        raise os_errors.unwritable(into, error, "name another directory", "made") from None
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
    """Whether a command fills known caches if they are empty, and which of these are off for the user."""
    environ = {**around.environ, **around.isolate(place / "empty")}
    before = around.look(environ, private=False)
    run(argv, environ)
    filled = [one.cache for one in growth(before, around.look(environ, private=False))]
    off = tuple(name for name in filled if name in around.off)
    return Proof(holds=len(off) < len(filled), off=off)


def settle(
    run: Callable[[], CommandRun], look: Callable[[], Snapshot], most: int = MOST_RUNS, least: int = 1
) -> Iterator[SettleRun]:
    """Each run with its additions, until one adds nothing or fails, or there were ``most``."""
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
    """Whether the command settled, all additions, and the entries that a deployment may miss."""
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
    """Why a deployment may have to compile nevertheless, a sentence each."""
    if proof.places:
        yield f"it also caches in {format_list(proof.places)}, which was not moved"
    elif proof.stray:
        yield f"it also wrote into your own cache of {format_list([one.cache for one in proof.stray])}"
    if not proof.holds:
        hidden = "" if proof.places else _hidden(runs)
        yield f"nothing was warmed: it wrote into no cache that is known{hidden}"


def _unseen(proof: Proof | None) -> Iterator[str]:
    if proof is not None and proof.places is None:
        yield UNTRACED
    if proof is not None and proof.texts:
        yield f"text of a program that gpucache does not know is not an entry: {format_list(proof.texts)}"


def _hidden(runs: Sequence[SettleRun]) -> str:
    """For a command that wrote nothing: a clause on the CPU times of the first and the last run, or empty."""
    first, last = runs[0], runs[-1]
    if first is last or not first.cpu_ns:
        return ""
    figures = f"run {last.number} used {format_duration(last.cpu_ns)} of CPU time"
    before = format_duration(first.cpu_ns)
    if is_far_more(first.cpu_ns, [last.cpu_ns]):
        return f", and yet {figures} after {before} in run 1, so it caches where gpucache does not look"
    return f", and {figures}, run 1 {before}"


def _unhelped(runs: Sequence[SettleRun]) -> Iterator[str]:
    """Whether the last run took as long as the first: it compiles without a cache, or has other work."""
    first, last = runs[0], runs[-1]
    if first.growth and last.cpu_ns >= _LONG_NS and last.cpu_ns >= _AS_LONG * first.cpu_ns:
        yield (
            f"run {last.number} used as much CPU time as run 1 ({format_duration(last.cpu_ns)} and "
            f"{format_duration(first.cpu_ns)}): the warmed caches save none"
        )
