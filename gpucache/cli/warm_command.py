"""``gpucache warm -- COMMAND``: run it until it adds nothing new to any cache."""

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from gpucache.cli.globals import given, leave

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpucache.outcomes import SettleRun

ENVIRONMENT_FILE = "gpucache.env"


def warm_command(timeout: float, into: Path | None) -> None:
    """Warm every known cache by the command after ``--``; with ``into`` caches below that folder alone."""
    from gpucache.engine.settle import summarise_settle
    from gpucache.outcomes import ExitCode
    from gpucache.render import document, settling, timings
    from gpucache.surroundings import notes, used

    environ = _environ(into)
    runs = _runs({**os.environ, **environ}, timeout, private=into is not None)
    warmed = used(into.absolute(), os.environ) if into is not None else ()
    written = {one.cache for run in runs for one in run.growth}
    summary = summarise_settle(runs, warmed, notes(written, os.environ) if into is not None else ())
    if into is not None and warmed:
        _write(into / ENVIRONMENT_FILE, warmed)
    given().document(
        lambda: document.document("warm", map(settling.settle_run, runs), settling.settle_summary(summary))
    )
    given().show(timings.settle(runs, summary))
    leave(ExitCode.DONE if summary.settled else ExitCode.FINDINGS)


def _environ(into: Path | None) -> "dict[str, str]":
    from gpucache.errors import CacheUnusableError
    from gpucache.surroundings import isolate

    if into is None:
        return {}
    try:
        return dict(isolate(into.absolute(), os.environ))
    except OSError as error:
        raise CacheUnusableError(f"{into} cannot be made ({error.strerror}); name another folder") from None


def _runs(environ: "Mapping[str, str]", timeout: float, *, private: bool) -> "list[SettleRun]":
    from gpucache.engine.commands import run_command
    from gpucache.engine.settle import MOST_RUNS, settle
    from gpucache.render.progress import display
    from gpucache.surroundings import look

    runs: list[SettleRun] = []
    with display(quiet=given().quiet or given().json) as bar:
        bar.show(0, MOST_RUNS, "run 1")
        for run in settle(
            lambda: run_command(given().command, environ, timeout), lambda: look(environ, private)
        ):
            runs.append(run)
            bar.show(run.number, MOST_RUNS, f"run {run.number + 1}")
    return runs


def _write(file: Path, environment: tuple[tuple[str, str], ...]) -> None:
    from gpucache.errors import CacheUnusableError

    lines = [f"{name}={shlex.quote(value)}\n" for name, value in environment]
    try:
        file.write_text("".join(lines), encoding="utf-8")
    except OSError as error:
        raise CacheUnusableError(
            f"{file} cannot be written ({error.strerror}); name another folder"
        ) from None
