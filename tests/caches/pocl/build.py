"""Bitcode, libraries and caches made from their formats, as PoCL and its compiler lay them out."""

import os
from collections.abc import Sequence
from pathlib import Path

from gpucache.answers.entries import Location
from gpucache.caches.interface import Cache
from gpucache.caches.pocl import letters_of
from gpucache.caches.registry import of_others
from tests.caches.opened import Environs
from tests.payload.build import bitcode, library

SYSTEM = of_others("pocl")

NOW = 1_800_000_000 * 10**9
MINUTE = 60 * 10**9
DAY = 86_400 * 10**9
SMALL = "16-1-1-goffs0-smallgrid"


def folder_of(root: Path, digest: bytes = bytes(range(20))) -> Path:
    """Where PoCL keeps the program of a digest."""
    letters = letters_of(digest)
    return root / letters[:2] / letters[3:]


def program(
    root: Path,
    digest: bytes = bytes(range(20)),
    kernels: Sequence[str] = ("vecadd",),
    llvm: str = "LLVM15.0.6",
    variant: str = SMALL,
    at_ns: int = NOW - DAY,
) -> Path:
    """A sound program with every kernel compiled once; its directory."""
    folder = folder_of(root, digest)
    for kernel in kernels:
        place = folder / kernel / variant
        place.mkdir(parents=True)
        clang = f"clang version {llvm.removeprefix('LLVM')}\0".encode()
        (place / f"{kernel}.so").write_bytes(library(kernel, clang))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "program.bc").write_bytes(bitcode(kernels, llvm))
    (folder / "last_accessed").touch()
    age(root, at_ns)
    return folder


def age(root: Path, at_ns: int) -> None:
    """Give everything below a directory a time and modes that are trusted, as PoCL's are."""
    for path in sorted(root.rglob("*"), reverse=True):
        if not path.is_symlink():
            path.chmod(0o700)
            os.utime(path, ns=(at_ns, at_ns))


def cache(root: Path, now_ns: int = NOW) -> Cache:
    """The cache at a root, at a time."""
    return SYSTEM.open(Location("pocl", str(root), "test", enabled=True), clock=lambda: now_ns)


_HOME = {"HOME": "{tmp}/h"}
PLACES: Environs = {
    "by its variable": ({"POCL_CACHE_DIR": "{tmp}/a/b", "XDG_CACHE_HOME": "{tmp}/x", **_HOME},),
    "by XDG_CACHE_HOME": ({"XDG_CACHE_HOME": "{tmp}/x", **_HOME},),
    "an empty XDG_CACHE_HOME": ({"XDG_CACHE_HOME": "", **_HOME},),
    **{
        f"POCL_KERNEL_CACHE={value}": ({**_HOME, "POCL_KERNEL_CACHE": value},)
        for value in ("1", "10", "0", "yes", "")
    },
    "an empty variable": ({"POCL_CACHE_DIR": "", **_HOME},),
    "a relative variable": ({"POCL_CACHE_DIR": "here"},),
    "a relative home": ({"HOME": "me"},),
    "a relative XDG_CACHE_HOME": ({"XDG_CACHE_HOME": "x", **_HOME},),
    "in order": ({"POCL_CACHE_DIR": "{tmp}"},),
}
