"""``gpucache warm -- COMMAND``: run it until it adds nothing new to any cache."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from gpucache.cli.globals import given, leave
from gpucache.errors import ExitCode
from gpucache.host import os_errors

if TYPE_CHECKING:
    from gpucache.answers.bench import SettleRun
    from gpucache.caches.known_caches import KnownCaches
    from gpucache.engine.warm.command import Proof

ENVIRONMENT_FILE = "gpucache.env"


def warm_command(timeout: float, into: Path | None) -> None:
    """Warm every known cache by the command after ``--``; with ``into`` only caches below that directory."""
    from gpucache.answers import bench_text as text
    from gpucache.caches.known_caches import KnownCaches
    from gpucache.engine.warm.command import summarise_settle
    from gpucache.host.scratch import absent, remove_empty

    around = KnownCaches(given().environment())
    new = absent(into.absolute()) if into is not None else ()
    try:
        runs, proof = _run(around, timeout, into)
        written = {one.cache for run in runs for one in run.growth}
        notes = around.notes(proof.off if into is None else written)
        warmed: tuple[tuple[str, str], ...] = ()
        if into is not None and runs[-1].error:
            if written:
                notes = (*notes, f"what it cached is left below {into}; no {ENVIRONMENT_FILE} was written")
        elif into is not None:
            warmed = around.used(into.absolute())
            write_variables(into, warmed)
    finally:
        if into is not None:
            around.remove_unused(into.absolute())
            remove_empty(new)
    summary = summarise_settle(runs, warmed, notes, proof)
    given().answer("warm", runs, summary, text.settle(runs, summary))
    leave(ExitCode.DONE if summary.settled and not summary.missed else ExitCode.FINDINGS)


def _run(around: "KnownCaches", timeout: float, into: Path | None) -> "tuple[list[SettleRun], Proof]":
    from gpucache.engine.warm.command import MOST_RUNS
    from gpucache.engine.warm.command import warm_command as warm
    from gpucache.host.scratch import scratch

    moved = None if into is None else into.absolute()
    if moved is not None:
        try:
            around.isolate(moved)
        except OSError as error:
            raise os_errors.unwritable(into, error, "name another directory", "made") from None
    with (
        scratch("warm") as place,
        given().progress() as bar,
    ):
        return warm(
            given().command,
            timeout,
            around,
            moved,
            place,
            lambda number: bar.show(number - 1, MOST_RUNS, f"run {number}"),
        )


def write_variables(folder: Path, environment: tuple[tuple[str, str], ...]) -> None:
    """Write the variables of caches below a directory to its file; raises UsageError."""
    file = folder / ENVIRONMENT_FILE
    lines = [f"{name}={shlex.quote(value)}\n" for name, value in environment] or ["# nothing is cached\n"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(lines), encoding="utf-8")
    except OSError as error:
        raise os_errors.unwritable(file, error, "name another directory") from None
