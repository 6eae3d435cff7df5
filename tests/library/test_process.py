"""The traces of a process that uses the library: its counts, its log lines, its errors."""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gpucache.library import outcomes, process
from gpucache.store.directory import DirectoryStore
from gpucache.store.interface import Event
from tests.children import run_text
from tests.nvrtc import need_nvrtc

_PROGRAM = """\
import logging, sys
from gpucache.cuda import compile_program

KERNEL = 'extern "C" __global__ void show(int *out) { *out = VALUE; }'
if "logging" in sys.argv:
    logging.basicConfig(format="own: %(message)s")
for value in range(int(sys.argv[1])):
    for _ in range(2):
        compile_program(KERNEL, target="sm_90", options=[f"-DVALUE={value}"])
"""

Process = dict[str, Any]


@pytest.fixture
def environment(root: Path) -> dict[str, str]:
    return {**os.environ, "GPUCACHE_DIR": str(root)}


@pytest.fixture
def run(tmp_path: Path, environment: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a program that compiles each of a number of kernels twice."""
    need_nvrtc()
    program = tmp_path / "solver.py"
    program.write_text(_PROGRAM, encoding="ascii")

    def run(*words: object, **settings: str) -> subprocess.CompletedProcess[str]:
        return run_text([sys.executable, str(program), *map(str, words)], env={**environment, **settings})

    return run


def _processes(root: Path) -> list[tuple[object, object, object]]:
    records = DirectoryStore(root, writable=False).journal_tail(100)
    return [
        (record["command"], record["hits"], record["misses"])
        for record in records
        if record["kind"] == "process"
    ]


def test_hits_and_misses_are_counted_when_a_process_ends(
    run: Callable[..., subprocess.CompletedProcess[str]], root: Path
) -> None:
    """One line has the command's name without its directory, hits and misses; hits in memory count."""
    assert run(2).returncode == 0
    assert _processes(root) == [("solver.py", 2, 2)]
    assert run(2).returncode == 0
    assert _processes(root)[0] == ("solver.py", 4, 0)


@pytest.mark.parametrize("setting", ["GPUCACHE_READ_ONLY", "GPUCACHE_DISABLE"])
def test_nothing_is_counted_where_nothing_may_be_written(
    run: Callable[..., subprocess.CompletedProcess[str]], root: Path, setting: str
) -> None:
    """A read-only or disabled cache gets no line and is not made."""
    assert run(1, **{setting: "1"}).returncode == 0
    assert not root.exists()


@pytest.mark.slow
def test_log_lines_need_no_change_of_code(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """GPUCACHE_LOG=info prints one line for each hit or miss on stderr, warning none."""
    miss, hit = run(1, GPUCACHE_LOG="info").stderr.splitlines()
    assert miss.startswith("gpucache: miss show for cuda:sm_90: never-built: ")
    assert hit.startswith("gpucache: hit show for cuda:sm_90: ") and hit.endswith(" in memory")
    assert run(1, GPUCACHE_LOG="warning").stderr == run(1).stderr == ""
    (told,) = run(1, GPUCACHE_LOG="loud").stderr.splitlines()
    assert "GPUCACHE_LOG=loud is not a level" in told


def test_no_name_breaks_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Names of programs and values of options are foreign text, and a log is read on terminals."""
    process.say_once("no \x1b[31m\nsecond line: \x9b1m\r\u202e")
    assert [record.getMessage() for record in caplog.records] == [
        "no \ufffd[31m\ufffdsecond line: \ufffd1m\ufffd\ufffd"
    ]


def test_a_misspelt_variable_is_a_warning(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """A program is warned once of a variable similar to ours."""
    (told,) = run(2, GPUCACHE_DISABEL="1").stderr.splitlines()
    assert "GPUCACHE_DISABEL" in told and "GPUCACHE_DISABLE does" in told


def test_a_program_that_logs_gets_each_line_once(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """Where the program has its own handlers, the lines go there and nowhere else."""
    lines = run(1, "logging", GPUCACHE_LOG="info").stderr.splitlines()
    assert [line.split()[:2] for line in lines] == [["own:", "miss"], ["own:", "hit"]]


def test_threads_that_begin_at_once_print_each_line_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads that both find the logger without a handler add one."""
    logger, together = logging.Logger("alone"), threading.Barrier(2, timeout=60)
    kind = logging.StreamHandler

    def handler() -> logging.Handler:
        together.wait()  # so both have looked before either adds its own
        return kind()

    monkeypatch.setattr(process, "_logger", lambda: logger)
    monkeypatch.setattr(process, "_HANDLER", {})
    monkeypatch.setattr(logging, "StreamHandler", handler)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(process._listen, ["info", "info"]))
    assert len(logger.handlers) == 1


@pytest.mark.slow
def test_a_required_hit_raises_in_the_program(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """With GPUCACHE_REQUIRE a miss raises CacheMissError with the verdict; an existing entry hits."""
    missed = run(1, GPUCACHE_REQUIRE="1")
    assert missed.returncode == 1
    assert "CacheMissError: show for cuda:sm_90 is not in the cache" in missed.stderr
    assert "never-built" in missed.stderr
    assert run(1).returncode == 0
    assert run(1, GPUCACHE_REQUIRE="1").returncode == 0


@pytest.mark.parametrize(("name", "starts"), [("python3.13", 1), ("PyPy", 1), ("editor", 0), ("", 0)])
def test_only_an_interpreter_is_started_to_learn(
    name: str, starts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If sys.executable is an application that embeds Python, it is not started again."""
    started: list[object] = []
    monkeypatch.setattr(sys, "executable", name and str(tmp_path / name))
    monkeypatch.setattr(subprocess, "Popen", lambda argv, **_: started.append(argv))
    learner = outcomes._Learner()
    learner._roots.add(tmp_path)
    learner.start()
    assert len(started) == starts


@pytest.mark.slow
def test_a_limit_holds_for_what_is_no_entry_too(
    run: Callable[..., subprocess.CompletedProcess[str]], root: Path
) -> None:
    """If programs bound the cache, records of removed ones take at most a quarter of it beside the log."""
    store = DirectoryStore(root, writable=True)
    for number in range(800):
        event = Event(number, "built", 64 * "0", "cuda:sm_90", 500 * "x")
        store.history.record(f"program {number}", event)
    before = store.beside_bytes()
    assert run(1, GPUCACHE_MAX_SIZE=str(2 * before)).returncode == 0
    assert store.beside_bytes() < before and len(list(store.scan())) == 1
