"""What is for every system runs without the names that only POSIX systems have."""

import errno
import os
import sys
from pathlib import Path

import pytest

from gpucache.host.os_errors import remedy
from tests.children import run_python, run_text
from tests.nvrtc import need_nvrtc
from tests.winlike import LEFT_OUT

_TOP = Path(__file__).parents[1]
_ON_LINUX = ("gpucache/native/", "gpucache/kernels/", "/(forks|opened_files|writing)[.]py$")
"""More modules that are imported anywhere, and whose functions are called on Linux alone."""


def _windows(root: Path, *words: object) -> tuple[int, str]:
    environ = {
        "GPUCACHE_DIR": str(root),
        "LOCALAPPDATA": str(root),
        "APPDATA": str(root),
        "PYTHONPATH": str(_TOP),
    }
    done = run_text([sys.executable, "-m", "tests.winlike", *words], env={**os.environ, **environ})
    return done.returncode, done.stderr


def test_modules_import(tmp_path: Path) -> None:
    """Every module but those for Linux is imported."""
    assert _windows(tmp_path, "modules") == (0, "")


@pytest.mark.slow
def test_a_program_is_built_found_checked_and_removed(tmp_path: Path) -> None:
    """The verbs that no operating system limits, one after the other on one cache."""
    source, root = tmp_path / "k.cu", tmp_path / "root"
    source.write_text('extern "C" __global__ void k(int *a) { *a = 1; }', encoding="utf-8")
    build = (source, "--target", "cuda:sm_90")
    for words in (
        ("devices",),
        ("warm", *build),
        ("inspect", "--why", *build),
        ("inspect", "--list"),
        ("verify", "--strict"),
        ("bench", *build, "--runs", "1"),
        ("evict", "--all", "--yes"),
    ):
        code, errors = _windows(root, *words)
        assert (code, "defect" in errors) == (0, False), (words, errors)


def test_a_file_in_use_is_not_one_without_permissions() -> None:
    """Windows gives both the same number."""
    error = PermissionError(errno.EACCES, "in use")
    fix = remedy(error)
    error.winerror = 32  # type: ignore[attr-defined,unused-ignore]
    assert remedy(error) != fix


def test_nvrtc_is_found_by_the_names_of_windows() -> None:
    """Those of its wheel: nvrtc64_130_0.dll and, beside it, nvrtc-builtins64_135.dll."""
    need_nvrtc()
    program = (
        "from tests.winlike import remove; remove();"
        "from gpucache.backends.cuda import nvrtc;"
        "print(nvrtc.nvrtc_libraries(nvrtc.version())[0]); print(nvrtc._builtins_name((13, 5)))"
    )
    library, builtins = run_python("-c", program, env={**os.environ, "PYTHONPATH": str(_TOP)}).splitlines()
    assert (Path(library).is_file(), builtins) == (True, "nvrtc-builtins64_135.dll")


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_types_hold_on_other_platforms(platform: str, tmp_path: Path) -> None:
    """Those of every module but the ones for Linux: a name that the platform lacks is an error."""
    only_linux = "|".join((*(name.replace(".", "/") for name in LEFT_OUT), *_ON_LINUX))
    mypy = (sys.executable, "-m", "mypy", "--platform", platform, "--cache-dir", tmp_path)
    # What only one platform runs is unreachable on the others.
    flags = ("--no-warn-unreachable", "--follow-imports=silent", "--exclude", f"({only_linux})")
    done = run_text([*mypy, *flags, "gpucache"], cwd=_TOP)
    assert (done.returncode, done.stdout.splitlines()[-1][:7]) == (0, "Success"), done.stdout
