"""A line of a recording: its form, version 1, and how it is read without trusting it.

A line is a JSON object in ASCII, of at most ``LINE_CAP`` bytes with its newline:

    {"gpucache recording": 1, "build": {...}, "seen": {...}}
    {"gpucache recording": 1, "of": "<digest of a build>", "seen": {...}}

``build`` has the fields of ``RecordedBuild``, and ``seen`` those of ``Seen``. The second form adds to a build
that the same file names. A line that cannot be parsed in full is damaged: it is reported, and skipped. Older
lines have no ``calls`` and no ``questions`` in ``seen``, and older versions ignore them.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, TypeVar

import msgspec

from gpucache.keys import Include
from gpucache.model import Language
from gpucache.recording.builds import (
    BELOW,
    HEADERS_CAP,
    SHA256,
    WHOLE,
    Digest,
    RecordedBuild,
    Seen,
    Text,
    canonical,
)

VERSION = 1
LINE_CAP = 16 << 20
"""Bytes of one line: a closure of 20,000 headers takes about half."""
_VERSION_KEY = "gpucache recording"
_BACKENDS = {Language.OPENCL_C: "opencl", Language.CUDA_CPP: "cuda"}
_LATER = {"calls", "questions", "first"}
"""Fields that older lines do not have."""
_FOUND = r"\A[0-9a-f]{64}( in memory)?\Z"
_FORMS = {
    SHA256: "a SHA-256",
    _FOUND: "a SHA-256",
    BELOW: "a path that stays below its base, of at most 256 directories",
    WHOLE: "a text without a NUL",
}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Include:
    name: Text
    digest: Annotated[str, msgspec.Meta(pattern=_FOUND)] | None = None


_Includes = Annotated[tuple[_Include, ...], msgspec.Meta(max_length=2 * HEADERS_CAP)]


class DamagedLineError(Exception):
    """A line that cannot be parsed; says why."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line that was read."""

    of: str
    """The digest of the build that it is about."""
    build: RecordedBuild | None
    seen: Seen


def build_line(build: RecordedBuild, seen: Seen) -> bytes:
    """The line of a build."""
    return _line({"build": build.values(), "seen": _seen_values(seen)})


def seen_line(of: str, seen: Seen) -> bytes:
    """The line for later observations of a build."""
    return _line({"of": of, "seen": _seen_values(seen)})


def read_line(data: bytes) -> Line:
    """A line, with its newline or without; raises DamagedLineError."""
    if len(data) > LINE_CAP:
        raise DamagedLineError(f"it is longer than {LINE_CAP >> 20} MiB")
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        raise DamagedLineError("it is not JSON") from None
    if not isinstance(values, dict) or values.get(_VERSION_KEY) != VERSION:
        raise DamagedLineError(f"its format is not {VERSION}; read it with a newer gpucache")
    seen = _converted(_fields(values, "seen", Seen), Seen, "seen")
    if "of" in values:
        return Line(_converted(values["of"], Digest, "of"), None, seen)
    given = _fields(values, "build", RecordedBuild)
    includes = _converted(given["includes"], _Includes, "build.includes")
    build = _converted(given | {"includes": ()}, RecordedBuild, "build")
    backend, _, name = build.target.partition(":")
    if not name or backend != _BACKENDS[build.language]:
        raise DamagedLineError(f"its target is not one of {build.language}")
    build = replace(build, includes=tuple(Include(one.name, one.digest) for one in includes))
    return Line(build.digest, build, seen)


def _fields(values: Mapping[str, object], name: str, kind: type) -> dict[str, object]:
    """An object of a line, which has every field of a type."""
    found = _converted(values.get(name), dict[str, object], name)
    for field in fields(kind):
        if field.name not in found and field.name not in _LATER:
            raise DamagedLineError(f"it has no {field.name!r}")
    return found


def _converted(value: object, kind: type[T], name: str) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$")
        for pattern, form in _FORMS.items():
            what = what.replace(f"`str` matching regex {pattern!r}", form)
        raise DamagedLineError(f"{what} at {name}{place.removesuffix('`')}") from None


def _line(values: Mapping[str, object]) -> bytes:
    return canonical({_VERSION_KEY: VERSION, **values}) + b"\n"


def _seen_values(seen: Seen) -> dict[str, object]:
    return {
        "local_sizes": sorted(seen.local_sizes),
        "compile_ns": seen.compile_ns,
        "built": seen.built,
        "refused": seen.refused,
        "roots": sorted(seen.roots),
        "calls": [asdict(call) for call in sorted(seen.calls)],
        "questions": [asdict(question) for question in sorted(seen.questions)],
        "first": seen.first,
    }
