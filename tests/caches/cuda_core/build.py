"""Caches of cuda.core for tests: by its own rules from given bytes, and by itself with NVRTC."""

import hashlib
import os
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest

from gpucache.caches.interface import Cache
from gpucache.caches.registry import of_others
from tests.caches.opened import PTX, Cases, Environs, together, write
from tests.caches.opened import opened as opened_at

SYSTEM = of_others("cuda.core")

SOURCES = {
    name: f'extern "C" __global__ void {name}(float *a) {{ a[threadIdx.x] *= {factor}.0f; }}'
    for factor, name in enumerate(("scale", "twice", "thrice"), start=1)
}


def place(root: Path, key: bytes, payload: bytes) -> Path:
    """Lay bytes where cuda.core looks for a key."""
    digits = hashlib.sha256(key).hexdigest()
    return lay(root, digits[:2], digits[2:], payload)


def lay(root: Path, group: str, name: str, payload: bytes) -> Path:
    """Lay bytes at any place below ``entries``; makes ``tmp`` as well."""
    folder = root / "entries" / group
    folder.mkdir(parents=True, exist_ok=True)
    (root / "tmp").mkdir(mode=0o700, exist_ok=True)
    path = folder / name
    path.write_bytes(payload)
    path.chmod(0o600)
    return path


def temporary(root: Path, name: str, age_ns: int, now_ns: int) -> Path:
    (root / "tmp").mkdir(mode=0o700, parents=True, exist_ok=True)
    path = root / "tmp" / name
    path.write_bytes(PTX[:40])
    os.utime(path, ns=(now_ns - age_ns, now_ns - age_ns))
    return path


def opened(root: Path, clock: int | None = None) -> Cache:
    """The cache at a root, at some time of day."""
    return opened_at(SYSTEM, root, clock)


def require_nvrtc() -> None:
    """Skip where cuda.core or NVRTC is not installed."""
    for name in ("cuda-core", "nvidia-cuda-nvrtc"):
        try:
            distribution(name)
        except PackageNotFoundError:
            pytest.skip(f"{name} is not installed")


def owner(root: Path | None, **options: Any) -> Any:
    from cuda.core.utils import FileStreamProgramCache

    return FileStreamProgramCache(root, **options)


def compile_program(root: Path, name: str, target: str = "cubin") -> bytes:
    """Have cuda.core compile a program with a cache, or take it from there."""
    from cuda.core import Program, ProgramOptions

    options = ProgramOptions(arch="sm_90", link_time_optimization=target == "ltoir" or None)
    return bytes(Program(SOURCES[name], "c++", options).compile(target, cache=owner(root)).code)


def program_key(name: str) -> bytes:
    """The key under which cuda.core files the cubin of a program."""
    from cuda.core import ProgramOptions
    from cuda.core.utils import make_program_cache_key

    options = ProgramOptions(arch="sm_90")
    key = make_program_cache_key(code=SOURCES[name], code_type="c++", options=options, target_type="cubin")
    return bytes(key)


def _entry(payload: bytes) -> Callable[[Path], Path]:
    return lambda root: place(root, b"key", payload)


_NAMES = (
    ("AB", "0" * 62), ("abc", "0" * 61), ("ab", "0" * 61), ("ab", "A" * 62), ("ab", "README"),
)  # fmt: skip
CASES: Cases = {
    "an entry": _entry(PTX),
    "empty": _entry(b""),
    "cut": _entry(PTX[:-3]),
    "corrupt": _entry(b"\x7fELF garbage"),
    "another format": _entry(b"garbage"),
    "zeros": _entry(b"\0" * 64),
    "alone: zeros": _entry(b"\0" * 64),
    **{
        f"{group} and {len(name)} of {name[:1]}": write(f"entries/{group}/{name}", PTX)
        for group, name in _NAMES
    },
    "strange files beside entries": together(
        write("entries/README", b""), lambda root: (root / "entries" / "2c" / "folder").mkdir(parents=True)
    ),
    "a folder called as a writer's": lambda root: (root / "tmp" / "entry-xxxxxxxx").mkdir(),
    "of a writer": write("tmp/entry-0ld_one_", PTX[:40]),
    "alone: a store that names files by a SHA-256": together(
        *(lambda root, one=number: place(root, bytes([one]), b"mine") for number in range(3)),
        write("tmp/entry-my_notes", b"mine"),
        write("tmp/entry-list.txt", b"mine"),
    ),
}
PLACES: Environs = {
    "by XDG_CACHE_HOME": ({"XDG_CACHE_HOME": "{tmp}", "HOME": "/nowhere"},),
    "in use once it is there": ({"XDG_CACHE_HOME": "{tmp}"}, "cuda-python/program-cache/"),
    "by the home": ({"HOME": "{tmp}"},),
    "an empty XDG_CACHE_HOME": ({"XDG_CACHE_HOME": "", "HOME": "{tmp}"},),
    "by the user's record": ({},),
    "a relative XDG_CACHE_HOME": ({"XDG_CACHE_HOME": "caches", "HOME": "/nowhere"},),
}
