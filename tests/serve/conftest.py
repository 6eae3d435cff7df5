"""Real commands under ``gpucache run``: its libraries, the OpenCL platforms, and its reports."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpucache.errors import NoDeviceError
from gpucache.native.build import BUILT, STARTER, build, find_compiler
from gpucache.native.locate import locate
from gpucache.serve.environment import TIMEOUT
from tests.children import run_text
from tests.patience import TIME_OUT_MS

PROGRAM = Path(__file__).with_name("program.py")


@dataclass(frozen=True, slots=True)
class Done:
    """How a command under ``gpucache run`` ended, and the report of its builds."""

    code: int
    out: str
    err: str
    report: Any

    @property
    def results(self) -> list[str]:
        return [one["result"] for one in self.report["outcomes"]]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers in the process of a test wait for locks, threads and the disk as long as those of commands."""
    monkeypatch.setenv(TIMEOUT, TIME_OUT_MS)


@pytest.fixture(scope="session")
def layer() -> Path:
    """The library for OpenCL's loader, built here if the installation did not."""
    if sys.platform != "linux":
        pytest.skip("commands are intercepted on Linux")
    try:
        return locate("opencl_layer")
    except NoDeviceError:
        compiler = find_compiler()
        if compiler is None:
            pytest.skip("no C compiler is here")
        build(compiler, BUILT)
    try:
        return locate("opencl_layer")
    except NoDeviceError as error:
        pytest.skip(str(error))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """This test's own cache directory, not created yet."""
    return tmp_path / "root"


@pytest.fixture
def environment(opencl_environment: Mapping[str, str], layer: Path, root: Path) -> dict[str, str]:
    """The environment of a command that sees Intel's runtime, PoCL and this test's own cache."""
    return {**opencl_environment, "GPUCACHE_DIR": str(root), "PYOPENCL_NO_CACHE": "1", TIMEOUT: TIME_OUT_MS}


@pytest.fixture
def gpucache(environment: dict[str, str]) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    def call(*arguments: object, **variables: str) -> "subprocess.CompletedProcess[str]":
        return run_text([sys.executable, "-m", "gpucache", *arguments], env={**environment, **variables})

    return call


@pytest.fixture
def run(gpucache: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path) -> Callable[..., Done]:
    """Run a command under ``gpucache run``; a first argument ``--learn`` is for gpucache."""

    def call(*command: object, **variables: str) -> Done:
        report = tmp_path / "report.json"
        report.unlink(missing_ok=True)
        learn, rest = command[:1] if command[:1] == ("--learn",) else (), command
        done = gpucache("run", *learn, "--report", report, "--", *rest[len(learn) :], **variables)
        document = json.loads(report.read_text()) if report.exists() else None
        return Done(done.returncode, done.stdout, done.stderr, document)

    return call


@pytest.fixture
def run_without_python(environment: dict[str, str]) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Run a command under the part of ``gpucache run`` in C alone; it exits with 99 where it needs Python."""
    none = ("sh", "-c", "exit 99")
    environ = {name: value for name, value in environment.items() if name != "GPUCACHE_MEMORY_BYTES"}

    def call(*command: object, **variables: str) -> "subprocess.CompletedProcess[str]":
        words = (BUILT / STARTER, f"--by={len(none)}", *none, "run", "--", *command)
        return run_text(words, env={**environ, **variables})

    return call


@pytest.fixture
def program(run: Callable[..., Done]) -> Callable[..., Done]:
    """Run the PyOpenCL program of these tests under ``gpucache run``."""

    def call(*arguments: object, learn: bool = False, **variables: str) -> Done:
        mode = ("--learn",) if learn else ()
        return run(*mode, sys.executable, PROGRAM, *arguments, **variables)

    return call


def without_us(environment: Mapping[str, str], *arguments: object) -> str:
    """The output of these tests' program when it runs without gpucache."""
    done = run_text([sys.executable, PROGRAM, *arguments], env={**os.environ, **environment}, check=True)
    return done.stdout
