"""``gpucache inspect --watch``: a line for each entry that a real program writes, as it is written."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from tests.caches.pyopencl.build import info
from tests.children import run_text
from tests.patience import PATIENCE_S

pytest.importorskip("watchfiles", reason="the extra watch is not installed")
pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX end it"),
    pytest.mark.slow,
]
BUILD = """
import sys, pyopencl as cl
(device,) = [one for it in cl.get_platforms() for one in it.get_devices() if "Intel" in it.name][:1]
cl.Program(cl.Context([device]), "__kernel void %s(__global int *a) { *a = 1; }" % sys.argv[1]).build()
"""
HOLD = """
import sys
with open(sys.argv[1], "wb") as file:
    file.write(bytes(4096)); file.flush(); print(flush=True); sys.stdin.read()
"""
LOCK = """
import fcntl, os, sys
with open(sys.argv[1], "wb") as file:
    fcntl.flock(file, fcntl.LOCK_EX); os.utime(file.fileno(), (1, 1)); print(flush=True); sys.stdin.read()
"""


class Watching:
    """A running watch that has begun, whose output is read line by line."""

    def __init__(self, environment: Mapping[str, str], *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gpucache", *options, "inspect", "--watch"],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._lines: queue.Queue[str] = queue.Queue()
        assert self.process.stdout and self.process.stderr
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.began = "" if options else self.process.stderr.readline()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._lines.put(line)

    def close(self) -> None:
        self.process.kill()
        self._reader.join(PATIENCE_S)
        with self.process:  # its pipes are closed
            pass

    def line(self, timeout_s: float = PATIENCE_S) -> str:
        return self._lines.get(timeout=timeout_s)

    def rest(self) -> Iterator[str]:
        """Every line that was not asked for, once the watch has ended."""
        self._reader.join(PATIENCE_S)
        while not self._lines.empty():
            yield self._lines.get()

    def end(self, number: int) -> tuple[int, str]:
        self.process.send_signal(number)
        assert self.process.stderr
        said = self.process.stderr.read()
        return self.process.wait(PATIENCE_S), said


Start = Callable[..., Watching]


@pytest.fixture
def environment(tmp_path: Path, vendors: Path) -> Mapping[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("GPUCACHE_")}
    return {
        **own,
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "OCL_ICD_VENDORS": str(vendors),
        "CUPY_CACHE_DIR": str(tmp_path / "cupy"),
    }


@pytest.fixture
def start(environment: Mapping[str, str]) -> Iterator[Start]:
    started: list[Watching] = []

    def begin(*options: str) -> Watching:
        started.append(Watching(environment, *options))
        return started[-1]

    yield begin
    for one in started:
        one.close()


def _build(kernel: str, environment: Mapping[str, str]) -> None:
    """Let PyOpenCL build a program on Intel's CPU runtime."""
    command = [sys.executable, "-W", "ignore", "-c", BUILD, kernel]
    subprocess.run(command, env=environment, check=True, timeout=PATIENCE_S, capture_output=True)


def test_each_entry_is_a_line_as_it_is_written(
    start: Start, environment: Mapping[str, str], intel: str
) -> None:
    """Also in a cache whose directory appears later, and once however many files an entry has."""
    watching = start()
    assert watching.began.startswith("watching ")
    for kernel in ("first", "second"):
        _build(kernel, environment)
        line = watching.line()
        assert "pyopencl" in line and kernel in line
    code, said = watching.end(signal.SIGINT)
    assert (code, said.strip()) == (130, "gpucache: interrupted; 2 entries were written")


def test_what_warm_writes_is_told(
    start: Start, environment: Mapping[str, str], nvrtc: str, tmp_path: Path
) -> None:
    """Our own cache is watched too, and SIGTERM ends a watch like Ctrl-C."""
    watching = start()
    source = tmp_path / "one.cu"
    source.write_text('extern "C" __global__ void one(int *a) { *a = 1; }\n', encoding="ascii")
    command = [sys.executable, "-m", "gpucache", "warm", str(source), "--target", nvrtc]
    subprocess.run(command, env=environment, check=True, timeout=PATIENCE_S, capture_output=True)
    line = watching.line()
    assert "gpucache" in line and "one.cu" in line and nvrtc in line
    assert watching.end(signal.SIGTERM)[0] == 130


