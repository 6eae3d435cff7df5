"""Trees of headers, search rules as tried, and real compilers in child processes."""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from gpucache.backends.interface import load_backend
from gpucache.model import BuildRequest, Program, Target, Toolchain
from gpucache.sources import SearchRule
from tests.patience import PATIENCE_S
from tests.pocl import name_pocl, need_pocl

_PROCESS = Path(__file__).with_name("compiler_process.py")


@dataclass(frozen=True, slots=True)
class Job:
    """One source to compile."""

    source: str
    options: Sequence[str]
    cwd: Path


@dataclass(frozen=True, slots=True)
class RealCompiler:
    """A compiler installed here, run in a separate process."""

    name: str
    rule: SearchRule
    environment: Mapping[str, str]

    def values(self, jobs: Sequence[Job], *, wrapper: Sequence[str] = ()) -> list[int | str]:
        """V's value in each job, or the compiler's message; ``wrapper`` is a command to run it under."""
        request = {
            "compiler": self.name,
            "jobs": [{"source": job.source, "options": [*job.options], "cwd": str(job.cwd)} for job in jobs],
        }
        done = subprocess.run(
            [*wrapper, sys.executable, str(_PROCESS)],
            input=json.dumps(request),
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
        answers: list[int | str] = json.loads(done.stdout)
        return answers


def _rule(name: str, environ: Mapping[str, str]) -> SearchRule:
    """The rule with which a build for this implementation is planned."""
    backend = load_backend("cuda" if name == "nvrtc" else "opencl")
    program = Program("show", backend.language, b"")
    return backend.plan(BuildRequest(program, _TARGET), Toolchain(name, (), ()), environ).rule


def _need_package(name: str) -> None:
    try:
        distribution(_PACKAGES[name])
    except PackageNotFoundError:
        pytest.skip(f"{_PACKAGES[name]} is not installed")


_TARGET = Target.parse("cuda:compute_80")
_PACKAGES = {"intel": "intel-opencl-rt", "nvrtc": "nvidia-cuda-nvrtc"}


@pytest.fixture
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], RealCompiler]:
    """A real compiler by name; skips if its package is not installed."""

    def find(name: str) -> RealCompiler:
        vendors = tmp_path_factory.mktemp("vendors")
        if name == "pocl":
            need_pocl()
            name_pocl(vendors)
        else:
            _need_package(name)
        if name == "intel":
            library = Path(sysconfig.get_path("data"), "lib", "libintelocl.so")
            (vendors / "intel.icd").write_text(f"{library}\n")
        environment = {
            "OCL_ICD_VENDORS": str(vendors),
            "POCL_CACHE_DIR": str(tmp_path_factory.mktemp("pocl")),
        }
        return RealCompiler(name, _rule(name, environment), environment)

    return find


@pytest.fixture
def job() -> type[Job]:
    return Job


@pytest.fixture
def tree(tmp_path: Path) -> Callable[..., Path]:
    """Writes files below a directory: ``tree({"a/x.h": b"..."})``; a value of type str makes a link."""

    def write(files: Mapping[str, bytes | str], *, root: str = "tree") -> Path:
        for name, content in files.items():
            path = tmp_path / root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, str):
                path.symlink_to(content)
            else:
                path.write_bytes(content)
        (tmp_path / root).mkdir(exist_ok=True)
        return tmp_path / root

    return write
