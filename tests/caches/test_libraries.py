"""Cached libraries that need another one, which is gone."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches import interpreters
from gpucache.caches.registry import of_others
from tests.caches.inductor import build as inductor
from tests.caches.opened import kinds, lay, opened
from tests.caches.pickled.build import put_formula
from tests.caches.tvm_ffi import build as tvm_ffi

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("cc"), reason="needs Linux and a C compiler"
)
_GONE = "libgpucachegone.so.8"


@pytest.fixture(name="link")
def _link(tmp_path: Path) -> Callable[..., bytes]:
    """Makes a library that needs another, of some name, which exists only meanwhile."""

    def link(needed: str, *options: str) -> bytes:
        folder = tmp_path / "made"
        folder.mkdir(exist_ok=True)
        (folder / "a.c").write_text("int needed(void) { return 1; }")
        (folder / "b.c").write_text("int needed(void); int f(void) { return needed(); }")
        shared = ("cc", "-shared", "-fPIC")
        subprocess.run([*shared, "a.c", "-o", needed, f"-Wl,-soname,{needed}"], cwd=folder, check=True)
        command = [*shared, "b.c", "-o", "b.so", "-L.", f"-l:{needed}", *options]
        subprocess.run(command, cwd=folder, check=True)
        (folder / needed).unlink()
        return (folder / "b.so").read_bytes()

    return link


def test_a_library_that_is_gone_is_named(link: Callable[..., bytes], tmp_path: Path) -> None:
    """The C library is found."""
    assert interpreters.lost(tmp_path / "b.so", link(_GONE)) == (_GONE,)


@pytest.mark.parametrize("way", ["rpath", "runpath", "variable", "wheel"])
def test_a_library_that_the_loader_or_a_wheel_has_is_found(
    way: str, link: Callable[..., bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Next to the cached one, in a directory that a variable names, or in an environment of Python."""
    name = f"libgpucache{way}.so.8"
    tags = {"rpath": "--disable-new-dtags", "runpath": "--enable-new-dtags"}
    data = link(name, *((f"-Wl,{tags[way]},-rpath,$ORIGIN/near",) if way in tags else ()))
    (tmp_path / "near").mkdir()
    if way == "variable":
        monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "near"))
    assert interpreters.lost(tmp_path / "b.so", data) == (name,)
    if way == "wheel":
        interpreters._is_found.cache_clear()  # as a new process finds it
        monkeypatch.setattr(interpreters, "libraries", lambda: frozenset({name}))
    else:
        (tmp_path / "near" / name).write_bytes(b"")
    assert interpreters.lost(tmp_path / "b.so", data) == ()


_LAY: dict[str, Callable[[Path], Path]] = {
    "inductor": inductor.put_library,
    "tvm-ffi": lambda root: next(tvm_ffi.put(root).glob("*.so")),
    "keops": put_formula,
    "pyfr": lambda root: lay(root / "omp" / f"lib{'0' * 64}.so", b""),
    "aiter": lambda root: lay(root / "module_scale.so", b""),
}


@pytest.mark.parametrize("system", _LAY)
def test_a_cached_library_that_cannot_be_loaded_is_found_and_a_repair_removes_it(
    system: str,
    link: Callable[..., bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If its owner is installed, whose libraries are known then; else it is noted."""
    _LAY[system](tmp_path / "cache").write_bytes(link(_GONE))
    cache = opened(of_others(system), tmp_path / "cache")
    (entry,) = cache.scan()
    monkeypatch.setattr(interpreters, "versions_of", lambda _: frozenset())
    checked = cache.check(entry)
    assert not checked.findings and _GONE in "".join(checked.notes)
    monkeypatch.setattr(interpreters, "versions_of", lambda _: frozenset({"2.15"}))
    checked = cache.check(entry)
    assert kinds(checked) == [FindingKind.TRUNCATED] and _GONE in checked.findings[0].detail
    assert cache.repair(checked, entry).findings[0].repaired and not list(cache.scan())


def test_the_library_of_a_driver_is_noted(
    link: Callable[..., bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that only prepares a cache has none."""
    monkeypatch.setattr(interpreters, "versions_of", lambda _: frozenset({"2.15"}))
    monkeypatch.setattr(interpreters, "_is_found", lambda name: name.startswith("libc."))
    inductor.put_library(tmp_path / "cache").write_bytes(link("libcuda.so.1"))
    cache = opened(of_others("inductor"), tmp_path / "cache")
    (entry,) = cache.scan()
    checked = cache.check(entry)
    assert not checked.findings and "libcuda.so.1" in "".join(checked.notes)
