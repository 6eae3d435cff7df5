"""Somebody else's command, run once in a process group of its own and timed from outside.

Owns its end: what it printed is hashed and not shown, what it failed with is told, and nothing of it is
left running after its time limit, nor after this process. Must not know of caches.
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

from gpucache.errors import UsageError
from gpucache.host.interrupts import held
from gpucache.host.process_groups import exit_pipe, kill_on_exit

_TAIL_BYTES = 2000
_TAIL_LINES = 5


@dataclass(frozen=True, slots=True)
class CommandRun:
    """One run of a command."""

    duration_ns: int
    error: str
    """How it failed, with the last lines it wrote to stderr; empty if it did not."""
    output: str
    """SHA-256 of what it wrote to stdout."""
    cpu_ns: int = 0
    """CPU time that it and what it waited for spent in programs, not in the system; 0 on Windows."""


def run_command(argv: Sequence[str], environ: Mapping[str, str], timeout_s: float) -> CommandRun:
    """Run a command to its end; raises UsageError if it cannot be started."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        used_s, started = os.times().children_user, time.perf_counter_ns()
        with ExitStack() as ends:
            with held():  # an interrupt comes when it is known what has to be ended
                process = _start(argv, environ, out, err, ends)
            try:
                code: int | None = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                code = None
            duration_ns = time.perf_counter_ns() - started
        cpu_ns = round((os.times().children_user - used_s) * 1e9)
        return CommandRun(duration_ns, _error(code, timeout_s, err), _digest(out), cpu_ns)


def run_prepare(command: str, environ: Mapping[str, str], timeout_s: float) -> str:
    """Run a shell command before a start; how it failed, or nothing."""
    run = run_command(("sh", "-c", command), environ, timeout_s)
    return f"the preparation {shlex.quote(command)} failed: {run.error}" if run.error else ""


def _start(
    argv: Sequence[str], environ: Mapping[str, str], out: IO[bytes], err: IO[bytes], ends: ExitStack
) -> "subprocess.Popen[bytes]":
    line = ends.enter_context(exit_pipe())
    try:
        process = subprocess.Popen(
            list(argv),
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            pass_fds=() if line is None else (line,),
        )
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"the command {argv[0]!r} cannot be started ({why}); check its name") from None
    ends.callback(_end, process)
    if line is not None:
        kill_on_exit(line, process.pid)
    return process


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End what is left of its group, which holds all that it started and did not detach."""
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
    words = _tail(err)
    return f"{what}: {words}" if words else what


def _tail(err: IO[bytes]) -> str:
    size = err.seek(0, os.SEEK_END)
    err.seek(max(0, size - _TAIL_BYTES))
    lines = err.read().decode("utf-8", "replace").strip().splitlines()[-_TAIL_LINES:]
    return "\n".join(lines)


def _digest(out: IO[bytes]) -> str:
    out.seek(0)
    digest = hashlib.sha256()
    while part := out.read(1 << 20):
        digest.update(part)
    return digest.hexdigest()
