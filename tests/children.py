"""Python programs that tests run in a separate process, and whether a process has ended."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE_S


def run_text(command: Sequence[object], **more: Any) -> subprocess.CompletedProcess[str]:
    """A command that has ended, with its output as text; how it ended is for the test to judge."""
    usual = {"capture_output": True, "text": True, "check": False, "timeout": PATIENCE_S}
    done: subprocess.CompletedProcess[str] = subprocess.run(list(map(str, command)), **usual | more)
    return done


def run_python(*words: object, env: Mapping[str, str] | None = None, stdin: str | None = None) -> str:
    """The output of Python with some arguments; it has to end well, else its stderr is shown."""
    done = run_text([sys.executable, *words], env=env, input=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def warm_misses(env: Mapping[str, str]) -> None:
    """Build the programs left for later, as on a compiler that builds late."""
    run_python("-m", "gpucache", "--quiet", "warm", "--misses", env=env)


@contextmanager
def folders_without_end(place: Path) -> Iterator[None]:
    """Directories inside each other, 1100 deep, below one, with which they are removed."""
    at = os.open(place, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("a", dir_fd=at)
        below = os.open("a", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    try:
        yield
    finally:
        subprocess.run(["rm", "-rf", place], check=True)


def has_ended(pid: int) -> bool:
    """Whether a process has ended, even if no process has waited for it yet."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return True
    return status.rpartition(")")[2].split()[0] in "ZX"
