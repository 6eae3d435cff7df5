"""Output if stdout is closed, full or not UTF-8, and if the current directory is gone."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.errors import ExitCode
from tests.children import run_text
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

Write = Callable[..., Path]
VECTOR = 'extern "C" __global__ void vector(float *a) { a[threadIdx.x] += 1; }\n'
FULL = Path("/dev/full")


def _shell(line: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A line of a POSIX shell, in which ``$GPUCACHE`` is the command."""
    environ = {**os.environ, "GPUCACHE": f"{sys.executable} -P -m gpucache", **variables}
    environ.pop("GPUCACHE_DIR", None)
    return subprocess.run(
        ["sh", "-c", line],
        cwd=folder,
        env=environ,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_stop_no_work(write: Write, root: Path, nvrtc: str, closed: str) -> None:
    """The cache is still filled; an answer that stdout cannot take is exit 1, and reported on stderr."""
    folder = write({"vector.cu": VECTOR})
    done = _shell(f"$GPUCACHE --root {root} warm vector.cu --target {nvrtc} {closed}", folder)
    assert done.returncode == (closed != "2>&-")
    assert ("leave standard output open" in done.stderr) is (closed == ">&-")
    listed = _shell(f"$GPUCACHE --root {root} inspect --list --json", folder)
    assert [row["program"] for row in json.loads(listed.stdout)["outcomes"]] == ["vector.cu"]


@pytest.mark.skipif(not FULL.exists(), reason="/dev/full is Linux's")
@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "inspect",
        "inspect --list --json",
        "verify",
        "evict --max-size 1G --dry-run --json",
        "warm vector.cu --target cuda:sm_90 --json",
    ],
)
def test_a_full_stdout_ends_in_one_sentence(write: Write, root: Path, command: str) -> None:
    """An answer that cannot be written is one sentence on stderr, and is not called a defect."""
    root.mkdir()
    done = _shell(f"$GPUCACHE --root {root} {command} > /dev/full", write({"vector.cu": VECTOR}))
    why = os.strerror(errno.ENOSPC)
    said = f"gpucache: the output could not be written ({why}); make room on its disk and run it again\n"
    assert (done.returncode, done.stderr) == (ExitCode.UNEXPECTED, said)
    assert "full disk" in ExitCode.UNEXPECTED.meaning


@pytest.mark.skipif(not FULL.exists(), reason="/dev/full is Linux's")
def test_bad_usage_is_told_beside_a_full_stdout(root: Path, tmp_path: Path) -> None:
    """The usage error counts, not the failure to write its document."""
    done = _shell(f"$GPUCACHE --root {root} nothing --json > /dev/full", tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "no such command" in done.stderr


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize(("error", "unbuffered"), [(errno.EACCES, ""), (errno.ESTALE, "1"), (errno.EIO, "")])
def test_an_answer_that_a_disk_or_server_refuses(
    root: Path, tmp_path: Path, error: int, unbuffered: str
) -> None:
    """The error is reported as it is, even if only the first of several writes failed, not as a defect."""
    root.mkdir()
    name = errno.errorcode[error]
    when = 2 if unbuffered else 1  # there the first is Click's, of nothing
    tracer = f"strace -qq -o /dev/null -P {tmp_path}/out -e inject=write:error={name}:when={when}"
    line = f"{tracer} $GPUCACHE --root {root} inspect --json > {tmp_path}/out"
    done = _shell(line, tmp_path, PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 1
    assert done.stderr.startswith(f"gpucache: the output could not be written ({os.strerror(error)}); ")
    assert done.stderr.endswith(" and run it again\n") and done.stderr.count("\n") == 1


@pytest.mark.skipif(not FULL.exists(), reason="/dev/full is Linux's")
def test_a_full_stderr_stops_no_work(root: Path, tmp_path: Path) -> None:
    """A failed write to stderr does not stop the answer."""
    root.mkdir()
    done = _shell(f"$GPUCACHE --root {root} inspect --json 2> /dev/full", tmp_path, GPUCACHE_DISABEL="1")
    assert done.returncode == 0 and json.loads(done.stdout)["command"] == "inspect"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_other_encodings_get_what_they_can_show(write: Write, root: Path, encoding: str) -> None:
    """A name that the terminal cannot show is escaped; nothing fails."""
    folder = write({"größe→.cu": VECTOR})
    done = _shell(f"$GPUCACHE --root {root} warm . --check", folder, PYTHONIOENCODING=encoding)
    assert done.returncode in (3, 4) and "\\u2192" in done.stdout and "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps the current folder")
def test_a_removed_current_folder_is_told(write: Write, root: Path) -> None:
    """In a removed directory a command that needs one says so, and does not call it a defect."""
    folder = write({"vector.cu": VECTOR})
    gone = folder / "gone"
    line = f"mkdir {gone}; cd {gone}; rmdir {gone}; $GPUCACHE --root {root} warm {folder}/vector.cu --check"
    done = _shell(line, folder)
    assert (
        done.returncode == 2 and done.stderr == "gpucache: the current directory is gone; go to another one\n"
    )


def test_a_misspelt_variable_is_told_once(root: Path, tmp_path: Path) -> None:
    """A variable similar to ours is reported on stderr, once, with the nearest real one."""
    done = _shell(f"$GPUCACHE --root {root} inspect --json", tmp_path, GPUCACHE_MAXSIZE="1G")
    assert json.loads(done.stdout)["command"] == "inspect"
    assert done.stderr.count("GPUCACHE_MAXSIZE") == 1 and "GPUCACHE_MAX_SIZE does" in done.stderr


def test_colours_in_a_pipe_bring_no_cursor(write: Write, root: Path, nvrtc: str) -> None:
    """With FORCE_COLOR nothing moves the cursor, neither in the answer nor on stderr."""
    folder = write({"vector.cu": VECTOR})
    done = _shell(f"$GPUCACHE --root {root} warm vector.cu --target {nvrtc}", folder, FORCE_COLOR="1")
    codes = {part.partition("m")[0] for part in (done.stdout + done.stderr).split("\x1b[")[1:]}
    assert codes and all(code.replace(";", "").isdigit() for code in codes)


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of so many columns is a pseudo-terminal")
@pytest.mark.skipif(
    shutil.which("script") is None, reason="script(1) makes the terminal, and is not installed"
)
@pytest.mark.parametrize("options", ["", "--json "])
def test_a_line_about_a_command_breaks_between_words(tmp_path: Path, options: str) -> None:
    """A terminal would break it anywhere; a document stays as it is."""
    command = f"stty cols 40; {sys.executable} -m gpucache run {options}-- true"
    done = run_text(
        ["script", "-qec", command, os.devnull],
        env={**os.environ, "GPUCACHE_DIR": str(tmp_path / "root")},
        stdin=subprocess.DEVNULL,
        check=True,
    )
    if options:
        assert json.loads(done.stdout)["summary"]["command"] == "true"
    else:
        assert max(map(len, done.stdout.splitlines())) <= 40
        assert "no OpenCL, NVRTC or hipRTC build was seen" in " ".join(done.stdout.split())
