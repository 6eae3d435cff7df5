"""The Python interpreters, packages and libraries on this machine: found by their files, and never loaded.

A cache can belong to a single version of Python. This module looks for that version in the usual directories
of interpreters: in PATH, in the system, and in pyenv, uv, conda and the like. An interpreter elsewhere is not
found, so callers never rely on this alone (``gpucache.engine.staleness``).

Programs may run in another environment than gpucache, so packages are looked for in three: gpucache's own,
the active virtual one, and that of the first python3 in PATH.

A library that a cached one needs is looked for where the dynamic loader looks: in RPATH, RUNPATH,
LD_LIBRARY_PATH, the loader's cache and directories, those of CUDA and ROCm, and in every environment of
Python that is found, as an owner has often loaded its wheels' libraries before. So a name that is found can
still fail, and one that is not found is in none of these. Source: ld.so(8) and glibc's
``sysdeps/generic/dl-cache.h``. Must not know any system.
"""

import mmap
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpucache.errors import FormatError
from gpucache.payload.elf import Library, read_library
from gpucache.payload.reading import Reading

if TYPE_CHECKING:
    from importlib.metadata import Distribution

_NAME = re.compile(r"python(\d+\.\d+)t?")
_FOLDERS = (
    "/usr/bin", "/usr/local/bin", "/opt/*/bin", "/opt/*/*/bin", "/opt/conda/envs/*/bin", "/snap/bin",
    "/home/linuxbrew/.linuxbrew/bin", "/Library/Frameworks/Python.framework/Versions/*/bin",
    "/usr/local/python*/bin", "/nix/var/nix/profiles/*/bin", "/run/current-system/sw/bin",
    "~/.local/bin", "~/.pyenv/versions/*/bin", "~/.local/share/uv/python/*/bin",
    "~/.asdf/installs/python/*/bin", "~/.local/share/mise/installs/python/*/bin", "~/.rye/py/*/bin",
    "~/.nix-profile/bin", "~/.pixi/envs/*/bin", "~/*conda*/bin", "~/*conda*/envs/*/bin", "~/*forge*/bin",
    "~/*forge*/envs/*/bin", "~/*mamba*/envs/*/bin", "~/.conda/envs/*/bin",
)  # fmt: skip
_LIST_OF_CONDA = ".conda/environments.txt"
_LIST_BYTES = 1 << 20
_REST = re.compile(rb"(\d{1,3}(?:(?:a|b|rc)\d{1,3})?)\+?\0")
_LIBRARIES = ("lib/libpython{}*.so*", "lib/*/libpython{}*.so*")


def is_gone(version: str) -> bool:
    """Whether no Python of a version such as ``3.11`` or ``3.11.7`` is found; False if that is unknown.

    Raises nothing.
    """
    if sys.platform == "win32":
        return False
    short = ".".join(version.split(".")[:2])
    found = [place for place in _interpreters() if place.name.removesuffix("t") == f"python{short}"]
    if short == version or not found:
        return not found
    versions = [_versions(place, short) for place in found]
    return all(versions) and not any(version in named for named in versions)


@cache
def versions() -> frozenset[str]:
    """The versions of Python that are found, each as ``3.11`` and as ``3.11.7``; empty where none is looked
    for. Raises nothing."""
    if sys.platform == "win32":
        return frozenset()
    shorts = {place: place.name.removeprefix("python").removesuffix("t") for place in _interpreters()}
    return frozenset(shorts.values()).union(*(_versions(*one) for one in shorts.items()))


@cache
def _interpreters() -> tuple[Path, ...]:
    """Every interpreter with a version in its name, once each, however many links lead to it."""
    found: dict[str, Path] = {}
    for folder in dict.fromkeys(_folders()):
        with suppress(OSError, ValueError), os.scandir(folder) as entries:
            for one in entries:
                if _NAME.fullmatch(one.name) and os.access(one.path, os.X_OK) and not _is_script(one.path):
                    real = os.path.realpath(one.path)
                    found.setdefault(f"{one.name} {real}", Path(folder, one.name))
    return tuple(found.values())


def _is_script(path: str) -> bool:
    """Whether a file is a script that finds an interpreter, like pyenv's, and not an interpreter."""
    with open(path, "rb") as file:  # noqa: PTH123 - a name of scandir
        return file.read(2) == b"#!"


def _folders() -> Iterator[str]:
    yield from filter(os.path.isabs, os.get_exec_path())
    yield from (str(Path(prefix, "bin")) for prefix in (sys.prefix, sys.base_prefix))
    home = Path.home() if os.environ.get("HOME") else Path(os.sep)
    for pattern in _FOLDERS:
        below = home if pattern.startswith("~/") else Path(os.sep)
        yield from map(str, below.glob(pattern.lstrip("~/")))
    with suppress(OSError), (home / _LIST_OF_CONDA).open(encoding="utf-8", errors="replace") as file:
        yield from (f"{line}/bin" for line in file.read(_LIST_BYTES).splitlines())


