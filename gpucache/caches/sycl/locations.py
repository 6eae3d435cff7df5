"""Where libsycl's cache lies: what the variables say, which folders can be one, and what is wrong with both.

Numbers in variables are read as far as they are digits, so ``10GB`` is 10. Owns the sentences that say why a
place is none. Must not read entries. Source: libsycl, ``config.hpp`` and
``persistent_device_code_cache.hpp``.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from gpucache.answers.entries import Location
from gpucache.caches import places
from gpucache.caches.places import Place, Places, Var
from gpucache.folders import Folder
from gpucache.units import format_size

PERSISTENT = "SYCL_CACHE_PERSISTENT"
DIRECTORY = "SYCL_CACHE_DIR"
MAX_SIZE = "SYCL_CACHE_MAX_SIZE"
MIN_IMAGE = "SYCL_CACHE_MIN_DEVICE_IMAGE_SIZE"
MAX_IMAGE = "SYCL_CACHE_MAX_DEVICE_IMAGE_SIZE"
TRACE = "SYCL_CACHE_TRACE"
FOLDER = "libsycl_cache"
MOVE = f"export {DIRECTORY}=<folder>"

LITTLE_BYTES = 1 << 20
"""Below this a limit of the whole cache keeps next to nothing."""
_DEFAULT_MAX_IMAGE = 1 << 30
_LARGEST_IMAGE = 1 << 30
_SMALLEST_IMAGE = 1 << 10
_DIGITS = re.compile(r"\s*\+?([0-9]{1,19})(.*)", re.DOTALL)
REMEDY = f"name another folder, or {MOVE}"


class Bounds(NamedTuple):
    """The sizes of images that are cached, in bytes; 0 for no bound."""

    min_bytes: int = 0
    max_bytes: int = _DEFAULT_MAX_IMAGE

    def refusal(self, size_bytes: int) -> str:
        """Why images of some size are not cached, as a sentence; empty where they are."""
        if self.min_bytes and size_bytes < self.min_bytes:
            return _refusal(size_bytes, "below", self.min_bytes, MIN_IMAGE)
        if self.max_bytes and size_bytes > self.max_bytes:
            return _refusal(size_bytes, "above", self.max_bytes, MAX_IMAGE)
        return ""


def root_of(environ: Mapping[str, str]) -> tuple[Path, str] | None:
    """Where programs keep the cache, and what decided that; None where nothing says."""
    if environ.get(DIRECTORY):
        return places.absolute(Path(environ[DIRECTORY])), DIRECTORY
    if sys.platform == "win32":
        known = environ.get("AppData") or environ.get("APPDATA")
        return (Path(known) / FOLDER, "AppData") if known else None
    if "XDG_CACHE_HOME" in environ:
        # Set and empty, it puts the cache into the root folder of the machine.
        return places.absolute(Path(environ["XDG_CACHE_HOME"] or "/")) / FOLDER, "XDG_CACHE_HOME"
    if "HOME" in environ:
        return places.absolute(Path(environ["HOME"] or "/")) / ".cache" / FOLDER, "HOME"
    return None


def enabled(environ: Mapping[str, str]) -> bool:
    """Whether programs use the cache at all."""
    return environ.get(PERSISTENT) == "1" and environ.get(DIRECTORY) != ""


def limit_bytes(environ: Mapping[str, str]) -> int | None:
    """The size above which eviction starts; None where it is off."""
    return _number(environ.get(MAX_SIZE, "")) or None


def bounds(environ: Mapping[str, str]) -> Bounds:
    """The sizes of images that are cached."""
    upper = environ.get(MAX_IMAGE)
    return Bounds(
        _number(environ.get(MIN_IMAGE, "")), _DEFAULT_MAX_IMAGE if upper is None else _number(upper)
    )


def variable_problems(environ: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with the variables, each with the line that mends it."""
    persistent = environ.get(PERSISTENT)
    if persistent in (None, "0"):
        yield f"{PERSISTENT} is not set to 1, so programs do not use it; export {PERSISTENT}=1"
    elif persistent != "1":
        yield f"{PERSISTENT} is {persistent!r}, of which programs die; export {PERSISTENT}=1"
    if environ.get(DIRECTORY) == "":
        yield f"{DIRECTORY} is set but empty, so programs use no cache; unset {DIRECTORY}"
    elif not Path(environ.get(DIRECTORY, "/")).is_absolute():
        yield f"{DIRECTORY} is relative, so each folder a program starts in has its own cache; {MOVE}"
    if DIRECTORY not in environ and environ.get("XDG_CACHE_HOME") == "" and sys.platform != "win32":
        yield f"XDG_CACHE_HOME is set but empty, so the cache is /{FOLDER}; unset XDG_CACHE_HOME"
    yield from _number_problems(environ)
    yield from _bound_problems(bounds(environ))
    limit = limit_bytes(environ) or LITTLE_BYTES
    if limit < LITTLE_BYTES:
        yield (
            f"the limit is too small: {MAX_SIZE} is {limit} bytes, so libsycl evicts nearly all of it; "
            f"export {MAX_SIZE}=1000000000"
        )


