"""The environment variables of libsycl's persistent cache: what they say, and what is wrong with them.

Source: libsycl, ``config.hpp`` and ``persistent_device_code_cache.hpp``. Numbers are read as far as they
are digits, so ``10GB`` is 10. Must not look at the disk.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gpucache.outcomes import Location
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


@dataclass(frozen=True, slots=True)
class Bounds:
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


@dataclass(frozen=True, slots=True)
class SyclLocation(Location):
    """A location with the sizes of images that its programs cache."""

    bounds: Bounds = Bounds()


def root_of(environ: Mapping[str, str]) -> tuple[Path, str] | None:
    """Where programs keep the cache, and what decided that; None where nothing says."""
    if environ.get(DIRECTORY):
        return _absolute(environ[DIRECTORY]), DIRECTORY
    if sys.platform == "win32":
        known = environ.get("AppData") or environ.get("APPDATA")
        return (Path(known) / FOLDER, "AppData") if known else None
    if "XDG_CACHE_HOME" in environ:
        # Set and empty, it puts the cache into the root folder of the machine.
        return _absolute(environ["XDG_CACHE_HOME"] or "/") / FOLDER, "XDG_CACHE_HOME"
    if "HOME" in environ:
        return _absolute(environ["HOME"] or "/") / ".cache" / FOLDER, "HOME"
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


def problems(environ: Mapping[str, str]) -> Iterator[str]:
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


def _absolute(text: str) -> Path:
    with suppress(OSError):  # a current directory that is gone
        return Path(text).absolute()
    return Path(text)


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