def test_a_program_that_still_writes_is_named(
    start: Start, environment: Mapping[str, str], tmp_path: Path
) -> None:
    """It is named by number and command, as it has the file open for writing."""
    (tmp_path / "cupy").mkdir()
    watching = start()
    file = tmp_path / "cupy" / ("0" * 40 + ".cubin")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        line = watching.line()
        assert f"({writer.pid})" in line and "cupy" in line
        writer.communicate(timeout=PATIENCE_S)


def test_an_entry_that_grows_is_told_as_such_and_counted_once(
    start: Start, environment: Mapping[str, str], tmp_path: Path
) -> None:
    """Its further lines have only the new size, and the end counts entries, not lines."""
    (tmp_path / "cupy").mkdir()
    watching = start()
    file = tmp_path / "cupy" / ("0" * 40 + ".cubin")
    file.write_bytes(bytes(4096))
    first = watching.line()
    with file.open("ab") as more:
        more.write(bytes(8192))
    second = watching.line()
    assert "4.0 KiB" in first and "grew" not in first
    assert second.split("  ", 1)[1].strip() == "cupy  000000000000  grew to 12.0 KiB"
    assert watching.end(signal.SIGINT) == (130, "\ngpucache: interrupted; 1 entry was written\n")


def test_half_an_entry_is_named_once_it_is_whole(
    start: Start, environment: Mapping[str, str], tmp_path: Path
) -> None:
    """PyOpenCL writes a binary before its record of the build, without which no program uses it."""
    folder = tmp_path / "cache/pyopencl/pyopencl-compiler-cache-v2-py3.11.7.final.0" / ("a" * 32)
    folder.mkdir(parents=True)
    (tmp_path / "cupy").mkdir()
    watching = start()
    (folder / "binary").write_bytes(b"x")
    (tmp_path / "cupy" / ("0" * 40 + ".cubin")).write_bytes(bytes(4096))
    assert "cupy" in watching.line()
    (folder / "info").write_bytes(info())
    assert "pyopencl" in watching.line()


def test_with_json_each_entry_is_an_object_on_a_line(
    start: Start, environment: Mapping[str, str], intel: str
) -> None:
    """Each line has the keys of an entry; the end of the watch is a line too."""
    watching, line = start("--json"), ""
    for number in range(20):  # it does not say when it begins
        _build(f"kernel{number}", environment)
        with suppress(queue.Empty):
            line = watching.line(timeout_s=3)
            break
    told = json.loads(line)
    assert (told["cache"], told["target"], told["writers"]) == ("pyopencl", "Intel CPU", {})
    assert told["root"].startswith(environment["XDG_CACHE_HOME"])
    assert watching.end(signal.SIGINT)[0] == 130
    *more, last = map(json.loads, watching.rest())
    assert all(one["cache"] == "pyopencl" for one in more)
    assert last["error"]["message"].startswith("interrupted; ")


def test_a_watch_ends_when_its_reader_does(environment: Mapping[str, str]) -> None:
    """It does not wait for another entry, which would not be read; that is not an error."""
    command = [sys.executable, "-m", "gpucache", "inspect", "--watch"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout and watching.stderr
        assert watching.stderr.readline().startswith("watching ")
        watching.stdout.close()
        assert (watching.wait(PATIENCE_S), watching.stderr.read()) == (0, "")


def test_without_the_library_the_extra_is_named(environment: Mapping[str, str]) -> None:
    """The message names the library, and its absence breaks nothing else."""
    script = "import sys; sys.modules['watchfiles'] = None; from gpucache.cli import main; sys.exit(main())"
    done = run_text([sys.executable, "-c", script, "inspect", "--watch"], env=environment)  # fmt: skip
    assert done.returncode == 2 and "pip install watchfiles" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists locks")
def test_a_compile_that_runs_is_named(start: Start, tmp_path: Path) -> None:
    """Its process, its command and its lock, which tells a hung program from one that compiles."""
    lock = tmp_path / "cache" / "gpucache" / "v1" / "ab.lock"
    lock.parent.mkdir(parents=True, mode=0o700)
    with subprocess.Popen(
        [sys.executable, "-c", LOCK, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as one:
        assert one.stdout and one.stdout.readline()
        told = json.loads(start("--json").line())
        one.communicate()
    assert (told["process"], told["lock"], "fcntl" in told["command"]) == (str(one.pid), str(lock), True)
