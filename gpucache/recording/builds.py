"""The content of a recording: builds, and the observations of each. Frozen values and pure folds.

A build is identified by the digest of all that decides its result. Its observations (local sizes, duration,
first requester) grow, and are not part of that digest. So the union of two recordings is taken build by
build, and neither order nor repetition changes it. The types say what a line of a recording may contain.

Version 1 of a line, which is read without being trusted, is a JSON object in ASCII, of at most ``LINE_CAP``
bytes with its newline:

    {"gpucache recording": 1, "build": {...}, "seen": {...}}
    {"gpucache recording": 1, "of": "<digest of a build>", "seen": {...}}

``build`` has the fields of ``RecordedBuild``, and ``seen`` those of ``Seen``. The second form adds to a build
that the same file names. A line that cannot be parsed in full is damaged: it is reported, and skipped. Older
lines have no ``calls`` and no ``questions`` in ``seen``, and older versions ignore them.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, reduce
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from gpucache.keys import Include
from gpucache.model import ArtifactKind, Language

TEXT_CAP = 1 << 16
LIST_CAP = 4096
COMMAND_CAP = 1024
HEADERS_CAP = 20_000
_INT64 = (1 << 63) - 1
SHA256 = r"\A[0-9a-f]{64}\Z"
# Making and removing directories takes a Python call for each.
BELOW = r"\A(?:(?!\.{1,2}(?:/|\Z))[^/\0]{1,255}(?:/(?!\Z)|\Z)){1,256}\Z"
WHOLE = r"\A[^\0]*\Z"

Text = Annotated[str, Meta(max_length=TEXT_CAP, pattern=WHOLE)]
Digest = Annotated[str, Meta(pattern=SHA256)]
Path = Annotated[str, Meta(max_length=4096, pattern=BELOW)]
"""A path that stays below its base directory."""
Number = Annotated[int, Meta(ge=0, le=_INT64)]
Texts = Annotated[tuple[Text, ...], Meta(max_length=LIST_CAP)]
Pairs = Annotated[tuple[tuple[Text, Text], ...], Meta(max_length=LIST_CAP)]
Size = Annotated[tuple[Annotated[int, Meta(gt=0, lt=1 << 32)], ...], Meta(max_length=3)]


@dataclass(frozen=True, slots=True)
class Header:
    """A file that was found, or could be, on the way from a source to its headers."""

    path: Path
    """The file's path below the tree of its build, such as ``0/detail/x.h``."""
    digest: Digest
    number: Number
    """A number that two paths of one file share, as compilers read a file with ``#pragma once`` once."""


@dataclass(frozen=True)
class RecordedBuild:
    """One program as it was built for one device, wherever its files were."""

    program: Text
    language: Language
    source: Digest
    """SHA-256 of the source, of text with lines that end in LF."""
    options: Texts
    """Build options as given, without include directories."""
    folders: Annotated[tuple[Path, ...], Meta(max_length=LIST_CAP)]
    """The include directories in search order, below the tree; ones without a header are left out."""
    headers: Annotated[tuple[Header, ...], Meta(max_length=HEADERS_CAP)]
    includes: tuple[Include, ...]
    """The include closure as it was keyed."""
    resolution: Text
    target: Text
    implementation: Text
    """The compiler whose search rules made the closure, such as ``pocl``."""
    toolchain: Pairs
    identity: Texts
    """The labels of toolchain fields that an upgrade does not change."""
    environment: Pairs = ()
    name_expressions: Texts = ()
    artifact_kind: ArtifactKind = ArtifactKind.OPENCL_BINARY
    file_name: Text = ""
    """The source's name in a program that calls NVRTC itself; empty for OpenCL."""
    made_up: bool = False
    """Whether the program makes up a new name for each run."""
    memory_headers: Annotated[tuple[tuple[Text, Digest], ...], Meta(max_length=HEADERS_CAP)] = ()
    """Headers that it hands to NVRTC: name and SHA-256."""

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(canonical(self.values())).hexdigest()

    def values(self) -> dict[str, object]:
        return asdict(self) | {"includes": [include._asdict() for include in self.includes]}

    @property
    def short(self) -> str:
        """The first digits of its digest, which people see."""
        return self.digest[:12]

    @property
    def what(self) -> tuple[object, ...]:
        """The build without its target: equal for one program on two devices."""
        found = frozenset(header.digest for header in self.headers)
        asked = (self.options, self.name_expressions, self.memory_headers, self.file_name)
        return self.program, self.language, self.source, *asked, found

    def blobs(self) -> tuple[str, ...]:
        """The digests of the files needed to build it again."""
        found = (self.source, *(header.digest for header in self.headers))
        return tuple(dict.fromkeys((*found, *(digest for _, digest in self.memory_headers))))