def _number_problems(environ: Mapping[str, str]) -> Iterator[str]:
    for name in (MAX_SIZE, MIN_IMAGE, MAX_IMAGE):
        value = environ.get(name)
        if value is None:
            continue
        found = _DIGITS.fullmatch(value)
        if found is None:
            effect = "of which programs die that add an entry" if name == MAX_SIZE else "which counts as 0"
            yield f"{name} is {value!r}, no number, {effect}; export {name}=<bytes>"
        elif found[2]:
            yield f"{name} is {value!r}, which is read as {found[1]} bytes; export {name}=<bytes>"


def _bound_problems(found: Bounds) -> Iterator[str]:
    """Sizes of images between which there are none, or none of a program."""
    lower, upper = found.min_bytes, found.max_bytes
    if lower > _LARGEST_IMAGE:
        yield f"{MIN_IMAGE} is {lower} bytes, which no image has, so nothing is cached; unset {MIN_IMAGE}"
    elif 0 < upper < _SMALLEST_IMAGE:
        yield f"{MAX_IMAGE} is {upper} bytes, less than any image, so nothing is cached; unset {MAX_IMAGE}"
    elif upper and lower > upper:
        yield (
            f"{MIN_IMAGE} ({lower} bytes) is above {MAX_IMAGE} ({upper} bytes), so nothing is cached; "
            f"unset {MIN_IMAGE}"
        )


def _number(text: str) -> int:
    found = _DIGITS.match(text)
    return int(found[1]) if found else 0


def _refusal(size_bytes: int, side: str, bound: int, name: str) -> str:
    return (
        f"its images of {format_size(size_bytes)} ({size_bytes} bytes) are {side} {name} ({bound} bytes), "
        f"so programs never cache it; change {name}"
    )


def refusal(root: Path, environ: Mapping[str, str]) -> str:
    """Why a path is never opened as a cache, there or not; empty where it may be. Raises nothing."""
    try:
        if root.exists() and not root.is_dir():
            return f"{root} is not a folder, so it cannot be a cache of libsycl; {REMEDY}"
        blocked = next((one for one in root.parents if one.exists() and not one.is_dir()), None)
        real = os.path.realpath(root)
        homes = {os.path.realpath(one) for one in (environ.get("HOME"), _home()) if one}
    except (OSError, ValueError):
        return ""  # ``unreadable`` says so
    if blocked is not None:
        return f"{blocked} is not a folder, so nothing can be in it; {REMEDY}"
    if real == os.path.realpath("/"):
        return f"{root} is the root of the machine, which is not searched for a cache; {REMEDY}"
    if real in homes:
        return f"{root} is the home folder, which is not searched for a cache; {REMEDY}"
    return ""


def unreadable(root: Path) -> str:
    """Why nothing can be known of a root; empty where it can be read, or is not there. Raises nothing."""
    try:
        with Folder.at(root) as folder:
            folder.lstat(os.curdir)
            next(folder.entries(), None)
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        return f"{root} cannot be read ({reason}), so its contents are unknown; {REMEDY}"
    return ""


def mend(location: Location) -> str:
    """What mends a cache, as a command, naming its place where no variable leads to it."""
    import shlex

    by_hand = location.decided_by == "--cache"
    name = shlex.quote(f"{location.cache}:{location.root}") if by_hand else location.cache
    command = f"gpucache verify --repair --cache {name}"
    return f"run {command}" if "'" in name else f"run '{command}'"


def _home() -> str:
    try:
        return str(Path.home())
    except RuntimeError:
        return ""


class SyclPlaces(Places):
    """The one place of libsycl's cache."""

    name = "sycl"
    title = "SYCL persistent device code cache"
    owner = "libsycl"
    place = Place(
        (Var(DIRECTORY),),
        move=MOVE,
        nowhere="the cache is off without a home folder; set SYCL_CACHE_DIR",
        leaf=FOLDER,
        along=((PERSISTENT, "1"),),
    )
    tracing = {TRACE: "7"}
    """The disk cache, the cache in memory, and that of kernel_compiler."""

    @classmethod
    def locations(cls, environ: Mapping[str, str]) -> Iterator[Location]:
        """The one place of this environment; none without a home."""
        found = root_of(environ)
        if found is None:
            return
        root, decided_by = found
        yield Location(
            cls.name,
            str(root),
            decided_by,
            enabled=enabled(environ),
            limit_bytes=limit_bytes(environ),
            problems=(*variable_problems(environ), *_at_place(root, environ)),
            bounds=bounds(environ),
        )

    @classmethod
    def at_place(cls, root: Path) -> Iterator[str]:
        """That it is none, that it is closed, or all that can be seen of it."""
        yield from _at_place(root, os.environ)


def _at_place(root: Path, environ: Mapping[str, str]) -> tuple[str, ...]:
    closed = refusal(root, environ) or unreadable(root)
    if closed:
        return (closed,)
    strange = ""
    if places.is_folder(root):
        from gpucache.caches.sycl.signs import foreign  # which no place needs where nothing is

        strange = foreign(root)
    return (*filter(None, (strange,)), *places.problems(root, move=MOVE))
