"""Python programs that tests run in a process of their own, and whether a process has ended."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.patience import PATIENCE_S


def run_python(
    *words: str | Path, env: Mapping[str, str], stdin: str | None = None, cwd: Path | None = None
) -> str:
    """What Python prints when it is run with some words; it has to end well, else its stderr is shown."""
    done = subprocess.run(
        [sys.executable, *words],
        env=env,
        input=stdin,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def warm_misses(env: Mapping[str, str]) -> None:
    """Build what a program left to be built later, as it does on a compiler that builds late."""
    run_python("-m", "gpucache", "--quiet", "warm", "--misses", env=env)


def has_ended(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet has ended, too."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return True
    return status.rpartition(")")[2].split()[0] in "ZX"
