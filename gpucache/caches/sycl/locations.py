"""Where libsycl keeps its cache, and which of its variables it reads differently than they look."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gpucache.caches.places import WINDOWS, Place, Places, Var
from gpucache.units import format_size

FOLDER = "libsycl_cache"
_ON, _DIRECTORY = "SYCL_CACHE_PERSISTENT", "SYCL_CACHE_DIR"
MAX_SIZE = "SYCL_CACHE_MAX_SIZE"
_MIN_IMAGE, _MAX_IMAGE = "SYCL_CACHE_MIN_DEVICE_IMAGE_SIZE", "SYCL_CACHE_MAX_DEVICE_IMAGE_SIZE"
LITTLE_BYTES = 1 << 20
"""A limit of the whole cache below this keeps almost nothing."""
_SMALLEST_IMAGE, _LARGEST_IMAGE = 1 << 10, 1 << 30
_DIGITS = re.compile(r"\s*\+?([0-9]{1,19})(.*)", re.DOTALL)


def _number(text: str) -> int:
    """A number as libsycl reads it: the leading digits, so ``10GB`` is 10."""
    found = _DIGITS.match(text)
    return int(found[1]) if found else 0


class Bounds(NamedTuple):
    """The sizes of images that are cached, in bytes; 0 for no bound."""

    min_bytes: int = 0
    max_bytes: int = _LARGEST_IMAGE

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "Bounds":
        """The limits of an environment."""
        upper = environ.get(_MAX_IMAGE)
        lower = _number(environ.get(_MIN_IMAGE, ""))
        return cls(lower, _LARGEST_IMAGE if upper is None else _number(upper))

    @property
    def names(self) -> list[str]:
        """The variables that set the limits."""
        return [_MIN_IMAGE] * bool(self.min_bytes) + [_MAX_IMAGE] * (self.max_bytes != 1 << 30)

    def refusal(self, size_bytes: int) -> str:
        """A sentence on why images of some size are not cached; empty if they are."""
        if self.min_bytes and size_bytes < self.min_bytes:
            side, bound, name = "below", self.min_bytes, _MIN_IMAGE
        elif self.max_bytes and size_bytes > self.max_bytes:
            side, bound, name = "above", self.max_bytes, _MAX_IMAGE
        else:
            return ""
        return (
            f"its images of {format_size(size_bytes)} ({size_bytes} bytes) are {side} {name} "
            f"({bound} bytes), so programs never cache it; change {name}"
        )


class SyclPlaces(Places):
    """Source: libsycl, ``config.hpp`` and ``persistent_device_code_cache.hpp``."""

    name = "sycl"
    title = "SYCL persistent device code cache"
    owner = "libsycl"
    unseen = "a changed byte inside a binary, or the binary of another build of the same kernels"
    place = Place(
        (
            Var(_DIRECTORY),
            *(
                [Var("APPDATA", FOLDER)]
                if WINDOWS
                else [
                    Var("XDG_CACHE_HOME", FOLDER, top=True),
                    Var("HOME", f".cache/{FOLDER}", top=True),
                ]
            ),
        ),
        remedy=f"export {_DIRECTORY}=<directory>",
        nowhere="the cache is off without a home directory; set SYCL_CACHE_DIR",
        leaf=FOLDER,
        along=((_ON, "1"),),
        opt_in=False,
    )
    tracing = {"SYCL_CACHE_TRACE": "7"}  # the cache on disk, in memory, and of kernel_compiler

    @classmethod
    def off(cls, environ: Mapping[str, str]) -> str:
        """1 alone turns it on; programs crash at any other value but 0."""
        value = environ.get(_ON)
        if environ.get(_DIRECTORY) == "":
            return (
                f"{_DIRECTORY} is set but empty, so programs use no cache; unset {_DIRECTORY}, and "
                f"export {_ON}=1"
            )
        if value in (None, "0"):
            return f"{_ON} is not set to 1, so programs do not use it; export {_ON}=1"
        return "" if value == "1" else f"{_ON} is {value!r}, of which programs die; export {_ON}=1"

    @classmethod
    def limit_bytes(cls, environ: Mapping[str, str]) -> int | None:
        """The size above which eviction starts; None if it is off."""
        return _number(environ.get(MAX_SIZE, "")) or None

    @classmethod
    def variables(cls, environ: Mapping[str, str]) -> Iterator[str]:
        """Values that libsycl reads differently than they look, and bounds that exclude every image."""
        empty = environ.get("XDG_CACHE_HOME") == "" and not WINDOWS
        if _DIRECTORY not in environ and empty:
            yield f"XDG_CACHE_HOME is set but empty, so the cache is /{FOLDER}; unset XDG_CACHE_HOME"
        for name in (MAX_SIZE, _MIN_IMAGE, _MAX_IMAGE):
            value = environ.get(name)
            found = _DIGITS.fullmatch(value or "")
            if value is not None and found is None:
                dies = name == MAX_SIZE
                effect = "of which programs die that add an entry" if dies else "which counts as 0"
                yield f"{name} is {value!r}, no number, {effect}; export {name}=<bytes>"
            elif found is not None and found[2]:
                yield f"{name} is {value!r}, which is read as {found[1]} bytes; export {name}=<bytes>"
        lower, upper = Bounds.of(environ)
        if lower > _LARGEST_IMAGE:
            why = f"{_MIN_IMAGE} is {lower} bytes, which no image has"
            yield f"{why}, so nothing is cached; unset {_MIN_IMAGE}"
        elif 0 < upper < _SMALLEST_IMAGE:
            why = f"{_MAX_IMAGE} is {upper} bytes, less than any image"
            yield f"{why}, so nothing is cached; unset {_MAX_IMAGE}"
        elif upper and lower > upper:
            why = f"{_MIN_IMAGE} ({lower} bytes) is above {_MAX_IMAGE} ({upper} bytes)"
            yield f"{why}, so nothing is cached; unset {_MIN_IMAGE}"
        if 0 < (limit := _number(environ.get(MAX_SIZE, ""))) < LITTLE_BYTES:
            yield (
                f"the limit is too small: {MAX_SIZE} is {limit} bytes, so libsycl evicts nearly all of "
                f"it; export {MAX_SIZE}=1000000000"
            )
