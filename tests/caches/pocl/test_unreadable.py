"""Places that this user may not look into, whichever system keeps them: told, and without entries."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gpucache.caches import cuda_core, cuda_driver, futhark, pocl, pyopencl, rocfft
from gpucache.caches.interface import System, Wanted
from gpucache.errors import GpucacheError
from gpucache.outcomes import Location
from tests.caches.cuda_core import build as cuda_core_build
from tests.caches.cuda_driver import build as cuda_driver_build
from tests.caches.futhark.build import file_bytes
from tests.caches.pocl import build as pocl_build
from tests.caches.pyopencl import build as pyopencl_build
from tests.caches.rocfft.build import database, row
from tests.unprivileged import as_nobody, needs_root

_SYSTEMS: dict[str, System] = {
    "rocfft": rocfft.SYSTEM,
    "futhark": futhark.SYSTEM,
    "pyopencl": pyopencl.SYSTEM,
    "pocl": pocl.SYSTEM,
    "cuda.core": cuda_core.SYSTEM,
    "cuda": cuda_driver.SYSTEM,
}
_WANTED: dict[str, Wanted] = {
    "rocfft": {"kernel_name": (b"k",)},
    "futhark": {"source": (b"x",), "option": (b"-G",)},
    "pyopencl": {"source": (b"x",)},
    "pocl": {"kernel": (b"k",)},
    "cuda.core": {"key": (b"abcd",)},
    "cuda": {},
}


def _rocfft(root: Path) -> Path:
    return database(root / "rocfft_kernel_cache.db", [row()])


def _futhark(root: Path) -> Path:
    (root / "foo.cache").write_bytes(file_bytes())
    return root / "foo.cache"


def _pyopencl(root: Path) -> Path:
    pyopencl_build.write(root, "0" * 32)
    return root


def _pocl(root: Path) -> Path:
    pocl_build.program(root)
    return root


def _cuda_core(root: Path) -> Path:
    cuda_core_build.place(root, b"key", cuda_core_build.PTX)
    return root


def _cuda(root: Path) -> Path:
    return cuda_driver_build.tree(root)


_MAKERS: dict[str, Callable[[Path], Path]] = {
    "rocfft": _rocfft,
    "futhark": _futhark,
    "pyopencl": _pyopencl,
    "pocl": _pocl,
    "cuda.core": _cuda_core,
    "cuda": _cuda,
}


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter, other than pytest's own."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def _asked(system: System, location: Location) -> dict[str, list[str]]:
    """Everything that a cache can be asked for a place, which raises nothing but what is ours."""
    system.recognises(Path(location.root))
    cache = system.open(location)
    entries = [*cache.scan(), *cache.find("")]
    left = list(cache.leftovers())
    for entry in entries:
        cache.check(entry)
    for checked in left:
        cache.repair(checked, None)
    with suppress(GpucacheError):
        list(cache.explain(_WANTED[system.name]))
    return {
        "entries": [entry.key for entry in entries],
        "problems": list(cache.location().problems),
        "findings": [f"{one.kind}: {one.detail}" for checked in left for one in checked.findings],
    }


def _as_nobody(system: System, location: Location) -> dict[str, list[str]]:
    told: dict[str, list[str]] = json.loads(as_nobody(lambda: json.dumps(_asked(system, location))))
    return told


@needs_root
@pytest.mark.parametrize("name", _SYSTEMS)
@pytest.mark.parametrize("closed", ["above", "itself", "root of another"])
def test_a_place_that_may_not_be_read(open_folder: Path, name: str, closed: str) -> None:
    """It is a problem of its location and a finding, it has no entries, and nothing raises."""
    above = open_folder / "above"
    root = above / "place"
    root.mkdir(parents=True)
    place = _MAKERS[name](root)
    if closed == "root of another":
        os.chown(root, 12345, 12345)
    (above if closed == "above" else root).chmod(0o700)
    told = _as_nobody(_SYSTEMS[name], Location(name, str(place), "--cache", enabled=True))
    assert told["entries"] == []
    assert any(
        words in problem
        for problem in told["problems"]
        for words in ("may not be read", "may not be entered", "cannot be looked at")
    )
    assert [one.partition(":")[0] for one in told["findings"]] == ["untrusted"]
    assert not any("Errno" in one for one in (*told["problems"], *told["findings"]))


_ENVIRONS: tuple[tuple[str, Mapping[str, str]], ...] = (
    ("pocl", {"POCL_CACHE_DIR": "{}/p"}),
    ("pocl", {"XDG_CACHE_HOME": "{}"}),
    ("pocl", {"HOME": "{}"}),
    ("cuda", {"CUDA_CACHE_PATH": "{}/p"}),
    ("cuda", {"HOME": "{}"}),
    ("rocfft", {"ROCFFT_RTC_CACHE_PATH": "{}/p.db"}),
    ("rocfft", {"ROCFFT_RTC_SYS_CACHE_PATH": "{}/p.db"}),
    ("rocfft", {"LD_LIBRARY_PATH": "{}", "ROCM_PATH": "{}"}),
    ("pyopencl", {"XDG_CACHE_HOME": "{}"}),
    ("pyopencl", {"HOME": "{}"}),
    ("cuda.core", {"XDG_CACHE_HOME": "{}"}),
    ("cuda.core", {"HOME": "{}"}),
    ("futhark", {}),
)


@needs_root
@pytest.mark.parametrize(("name", "environ"), _ENVIRONS)
def test_an_environment_that_names_what_may_not_be_entered(
    tmp_path: Path, name: str, environ: Mapping[str, str]
) -> None:
    """The places it names are told with what is wrong with them, whether anything is there or not."""
    tmp_path.chmod(0o700)
    system = _SYSTEMS[name]
    filled = {variable: value.replace("{}", str(tmp_path)) for variable, value in environ.items()}

    def work() -> str:
        found = system.locations(filled)
        return json.dumps([[location.problems, _asked(system, location)] for location in found])

    for problems, told in json.loads(as_nobody(work)):
        assert any("cannot be looked at" in problem for problem in problems)
        assert told["entries"] == []


def test_a_current_directory_that_is_gone(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative places are told as they stand."""
    gone = open_folder / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    environ = {"HOME": "me", "XDG_CACHE_HOME": "me", "ROCFFT_RTC_CACHE_PATH": "me", "CUDA_CACHE_PATH": "me"}
    for system in _SYSTEMS.values():
        for location in system.locations(environ):
            _asked(system, location)
