"""Trees as listings of the driver's cache show them: ``index`` and ``<hex>/<hex>/<14 hex>``."""

import os
from pathlib import Path

from gpucache.answers.entries import FindingKind, Location
from gpucache.caches.interface import Cache
from gpucache.caches.registry import of_others
from tests.caches.opened import Environs

SYSTEM = of_others("cuda")

SECOND_NS = 10**9
HOUR_NS = 3600 * SECOND_NS
NOW = 1_900_000_000 * SECOND_NS
OLD = NOW - 24 * HOUR_NS


def file(root: Path, path: str, size: int = 100, mtime_ns: int = OLD) -> Path:
    """A file of some size and time; directories are made 0700, as the driver makes them."""
    folder = root
    for part in ("", *path.split("/")[:-1]):
        folder = folder / part
        folder.mkdir(mode=0o700, exist_ok=True)
    made = root / path
    made.write_bytes(b"\0" * size)
    os.utime(made, ns=(mtime_ns, mtime_ns))
    return made


def binary(root: Path, number: int, size: int = 100, mtime_ns: int = OLD) -> Path:
    """A binary, by number; the driver's names are hashes."""
    return file(root, f"{number % 16:X}/{number // 16 % 16:X}/{0xABCDEF << 32 | number:014x}", size, mtime_ns)


def tree(root: Path, binaries: int = 3, size: int = 100, mtime_ns: int = OLD) -> Path:
    file(root, "index", 5648, mtime_ns)
    for number in range(binaries):
        binary(root, number, size, mtime_ns)
    return root


def opened(root: Path, *, limit: int | None = None, enabled: bool = True, clock: int = NOW) -> Cache:
    """The cache at a root, at some time of day."""
    location = Location("cuda", str(root), "CUDA_CACHE_PATH", enabled=enabled, limit_bytes=limit)
    return SYSTEM.open(location, lambda: clock)


def told(cache: Cache) -> dict[FindingKind, str]:
    """The findings about the cache as a whole, by kind."""
    return {finding.kind: finding.detail for one in cache.leftovers() for finding in one.findings}


_HOME, _MAXSIZE = {"HOME": "{tmp}/a"}, "CUDA_CACHE_MAXSIZE"
_SIZES = (
    "", "268435456", "4294967296", "4294967297", "99999999999999999999", "0", "2G", "-1", "1_000", "٣",
)  # fmt: skip
PLACES: Environs = {
    "by its variable": ({"CUDA_CACHE_PATH": "{tmp}/jit", **_HOME},),
    "by the home": ({**_HOME, "XDG_CACHE_HOME": "{tmp}/other"},),
    "an empty variable": ({"CUDA_CACHE_PATH": "", **_HOME},),
    "no home": ({},),
    **{
        f"CUDA_CACHE_DISABLE={value}": ({"CUDA_CACHE_DISABLE": value, **_HOME},)
        for value in ("", "0", "1", "yes")
    },
    **{f"{_MAXSIZE}={value}": ({_MAXSIZE: value, **_HOME},) for value in _SIZES},
    "a relative variable": ({"CUDA_CACHE_PATH": "jit"},),
    "a relative home": ({"HOME": "me"},),
}
