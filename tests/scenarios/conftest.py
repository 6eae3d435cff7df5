"""Requests as compilers would get them, builds that compile nothing, and programs that really compile."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpucache.answers.lookup import Built, Hit
from gpucache.assembly import open_stores
from gpucache.engine.lookup import get_or_build, look_up
from gpucache.engine.prepare import Prepared
from gpucache.engine.stores import Stores
from gpucache.model import Artifact
from gpucache.settings import read_settings
from gpucache.store.directory import DirectoryStore
from tests.children import run_text
from tests.engine.conftest import make_ready
from tests.pocl import PLATFORM, need_pocl

PLAIN = 'extern "C" __global__ void show(int *out) {\n  *out = 7;\n}\n'
_LOGGER = logging.getLogger(__name__)
_LIBRARY_PROCESS = Path(__file__).parents[1] / "library_process.py"
_PAYLOADS = {"cuda": b".version 8.0\n.target sm_90\n", "opencl": b"compiled"}


@dataclass(frozen=True, slots=True)
class Told:
    """The result of a lookup: ``hit`` or the verdict, the labels of the differences, and the words."""

    verdict: str
    labels: tuple[str, ...] = ()
    detail: str = ""

    @property
    def causes(self) -> tuple[str, ...]:
        return tuple(label for label in self.labels if label != "resolution of includes")


def _keep(stores: Stores, prepared: Prepared) -> None:
    request = prepared.request
    artifact = Artifact(request.artifact_kind, _PAYLOADS[request.target.backend])
    assert isinstance(get_or_build(stores, prepared, lambda: artifact), Built)


def _tell(stores: Stores, prepared: Prepared) -> Told:
    found = look_up(stores, prepared)
    if isinstance(found, Hit):
        return Told("hit")
    return Told(found.verdict.value, tuple(item.label for item in found.differences), found.detail)


def _last(root: Path) -> Told:
    record: dict[str, Any] = next(
        record for record in DirectoryStore(root, writable=False).journal_tail(8) if record["kind"] == "miss"
    )
    labels = tuple(item["label"] for item in record["differences"])
    return Told(record["verdict"], labels, record["detail"])


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a scenario."""

    tmp: Path
    program: Callable[..., list[dict[str, Any]]]
    gpucache: Callable[..., subprocess.CompletedProcess[str]]

    @property
    def root(self) -> Path:
        return self.tmp / "cache"

    @property
    def store(self) -> DirectoryStore:
        return DirectoryStore(self.root, writable=True)

    def stores(self, *, root: Path | None = None, **environ: str) -> Stores:
        return open_stores(read_settings({"GPUCACHE_DIR": str(root or self.root), **environ}))

    def built(self, source: str = PLAIN, **how: Any) -> Prepared:
        prepared = make_ready(source, **how)
        _keep(self.stores(), prepared)
        return prepared

    def asked(self, source: str = PLAIN, **how: Any) -> Told:
        return self.tell(self.stores(), make_ready(source, **how))

    def ready(self, source: str = PLAIN, **how: Any) -> Prepared:
        return make_ready(source, **how)

    def tell(self, stores: Stores, prepared: Prepared) -> Told:
        return _tell(stores, prepared)

    def last(self) -> Told:
        return _last(self.root)

    def fits(self, name: str, told: Told, verdict: str, words: tuple[str, ...]) -> None:
        """Compare a result with a row; ``{tmp}`` and ``{default}`` in its words are directories."""
        _LOGGER.info("%s: %s %s %s", name, told.verdict, list(told.labels), told.detail)
        assert told.verdict == verdict, told
        default = Path(os.environ["XDG_CACHE_HOME"], "gpucache")
        for part in words:
            assert part.format(tmp=self.tmp, default=default) in told.detail

    def folder(self, name: str, **headers: str) -> Path:
        """A directory with headers: ``folder("include", value="7")`` contains ``value.h``."""
        folder = self.tmp / name
        folder.mkdir(exist_ok=True)
        for header, value in headers.items():
            (folder / f"{header}.h").write_text(f"#define VALUE {value}\n", encoding="ascii")
        return folder


@pytest.fixture
def ready() -> Callable[..., Prepared]:
    return make_ready


@pytest.fixture
def keep() -> Callable[[Stores, Prepared], None]:
    """Publish something for a request, which must have missed."""
    return _keep


@pytest.fixture
def tell() -> Callable[[Stores, Prepared], Told]:
    """A function that returns the result of a lookup."""
    return _tell


@pytest.fixture
def last() -> Callable[[Path], Told]:
    """A function that returns the newest miss in the journal of a root."""
    return _last


@pytest.fixture
def program(request: pytest.FixtureRequest) -> Callable[..., list[dict[str, Any]]]:
    """The outcomes of jobs in a program that uses the library: ``program("opencl", root, job, ...)``."""

    def program(
        backend: str, root: Path, *jobs: Mapping[str, Any], preload: Path | None = None, **more: str
    ) -> list[dict[str, Any]]:
        if backend == "opencl":
            if any(job["platform"] == PLATFORM for job in jobs):
                need_pocl()
            more = {**request.getfixturevalue("opencl_environment"), **more}
        else:
            pytest.importorskip("cuda.bindings.nvrtc")
        begin = (
            "import ctypes, runpy, sys\nif sys.argv[3:]: ctypes.CDLL(sys.argv[3], mode=ctypes.RTLD_GLOBAL)\n"
        )
        run = "sys.argv.pop(0)\nrunpy.run_path(sys.argv[0], run_name='__main__')"
        done = run_text(
            [
                sys.executable,
                "-c",
                begin + run,
                str(_LIBRARY_PROCESS),
                backend,
                *([preload] if preload else []),
            ],
            input=json.dumps(jobs),
            env={**os.environ, "GPUCACHE_MEMORY_BYTES": "0", "GPUCACHE_DIR": str(root), **more},
        )
        assert done.returncode == 0, done.stderr
        outcomes: list[dict[str, Any]] = json.loads(done.stdout.removeprefix("ready\n"))
        assert [outcome["error"] for outcome in outcomes] == [None] * len(jobs)
        return outcomes

    return program


@pytest.fixture
def gpucache() -> Callable[..., subprocess.CompletedProcess[str]]:
    def gpucache(root: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return run_text(
            [sys.executable, "-m", "gpucache", "--root", str(root), *arguments], env={**os.environ, **more}
        )

    return gpucache


@pytest.fixture
def parts(
    tmp_path: Path,
    program: Callable[..., list[dict[str, Any]]],
    gpucache: Callable[..., subprocess.CompletedProcess[str]],
) -> Parts:
    return Parts(tmp_path, program, gpucache)