@cache
def _versions(place: Path, short: str) -> frozenset[str]:
    """The full versions that an interpreter and its libraries name, including its ``sys.version``."""
    real = Path(os.path.realpath(place))
    libraries = (one for pattern in _LIBRARIES for one in real.parent.parent.glob(pattern.format(short)))
    start, found = f"{short}.".encode(), set[str]()
    for path in (real, *libraries):
        with (
            suppress(OSError, ValueError),
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            at = data.find(start)
            while at >= 0:
                if match := _REST.match(data, at + len(start)):
                    found.add(f"{short}.{match[1].decode()}")
                at = data.find(start, at + 1)
    return frozenset(found)


_LIBRARY = re.compile(r"([^/,\n]+\.so[.\d]*),")
_BELOW = ("lib*/python3*/site-packages", "lib/python3/dist-packages", "lib/python3*/dist-packages")


@cache
def versions_of(name: str) -> frozenset[str]:
    """The versions of a package that are installed; empty if there are none. Raises nothing."""
    return frozenset(one.version for one in _installed(name) if one.version)


@cache
def places_of(name: str) -> frozenset[str]:
    """The directories in which a package is installed; empty if there are none. Raises nothing."""
    return frozenset(str(one.locate_file("")) for one in _installed(name))


@cache
def libraries() -> frozenset[str]:
    """The names of the shared libraries in every environment that is found. Raises nothing."""
    prefixes = {Path(os.path.realpath(one)).parent.parent for one in _interpreters()}
    prefixes |= {one.parent.parent for one in _interpreters()} | {Path(sys.prefix)}
    sites = {*_site_packages(), *(str(path) for one in prefixes for path in _below(one))}
    found = set[str]()
    for place in prefixes:
        with suppress(OSError):
            found.update(one.name for one in (place / "lib").glob("lib*.so*"))
    for one in _distributions(path=[*sys.path, *sites]):
        with suppress(OSError, ValueError):
            found.update(_LIBRARY.findall(one.read_text("RECORD") or ""))
    for site in sites:
        with suppress(OSError):
            found.update(path.name for path in Path(site).glob("*/lib/lib*.so*"))
    return frozenset(found)


def _installed(name: str) -> "Iterator[Distribution]":
    return _distributions(name=name, path=[*sys.path, *_site_packages()])


def _distributions(**wanted: Any) -> "Iterator[Distribution]":
    from importlib.metadata import distributions  # with a parser of mails, which no scan needs

    return iter(distributions(**wanted))


@cache
def _site_packages() -> tuple[str, ...]:
    import shutil

    python = shutil.which("python3")
    prefixes = filter(None, (os.environ.get("VIRTUAL_ENV"), python and str(Path(python).parent.parent)))
    return tuple(dict.fromkeys(str(path) for prefix in prefixes for path in _below(Path(prefix))))


def _below(prefix: Path) -> Iterator[Path]:
    return (path for below in _BELOW for path in prefix.glob(below))


_CACHE = Path("/etc/ld.so.cache")
_CACHE_BYTES = 64 << 20
_LIBRARY_FOLDERS = (
    "lib", "usr/lib", "lib64", "usr/lib64", "usr/local/lib", "lib/*-linux-*", "usr/lib/*-linux-*",
    "usr/local/cuda*/lib64", "usr/local/cuda*/targets/*/lib", "opt/rocm*/lib", "opt/intel/oneapi/*/*/lib",
)  # fmt: skip
_OF_TOOLKITS = ("CUDA_HOME", "CUDA_PATH", "ROCM_PATH", "CONDA_PREFIX", "CMPLR_ROOT")
_LIBRARY_NAME = re.compile(r"lib[\w.+-]{1,200}")
DRIVER = re.compile(r"lib(?:cuda|nvidia-[\w-]+|nvcuvid|amdhip64|hsa-runtime64|ze_loader|OpenCL)\.so[.\d]*")
"""The libraries of drivers, which a machine without their device lacks."""


def lost(path: Path, data: bytes) -> tuple[str, ...]:
    """The libraries that the library at a path needs and that do not exist; none if it cannot be parsed, or
    outside of Linux. Raises nothing."""
    if sys.platform != "linux":
        return ()
    try:
        library = read_library(Reading(data))
    except FormatError:
        return ()
    places = [Path(one) for one in _beside(library, path)]
    return tuple(
        name
        for name in dict.fromkeys(library.needed)
        if _LIBRARY_NAME.fullmatch(name)
        and not any((place / name).exists() for place in places)
        and not _is_found(name)
    )


def _beside(library: Library, path: Path) -> Iterator[str]:
    """The library's own search directories and the environment's."""
    for place in (*library.rpath, *library.runpath):
        yield re.sub(r"\$(?:ORIGIN|\{ORIGIN\})", lambda _: str(path.parent), place)
    yield from filter(None, os.environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":"))


@cache
def _is_found(name: str) -> bool:
    with suppress(OSError, ValueError):
        if any(Path(one).exists() for one in _listed().get(name, ())):
            return True
        if any(next(Path(os.sep).glob(f"{one}/{name}"), None) for one in _LIBRARY_FOLDERS):
            return True
        roots = filter(None, map(os.environ.get, _OF_TOOLKITS))
        if any(Path(root, below, name).exists() for root in roots for below in ("lib64", "lib")):
            return True
    return name in libraries()


@cache
def _listed() -> dict[str, list[str]]:
    """The paths in the loader's cache by name; empty if there is none, as with musl."""
    found: dict[str, list[str]] = {}
    with suppress(OSError), _CACHE.open("rb") as file:
        for text in file.read(_CACHE_BYTES).split(b"\0"):
            if text.startswith(b"/"):
                path = os.fsdecode(text)
                found.setdefault(path.rpartition("/")[2], []).append(path)
    return found
