"""Isolation of every test from its machine, and the places of real OpenCL runtimes."""

import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings

import gpucache
from gpucache.caches import systems
from gpucache.caches.places import Temporary
from gpucache.store.directory import DirectoryStore
from tests.gpu import no_gpu, no_nvidia_opencl
from tests.pocl import name_pocl

# The hundreds of workers and programs that tests start share Python's compiled modules.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
_INHERITED = re.compile(
    "PATH|LD_LIBRARY_PATH|PYTHON(PATH|HASHSEED)|TMPDIR|TE?MP|SYSTEMROOT|COMSPEC|PATHEXT|"
    "(PYTEST|COV|COVERAGE|PIP|SSL_CERT|NVIDIA|CUDA_VISIBLE|OMPI)_.*"
)
"""The variables that tests and their programs inherit; any other may configure us or a compiler."""
# The same examples in every run, however slow the machine; nothing is written next to the sources.
settings.register_profile("repeatable", deadline=None, derandomize=True, database=None, max_examples=25)
settings.load_profile("repeatable")

_PLACES = ("HOME", "XDG_CACHE_HOME", "POCL_CACHE_DIR")
"""The variables that, with TMPDIR, put caches below directories of the tests."""
_OTHERWISE_FOR_ALL_USERS = (
    "OPTIX_CACHE_PATH",
    "OPENCV_OPENCL_CACHE_DIR",
    "NEURON_COMPILE_CACHE_URL",
    "TT_METAL_CACHE",
)
_RECORD = Path(__file__).with_name("record") / "sitecustomize.py"
"""Does so for owners that read the user's record, in this process and in those that it starts."""
_PACKAGE_PARENT = Path(gpucache.__file__).parents[1]

# A process in a shell's background ignores interrupts, and one under nohup a hangup; so would every child
# that a test interrupts.
for _number, _usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked ``gpu`` without a GPU."""
    if item.get_closest_marker("gpu") and (why := no_gpu()):
        pytest.skip(why)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root of a cache of this test alone, which does not exist yet."""
    return tmp_path / "cache"


@pytest.fixture
def store(root: Path) -> DirectoryStore:
    return DirectoryStore(root, writable=True)


@pytest.fixture(scope="session", autouse=True)
def clean_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """No setting of ours or of a compiler is inherited; children import the package under test.

    Gives the directory that fixed places, such as ``/tmp/pocl``, are below.
    """
    before = os.umask(0o022)
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="tests-") as temporary:
        Path(temporary).chmod(0o711)  # some tests look at it as another user
        for name in [name for name in os.environ if not _INHERITED.fullmatch(name)]:
            patch.delenv(name)
        patch.setenv("LANG", "C.UTF-8")
        patch.setenv("LOGNAME", "gpucache-tests")  # in the names of some caches below /tmp
        patch.setenv("NO_COLOR", "1")
        patch.setenv("COLUMNS", "80")
        for name in _PLACES:
            patch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))
        patch.setenv("TMPDIR", temporary)
        patch.setattr(tempfile, "tempdir", None)
        record = tmp_path_factory.mktemp("record")
        for name in _OTHERWISE_FOR_ALL_USERS:
            patch.setenv(name, str(record / name.lower()))
        shutil.copy(_RECORD, record)
        if sys.platform != "win32":
            import pwd

            patch.setattr(pwd, "getpwuid", pwd.getpwuid)  # so that it is as before in the end
        runpy.run_path(str(record / _RECORD.name))
        _move_fixed_places(patch, record)
        path = os.environ.get("PYTHONPATH", "")
        checkout = str(Path(__file__).parents[1])  # for those that import from tests
        found = filter(None, [str(record), str(_PACKAGE_PARENT), checkout, path])
        patch.setenv("PYTHONPATH", os.pathsep.join(found))
        yield record
    os.umask(before)


def _move_fixed_places(patch: pytest.MonkeyPatch, below: Path) -> None:
    """Put the places that no variable of an environment names, such as in ``/var/tmp``, below a directory.

    Tests ask in this process for the places of environments without any variable.
    """
    find = Temporary.find

    def moved(self: Temporary, environ: Mapping[str, str]) -> tuple[Path, str] | None:
        found = find(self, environ)
        return (Path(f"{below}{found[0]}"), found[1]) if found and found[1] == "default" else found

    patch.setattr(Temporary, "find", moved)
    patch.setattr(systems, "_OPENCV_SHARED", Path(f"{below}{systems._OPENCV_SHARED}"))


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Directories, one for each test; made without listing the existing ones, as ``mktemp`` does."""
    place = tmp_path_factory.mktemp("homes")
    return (place / str(number) for number in count())


@pytest.fixture(autouse=True)
def own_home(homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A home and a cache directory for this test alone."""
    place = next(homes)
    for name, folder in (("HOME", place / "home"), ("XDG_CACHE_HOME", place / "xdg-cache")):
        folder.mkdir(parents=True)
        monkeypatch.setenv(name, str(folder))


@pytest.fixture(scope="session")
def icd_vendors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that names Intel's CPU runtime to the OpenCL loader, and a PoCL if necessary."""
    library = Path(sys.prefix, "lib", "libintelocl.so")
    if not library.is_file():
        pytest.skip("intel-opencl-rt is not installed: no libintelocl.so below sys.prefix")
    vendors = tmp_path_factory.mktemp("vendors")
    (vendors / "intel.icd").write_text(f"{library}\n", encoding="utf-8")
    name_pocl(vendors)
    return vendors


@pytest.fixture(scope="session")
def nvidia_vendors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that names the OpenCL of NVIDIA's driver to the OpenCL loader."""
    if why := no_nvidia_opencl():
        pytest.skip(why)
    vendors = tmp_path_factory.mktemp("vendors")
    (vendors / "nvidia.icd").write_text("libnvidia-opencl.so.1\n", encoding="utf-8")
    return vendors


@pytest.fixture
def opencl_environment(icd_vendors: Path, own_home: None) -> Mapping[str, str]:
    """The environment of a child process that sees Intel's runtime and PoCL."""
    return {**os.environ, "OCL_ICD_VENDORS": str(icd_vendors)}


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A file system in memory with options such as ``size=64k``; skips where none may be mounted."""
    place = tmp_path / "disk"
    place.mkdir(0o700)

    def make(options: str) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", f"mode=0700,{options}", "tmpfs", str(place)]
        if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("no right to mount a file system here")
        return place

    yield make
    if place.is_mount():
        subprocess.run(["umount", place], check=True)
