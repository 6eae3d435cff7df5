"""A user's command, run once."""

import os
import select
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpucache.errors import CommandError
from gpucache.host.process_groups import run_command, run_prepare
from tests.children import run_text
from tests.patience import PATIENCE_S, wait_until

_ENVIRON = {**os.environ, "WORD": "found"}


def _python(code: str, timeout_s: float = PATIENCE_S) -> str:
    return run_command((sys.executable, "-c", code), _ENVIRON, timeout_s).error


def test_a_command_that_ends_well_has_no_error() -> None:
    """Its environment is the one it was given, and it was timed."""
    run = run_command(
        (sys.executable, "-c", "import os; assert os.environ['WORD'] == 'found'"), _ENVIRON, PATIENCE_S
    )
    assert run.error == "" and run.duration_ns > 0


def test_the_output_is_hashed() -> None:
    """Equal output has an equal digest, other output another one."""
    one, same, other = (
        run_command((sys.executable, "-c", f"print({word!r})"), _ENVIRON, PATIENCE_S).output
        for word in ("a", "a", "b")
    )
    assert one == same != other


def test_a_failure_is_told_with_its_last_words() -> None:
    """Exit code and the end of stderr are in the error."""
    error = _python("import sys; print('x' * 9999, file=sys.stderr); sys.exit('no device here')")
    assert "exit code 1" in error and error.endswith("no device here") and len(error) < 3000


def test_a_signal_is_told() -> None:
    """A command that was killed reports the signal."""
    assert "signal 9" in _python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")


def test_a_command_that_does_not_end_is_ended_with_its_children(tmp_path: Path) -> None:
    """After the time limit nothing of its process group is left."""
    mark = tmp_path / "child"
    script = f"sleep 3600 & echo $! > {shlex.quote(str(mark))}; wait"
    assert "did not end within" in run_command(("/bin/sh", "-c", script), _ENVIRON, 3.0).error
    child = int(mark.read_text(encoding="utf-8"))
    assert _is_gone(child)


_RUNNING = """
import os, sys
from gpucache.host.process_groups import run_command
run_command(("/bin/sh", "-c", sys.argv[1]), os.environ, 3600.0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a group with the process that made it")
def test_a_command_does_not_outlive_who_runs_it(tmp_path: Path) -> None:
    """A command and its children are killed, without a chance to object, when their parent is."""
    mark = tmp_path / "child"
    script = f"trap '' TERM HUP; sleep 3600 & echo $$ $! > {shlex.quote(str(mark))}; wait"
    parent = subprocess.Popen([sys.executable, "-c", _RUNNING, script])
    try:
        wait_until(lambda: mark.exists() and mark.read_text(encoding="utf-8").endswith("\n"))
    finally:
        parent.kill()
        parent.wait()
    assert all(_is_gone(int(word)) for word in mark.read_text(encoding="utf-8").split())


_KILLED_AT_ONCE = """
import os, signal, subprocess, sys
class Popen(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        print(self.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
subprocess.Popen = Popen
from gpucache.host.process_groups import run_command
run_command(("sleep", "3600"), os.environ, 3600.0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a group with the process that made it")
def test_a_command_does_not_outlive_who_starts_it() -> None:
    """A parent that is killed right after the start takes the command along."""
    parent = run_text([sys.executable, "-c", _KILLED_AT_ONCE])
    assert parent.returncode == -signal.SIGKILL
    assert _is_gone(int(parent.stdout))


def _is_gone(pid: int) -> bool:
    """Whether a process ends; it was signalled, and the kernel may take a moment."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], PATIENCE_S)[0])
    finally:
        os.close(handle)


@pytest.mark.parametrize(("argv", "code"), [(("no-such-command",), 127), (("/",), 126), (("a\0b",), 126)])
def test_a_command_that_cannot_be_started_is_told(argv: tuple[str, ...], code: int) -> None:
    """The error names the command and the reason, and the exit code is a shell's."""
    with pytest.raises(CommandError, match="cannot be started") as raised:
        run_command(argv, _ENVIRON, PATIENCE_S)
    assert raised.value.exit_code == code


def test_a_preparation_that_fails_is_told() -> None:
    """A failed preparation is named in the error; a good one gives none."""
    assert run_prepare("true", _ENVIRON, PATIENCE_S) == ""
    assert "'exit 3'" in run_prepare("exit 3", _ENVIRON, PATIENCE_S)
