"""Our own sessions are scheduled by niceness."""

import sys
from pathlib import Path

import pytest

from tests.children import run_text
from tests.unprivileged import needs_root

_NICE = """
import os, subprocess, sys
from contextlib import ExitStack
from pathlib import Path
from gpucache.engine.workers.pool import Bounds, Done, run_isolated
from gpucache.host.process_groups import start_group
if __name__ == "__main__":
    print(os.nice(5))
    place = Path("/proc/self/autogroup")
    ((_, answer),) = run_isolated(Path.read_text, [place], Bounds(jobs=1))
    print(answer.value.split()[-1])
    with ExitStack() as ends:
        child = start_group(
            ["sleep", "600"], ends, stdout=subprocess.PIPE, stderr=2
        )
        print(Path(f"/proc/{child.pid}/autogroup").read_text().split()[-1])
"""


@needs_root  # others may change one niceness every tenth of a second, all of them together
@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="sessions are not weighed here")
def test_a_session_yields_as_niceness_says(tmp_path: Path) -> None:
    """Workers, probes and commands under nice stay nice although they are separate sessions."""
    script = tmp_path / "nice.py"
    script.write_text(_NICE)
    done = run_text([sys.executable, script], check=True)
    own, worker, command = done.stdout.split()
    assert (worker, command) == (own, own)
