"""A line of a recording: its form, version 1, and how it is read without believing it.

A line is a JSON object in ASCII, of at most ``LINE_CAP`` bytes with its newline:

    {"gpucache recording": 1, "build": {...}, "seen": {...}}
    {"gpucache recording": 1, "of": "<digest of a build>", "seen": {...}}

``build`` has the fields of ``RecordedBuild``, and ``seen`` those of ``Seen``. The second form adds to a build
that the same file names. A line that does not read in full is damaged: it is reported, and skipped. Older
lines have no ``calls`` among what was seen.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TypeVar

from gpucache.closures import Include
from gpucache.model import ArtifactKind, Language
from gpucache.recording.builds import Call, Header, Pairs, RecordedBuild, Seen, canonical

VERSION = 1
LINE_CAP = 16 << 20
"""Bytes of one line: a closure of 20,000 headers takes about half."""
TEXT_CAP = 1 << 16
HEADERS_CAP = 20_000
LIST_CAP = 4096
SIZES_CAP = 16_384
EXTENT_CAP = 1 << 32
COMMAND_CAP = 1024
"""Characters that are kept of a command."""
_VERSION_KEY = "gpucache recording"
_DIGEST = re.compile("[0-9a-f]{64}")
_FOUND = re.compile("[0-9a-f]{64}( in memory)?")
_BACKENDS = {Language.OPENCL_C: "opencl", Language.CUDA_CPP: "cuda"}
_NUMBER_CAP = 1 << 63
_NAME_CAP = 255
_DEPTH_CAP = 256
"""Folders of a path: making and removing them takes a call of Python for each."""

T = TypeVar("T")


class DamagedLineError(Exception):
    """A line that does not read; says why."""


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
    """The line of what was seen later of a build."""
    return _line({"of": of, "seen": _seen_values(seen)})


def read_line(data: bytes) -> Line:
    """A line, with its newline or without; raises DamagedLineError."""
    if len(data) > LINE_CAP:
        raise DamagedLineError(f"it is longer than {LINE_CAP >> 20} MiB")
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        raise DamagedLineError("it is not JSON") from None
    fields = _Fields(values)
    if fields.number(_VERSION_KEY) != VERSION:
        raise DamagedLineError(f"its format is not {VERSION}; read it with a newer gpucache")
    seen = _read_seen(fields.inner("seen"))
    if "of" in fields.values:
        return Line(fields.digest("of"), None, seen)
    build = _read_build(fields.inner("build"))
    return Line(build.digest, build, seen)


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
        "first": seen.first,
    }


def _read_seen(fields: "_Fields") -> Seen:
    first = None
    if fields.values.get("first") is not None:
        when, command = fields.pair("first")
        first = (_number(when), _text(command, 4 * COMMAND_CAP))
    return Seen(
        frozenset(fields.listed("local_sizes", SIZES_CAP, _local_size)),
        fields.number("compile_ns"),
        fields.truth("built"),
        fields.truth("refused"),
        frozenset(fields.listed("roots", LIST_CAP, _texts)),
        frozenset(fields.listed("calls", LIST_CAP, _call) if "calls" in fields.values else ()),
        first,
    )


def _read_build(fields: "_Fields") -> RecordedBuild:
    language = fields.text("language")
    if language not in list(Language):
        raise DamagedLineError(f"{language!r} is no language that is recorded")
    backend, _, name = fields.text("target").partition(":")
    if not name or backend != _BACKENDS[Language(language)]:
        raise DamagedLineError(f"its target is none of {language}")
    if fields.text("artifact_kind") not in list(ArtifactKind):
        raise DamagedLineError("its kind of artifact is not known")
    return RecordedBuild(
        program=fields.text("program"),
        language=Language(language),
        source=fields.digest("source"),
        options=fields.listed("options", LIST_CAP, _text),
        folders=fields.listed("folders", LIST_CAP, _path),
        headers=fields.listed("headers", HEADERS_CAP, _header),
        includes=fields.listed("includes", 2 * HEADERS_CAP, _include),
        resolution=fields.text("resolution"),
        target=fields.text("target"),
        implementation=fields.text("implementation"),
        toolchain=fields.pairs("toolchain"),
        identity=fields.listed("identity", LIST_CAP, _text),
        environment=fields.pairs("environment"),
        name_expressions=fields.listed("name_expressions", LIST_CAP, _text),
        artifact_kind=fields.text("artifact_kind"),
        file_name=fields.text("file_name"),
        made_up=fields.truth("made_up"),
        memory_headers=fields.listed("memory_headers", HEADERS_CAP, _memory_header),
    )


@dataclass(frozen=True, slots=True)
class _Fields:
    """A JSON object whose fields are read one by one; raises DamagedLineError for what does not fit."""

    values: dict[str, object]

    def __post_init__(self) -> None:
        if not isinstance(self.values, dict):
            raise DamagedLineError("a JSON object was expected")

    def inner(self, name: str) -> "_Fields":
        return _Fields(self._value(name))  # type: ignore[arg-type] # which looks at it itself

    def text(self, name: str) -> str:
        return _text(self._value(name))

    def digest(self, name: str) -> str:
        return _digest(self._value(name))

    def number(self, name: str) -> int:
        return _number(self._value(name))

    def truth(self, name: str) -> bool:
        value = self._value(name)
        if not isinstance(value, bool):
            raise DamagedLineError(f"{name!r} is not true or false")
        return value

    def pair(self, name: str) -> tuple[object, object]:
        return _pair(self._value(name))

    def pairs(self, name: str) -> Pairs:
        return self.listed(name, LIST_CAP, lambda value: (_text(_pair(value)[0]), _text(_pair(value)[1])))

    def listed(self, name: str, most: int, read: Callable[[object], T]) -> tuple[T, ...]:
        values = self._value(name)
        if not isinstance(values, list):
            raise DamagedLineError(f"{name!r} is not a list")
        if len(values) > most:
            raise DamagedLineError(f"{name!r} has more than {most} items")
        return tuple(map(read, values))

    def _value(self, name: str) -> object:
        if name not in self.values:
            raise DamagedLineError(f"it has no {name!r}")
        return self.values[name]


def _text(value: object, most: int = TEXT_CAP) -> str:
    if not isinstance(value, str) or "\0" in value or len(value) > most:
        raise DamagedLineError(f"a text of at most {most} characters was expected")
    return value


def _digest(value: object) -> str:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise DamagedLineError("a SHA-256 was expected")
    return value


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value < _NUMBER_CAP:
        raise DamagedLineError("a number from 0 was expected")
    return value


def _pair(value: object) -> tuple[object, object]:
    if not isinstance(value, list) or len(value) != 2:
        raise DamagedLineError("a pair was expected")
    return value[0], value[1]


def _path(value: object) -> str:
    """A path that stays below the folder it is meant from."""
    path = _text(value, 4096)
    parts = path.split("/")
    if len(parts) > _DEPTH_CAP:
        raise DamagedLineError(f"the path {path[:80]!r} has more than {_DEPTH_CAP} folders")
    if any(part in ("", ".", "..") or len(part) > _NAME_CAP for part in parts):
        raise DamagedLineError(f"the path {path[:80]!r} leads elsewhere")
    return path


def _header(value: object) -> Header:
    fields = _Fields(value)  # type: ignore[arg-type] # which looks at it itself
    return Header(_path(fields.text("path")), fields.digest("digest"), fields.number("number"))


def _include(value: object) -> Include:
    fields = _Fields(value)  # type: ignore[arg-type] # which looks at it itself
    found = fields.values.get("digest")
    if found is not None and not (isinstance(found, str) and _FOUND.fullmatch(found)):
        raise DamagedLineError("a SHA-256 was expected")
    return Include(fields.text("name"), found)


def _memory_header(value: object) -> tuple[str, str]:
    name, content = _pair(value)
    return _text(name), _digest(content)


def _call(value: object) -> Call:
    fields = _Fields(value)  # type: ignore[arg-type] # which looks at it itself
    roots, folders = (fields.listed(name, LIST_CAP, _text) for name in ("roots", "folders"))
    return Call(roots, fields.text("directory"), folders)


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > LIST_CAP:
        raise DamagedLineError(f"a list of at most {LIST_CAP} texts was expected")
    return tuple(map(_text, value))


def _local_size(value: object) -> tuple[str, tuple[int, ...]]:
    kernel, size = _pair(value)
    if not isinstance(size, list) or len(size) > 3:
        raise DamagedLineError("a local size has at most three numbers")
    if not all(type(extent) is int and 0 < extent < EXTENT_CAP for extent in size):
        raise DamagedLineError("the numbers of a local size are above 0")
    return _text(kernel), tuple(size)