@dataclass(frozen=True, slots=True, order=True)
class Call:
    """The directory of a program that called NVRTC itself: a build that embeds paths hits only from there."""

    roots: Texts
    """The absolute directories that contained its tree of headers."""
    directory: Text
    folders: Texts
    """The include directories as the program gave them."""


@dataclass(frozen=True, slots=True, order=True)
class Question:
    """A program's request to its compiler, without the fields that differ between processes."""

    kind: Number
    """The kind of the request, as libraries in programs send it."""
    directory: Text
    fields: Texts
    """The fields of the request in order; the source and the fields of the process are empty."""
    source: Digest
    """SHA-256 of the source, byte by byte."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The observations of one build, by any process at any time."""

    local_sizes: Annotated[frozenset[tuple[Text, Size]], Meta(max_length=16_384)] = frozenset()
    """Kernels with the local sizes they were launched with; an empty size was left to the driver."""
    compile_ns: Number = 0
    """The longest time that compiling took."""
    built: bool = False
    """Whether it compiled, at any time."""
    refused: bool = False
    """Whether its compiler refused it, at any time."""
    roots: Annotated[frozenset[Texts], Meta(max_length=LIST_CAP)] = frozenset()
    """The roots of its tree of headers, for OpenCL: a build that embeds paths hits only there."""
    calls: Annotated[frozenset[Call], Meta(max_length=LIST_CAP)] = frozenset()
    """The compiles of programs that called NVRTC themselves."""
    questions: Annotated[frozenset[Question], Meta(max_length=LIST_CAP)] = frozenset()
    """The requests of programs for it. A request for several devices is recorded with the first device."""
    first: tuple[Number, Annotated[str, Meta(max_length=4 * COMMAND_CAP, pattern=WHOLE)]] | None = None
    """The first instant, in nanoseconds since 1970, and the command that it was seen in."""

    def union(self, other: "Seen") -> "Seen":
        firsts = [each.first for each in (self, other) if each.first is not None]
        return Seen(
            self.local_sizes | other.local_sizes,
            max(self.compile_ns, other.compile_ns),
            self.built or other.built,
            self.refused or other.refused,
            self.roots | other.roots,
            self.calls | other.calls,
            self.questions | other.questions,
            min(firsts, default=None),
        )

    def blobs(self) -> Iterator[str]:
        """The digests of the sources as requested."""
        yield from (question.source for question in self.questions)

    @property
    def failed(self) -> bool:
        """Whether every compile of it that was seen failed."""
        return self.refused and not self.built

    @property
    def sizes(self) -> tuple[tuple[int, ...], ...]:
        """The local sizes of all kernels that were not left to the driver, each once and sorted."""
        return tuple(sorted({size for _, size in self.local_sizes if size}))


@dataclass(frozen=True, slots=True)
class Recording:
    """Builds by their digests, and the observations of them."""

    builds: Mapping[str, RecordedBuild] = field(default_factory=dict)
    seen: Mapping[str, Seen] = field(default_factory=dict)

    def union(self, other: "Recording") -> "Recording":
        seen = dict(self.seen)
        for name, one in other.seen.items():
            seen[name] = seen[name].union(one) if name in seen else one
        return Recording({**self.builds, **other.builds}, seen)

    def rows(self) -> list[tuple[RecordedBuild, Seen]]:
        """Every build with its observations, in an order that does not depend on who wrote first."""
        rows = [(build, self.seen.get(name, Seen())) for name, build in self.builds.items()]
        return sorted(rows, key=lambda row: (row[0].program, row[0].target, row[0].digest))


def union(recordings: Iterable[Recording]) -> Recording:
    return reduce(Recording.union, recordings, Recording())


def canonical(values: object) -> bytes:
    """The one spelling of some plain values as JSON."""
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode("ascii")


VERSION = 1
LINE_CAP = 16 << 20
"""Bytes of one line: a closure of 20,000 headers takes about half."""
_VERSION_KEY = "gpucache recording"
_BACKENDS = {
    Language.OPENCL_C: "opencl",
    Language.SPIR_V: "opencl",
    Language.CUDA_CPP: "cuda",
    Language.HIP_CPP: "hip",
}
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
    build: RecordedBuild | None
    seen: Seen


def build_line(build: RecordedBuild, seen: Seen) -> bytes:
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
    found = _converted(values.get(name), dict[str, object], name)
    for one in fields(kind):
        if one.name not in found and one.name not in _LATER:
            raise DamagedLineError(f"it has no {one.name!r}")
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
