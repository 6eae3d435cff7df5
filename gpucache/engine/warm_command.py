"""Any command, run until it adds nothing to any cache, and what it keeps elsewhere all the same.

Owns the runs beyond those that warm: one under a trace where caches were moved, and one with empty caches
where the user's own gained nothing, which tells a command that was warm already from one that uses no known
cache. Must not know which caches there are nor how they are redirected.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gpucache.engine.bench_command import Surroundings
from gpucache.engine.commands import CommandRun, run_command
from gpucache.engine.elsewhere import Watched, trace
from gpucache.engine.settle import Proof, settle
from gpucache.engine.watch import entries, growth, texts
from gpucache.outcomes import SettleRun

_AT_LEAST = 2
"""Runs with moved caches: what nothing was written for may still be faster the second time."""


def warm_command(
    argv: Sequence[str],
    timeout_s: float,
    around: Surroundings,
    into: Path | None,
    place: Path,
    progress: Callable[[int], None],
) -> tuple[list[SettleRun], Proof]:
    """The runs, and what else was seen; caches lie below ``into``, or where the user has them.

    ``place`` is an empty folder of ours; ``progress`` is told the number of each run that begins. Raises
    UsageError for a command that cannot be started, OSError for a folder that cannot be made.
    """
    environ = around.environ if into is None else {**around.environ, **around.isolate(into)}
    private = into is not None

    def run(words: Sequence[str], environ: Mapping[str, str] = environ) -> CommandRun:
        return run_command(words, environ, timeout_s)

    begun_ns, own = time.time_ns(), around.look(around.environ, False) if private else {}
    runs: list[SettleRun] = []
    progress(1)
    least = _AT_LEAST if private else 1
    for done in settle(lambda: run(argv), lambda: around.look(environ, private), least=least):
        runs.append(done)
        progress(len(runs) + 1)
    if runs[-1].error:
        return runs, Proof()
    if into is None:
        return runs, Proof() if runs[0].growth else _with_empty_caches(argv, run, around, place)
    stray = growth(own, around.look(around.environ, False))
    watched = Watched(begun_ns, time.time_ns(), into, around.root_of)
    places = trace(run, argv, place / "trace", watched)
    held = around.look(environ, True)
    return runs, Proof(entries(held) > 0, places, stray=stray, texts=texts(held))


def _with_empty_caches(
    argv: Sequence[str],
    run: Callable[[Sequence[str], Mapping[str, str]], CommandRun],
    around: Surroundings,
    place: Path,
) -> Proof:
    """Whether a command fills known caches when they are empty, by those that are on for it."""
    environ = {**around.environ, **around.isolate(place / "empty")}
    before = around.look(environ, False)
    run(argv, environ)
    filled = [one.cache for one in growth(before, around.look(environ, False))]
    off = tuple(name for name in filled if name in around.off)
    return Proof(holds=len(off) < len(filled), off=off)
