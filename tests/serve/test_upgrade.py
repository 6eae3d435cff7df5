"""Upgrade and rollback: this version and the one before its last change of a format, on one root."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.children import run_text
from tests.serve.conftest import PROGRAM
from tests.serve.test_nvrtc import installed  # noqa: F401 - a fixture

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="run is for Linux")]
_TOP = Path(__file__).parents[2]
_FORMATS = ("gpucache/serve/index.py", "gpucache/store/format.py", "gpucache/store/layout.py")
_VERSION = "VERSION.* = "
"""In a line that such a change has changed."""
_NVRTC_PROGRAM = PROGRAM.with_name("nvrtc_program.py")
_NEW, _OLD = "new", "old"


def _git(*words: str) -> bytes:
    return subprocess.run(["git", "-C", _TOP, *words], capture_output=True, check=True).stdout


@pytest.fixture(scope="session")
def before(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The package as it was before the last change of a format, with its libraries; kept for each commit."""
    try:
        commit = _git("log", "-1", "--format=%H", f"-G{_VERSION}", "--", *_FORMATS).decode().strip()
        archive = _git("archive", f"{commit}^", "gpucache")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no clone with the commit before the last change of a format")
    cache = getattr(request.config, "cache", None)  # there is none where pytest is told to keep nothing
    kept = Path(cache.mkdir("before")) if cache else tmp_path_factory.mktemp("before")
    place = kept / f"{commit}-{sys.implementation.cache_tag}"
    if not place.is_dir():
        made = Path(tempfile.mkdtemp(dir=kept))
        subprocess.run(["tar", "-x", "-C", made], input=archive, check=True)
        build = (sys.executable, "-m", "gpucache.native.build")
        subprocess.run(build, cwd=made, env={**os.environ, "PYTHONPATH": str(made)}, check=True)
        try:
            made.rename(place)
        except OSError:  # another worker was faster
            shutil.rmtree(made)
    yield place


class Both:
    """Two versions of gpucache with one root."""

    def __init__(self, environment: dict[str, str], before: Path, folder: Path) -> None:
        self._trees = {_NEW: _TOP, _OLD: before}
        self._environment, self._folder = environment, folder

    def call(self, version: str, *words: object, **variables: str) -> "subprocess.CompletedProcess[str]":
        """The end of a command line of one version."""
        environ = {**self._environment, "PYTHONPATH": str(self._trees[version]), **variables}
        return run_text((sys.executable, *words), env=environ, cwd=self._folder)

    def start(self, version: str, command: Sequence[object], result: str = "") -> str:
        """The output of a program below ``run``, which says nothing but how many builds had which result."""
        done = self.call(version, "-m", "gpucache", "run", "--", *command)
        (line,) = done.stderr.splitlines()
        assert done.returncode == 0 and line.startswith("gpucache: ") and result in line, done.stderr
        return done.stdout

    def checked(self, version: str) -> str:
        """The number of entries that one version finds in the whole root, all of them sound."""
        done = self.call(version, "-m", "gpucache", "verify")
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout.splitlines()[-1].split()[0]


@pytest.fixture
def both(environment: dict[str, str], before: Path, tmp_path: Path) -> Both:
    made = Both(environment, before, tmp_path)
    for version, tree in ((_NEW, _TOP), (_OLD, before)):
        done = made.call(version, "-c", "import gpucache; print(gpucache.__file__)")
        assert Path(done.stdout.strip()).parent.parent == tree
    return made


@pytest.mark.usefixtures("installed")
def test_an_upgrade_and_a_rollback_lose_no_entry(both: Both) -> None:
    """Each version hits what the other has kept, at every start, and keeps what the other then hits."""
    opencl = [(sys.executable, PROGRAM, "Intel", factor) for factor in ("2", "3")]
    nvrtc = [(sys.executable, _NVRTC_PROGRAM, "core", what) for what in ("plain", "lines")]
    for first, second in ((opencl[0], nvrtc[0]), (opencl[1], nvrtc[1])):
        for version, other in ((_OLD, _NEW), (_NEW, _OLD)):
            command = first if version == _OLD else second
            out = both.start(version, command, "0 hits")
            for hitting in (other, other, version, version):
                assert both.start(hitting, command, "0 misses") == out
    assert both.checked(_OLD) == both.checked(_NEW)


def test_a_header_that_changes_between_versions_is_never_served_stale(both: Both, tmp_path: Path) -> None:
    """Neither by the rows of the other version nor by older ones of the same."""
    (tmp_path / "program.py").write_text(_HEADER)
    command = (sys.executable, "program.py")
    for value in ("1", "2", "1", "3"):
        (tmp_path / "value.h").write_text(f"#define VALUE {value}\n")
        for version in (_OLD, _NEW, _OLD, _NEW):
            assert both.start(version, command).strip() == value


_HEADER = """
import warnings
import numpy as np, pyopencl as cl
warnings.simplefilter("ignore")
platform = next(each for each in cl.get_platforms() if each.name.startswith("Intel"))
context = cl.Context(platform.get_devices()[:1])
queue, out = cl.CommandQueue(context), np.zeros(1, np.int32)
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4)
source = '#include "value.h"\\nkernel void f(global int *a) { *a = VALUE; }'
cl.Program(context, source).build(["-I", "."]).f(queue, (1,), (1,), buffer)
cl.enqueue_copy(queue, out, buffer)
print(out[0])
"""


def test_both_versions_at_once_share_a_root(both: Both) -> None:
    """Whichever is first, each program gets its own result, and the root has one entry for each."""
    commands = [(sys.executable, PROGRAM, "Intel", factor) for factor in ("2", "3", "4")]
    starts = [(version, command) for command in commands for version in (_OLD, _NEW, _OLD, _NEW)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda one: both.start(*one), starts))
    assert found == [f"{64 * int(command[-1])}.0\n" for _, command in starts]
    for version in (_OLD, _NEW):
        assert both.checked(version) == "3"
        for command in commands:
            both.start(version, command, "0 misses")


def test_a_root_that_either_version_warmed_serves_the_other(both: Both, tmp_path: Path) -> None:
    """The rows of the one mean nothing to the other, which hits by key."""
    command = (sys.executable, PROGRAM, "Intel", "2")
    recorded = both.call(_OLD, "-m", "gpucache", "record", "-o", tmp_path / "recording", "--", *command)
    assert recorded.returncode == 0, recorded.stderr
    warm = ("-m", "gpucache", "warm", "--recording", tmp_path / "recording")
    for version, other in ((_OLD, _NEW), (_NEW, _OLD)):
        assert both.call(version, *warm).returncode == 0
        for _ in range(2):
            assert both.start(other, command, "0 misses") == "128.0\n"
