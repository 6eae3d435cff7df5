"""A user's command, run once in its own process group and timed from outside.

Its output is hashed and not shown; its failure is reported; and none of its processes runs on after its
time limit or after this process. Must not know of caches.
"""

import hashlib
import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import IO

from gpucache.errors import CommandError
from gpucache.host.interrupts import held
from gpucache.host.process_groups import start_group

_TAIL_BYTES = 2000
_TAIL_LINES = 5


@dataclass(frozen=True, slots=True)
class CommandRun:
    """One run of a command."""

    duration_ns: int
    error: str
    """How it failed, with its last lines on stderr; empty if it did not."""
    output: str
    """SHA-256 of its standard output."""
    cpu_ns: int = 0
    """User CPU time of the command and of the children that it waited for; 0 on Windows."""


def run_command(argv: Sequence[str], environ: Mapping[str, str], timeout_s: float) -> CommandRun:
    """Run a command to its end; raises CommandError if it cannot be started."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        used_s, started = os.times().children_user, time.perf_counter_ns()
        with ExitStack() as ends:
            with held():  # an interrupt waits until ``ends`` knows the process to end
                process = _start(argv, environ, out, err, ends)
            try:
                code: int | None = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                code = None
            duration_ns = time.perf_counter_ns() - started
        cpu_ns = round((os.times().children_user - used_s) * 1e9)
        out.seek(0)
        digest = hashlib.file_digest(out, "sha256").hexdigest()
        return CommandRun(duration_ns, _error(code, timeout_s, err), digest, cpu_ns)


def run_prepare(command: str, environ: Mapping[str, str], timeout_s: float) -> str:
    """Run a shell command before a start; returns how it failed, or an empty text."""
    run = run_command(("sh", "-c", command), environ, timeout_s)
    return f"the preparation {shlex.quote(command)} failed: {run.error}" if run.error else ""


def _start(
    argv: Sequence[str], environ: Mapping[str, str], out: IO[bytes], err: IO[bytes], ends: ExitStack
) -> "subprocess.Popen[bytes]":
    try:
        process = start_group(argv, ends, stdout=out, stderr=err, env=dict(environ))
    except (OSError, ValueError) as error:
        raise CommandError.of(argv[0], error) from None
    ends.callback(_end, process)
    return process


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the rest of its group: every process that it started and did not detach."""
    with held():
        if hasattr(os, "killpg"):
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.wait()


def _error(code: int | None, timeout_s: float, err: IO[bytes]) -> str:
    if code == 0:
        return ""
    if code is None:
        return f"it did not end within {timeout_s:g} s"
    what = f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"
    size = err.seek(0, os.SEEK_END)
    err.seek(max(0, size - _TAIL_BYTES))
    last = err.read().decode("utf-8", "replace").strip().splitlines()[-_TAIL_LINES:]
    return ": ".join(filter(None, (what, "\n".join(last))))
