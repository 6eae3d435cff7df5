"""What a stored source says: the line PyOpenCL adds, and its includes. Pure."""

import re
from collections.abc import Iterator
from itertools import islice

from gpucache.units import printable

_ADDED = re.compile(rb"\n\n__constant int pyopencl_defeat_cache_[0-9a-f]{32} = 0;\Z")
_ADDED_BYTES = len("\n\n__constant int pyopencl_defeat_cache_ = 0;") + 32
_SPACE = rb"[ \t\r\f\v]"
# PyOpenCL's own, C_INCLUDE_RE, told line by line: with anything behind it an include is not seen.
_FOLLOWED = re.compile(
    rb"^" + _SPACE + rb"*+#" + _SPACE + rb"*+include" + _SPACE + rb'++[<"](.+)[">]' + _SPACE + rb"*$",
    re.MULTILINE,
)
_ANY = re.compile(
    rb"^"
    + _SPACE
    + rb"*+#"
    + _SPACE
    + rb"*+include"
    + _SPACE
    + rb'*+(?:[<"]([^>"\n]{1,1024})[>"]|(\w{1,128}))',
    re.MULTILINE,
)
_LIMIT = 1000
"""Includes that are looked at."""


def as_written(stored: bytes) -> bytes:
    """A stored source as its program wrote it, without the line that defeats the driver's own cache."""
    ending = _ADDED.search(stored, max(0, len(stored) - _ADDED_BYTES))
    return stored if ending is None else stored[: ending.start()]


def is_marked(stored: bytes) -> bool:
    """Whether a stored source ends with the line that PyOpenCL adds."""
    return len(as_written(stored)) < len(stored)


def followed(source: bytes) -> Iterator[bytes]:
    """The headers whose content PyOpenCL keeps a checksum of, as spelled."""
    return (match[1] for match in islice(_FOLLOWED.finditer(source), _LIMIT))


def unfollowed(source: bytes) -> tuple[str, ...]:
    """Headers, and macros that stand for them, in include lines that PyOpenCL passes over."""
    seen = set(followed(source))
    found = dict.fromkeys(match[1] or match[2] for match in islice(_ANY.finditer(source), _LIMIT))
    return tuple(printable(name) for name in found if name not in seen)
