"""Key fields of a build, the key of key fields, and the difference of two lists. Pure, no I/O.

The key (``framing``) covers: language, digest of the source (CR LF read as LF), the include
closure (name as spelled with digest, names that resolved nowhere, and a digest of how names resolved),
canonical build options, the mode of checks where they are compiled in, artifact kind, the toolchain's
fields, environment variables that affect the compiler, name expressions, and, if a program calls
its compiler itself, the last part of the name that it gives its source, as symbols have it, and whether a
directory precedes it (entries of a name without one are only for that name). A located
key adds the directories and file name that the compiler could have written into its output. Local sizes
are not part of a key: an artifact that is compiled for more of them serves a request that names fewer, so
its head lists them.
(Entries of gpucache 0.1 with local sizes among their fields, or for such a program without the name of
its source, are valid, but no longer requested.)

The key of a link has its parts in the place of a source.

Must not know the meaning of a field to a compiler: backends choose the fields.

Owns the include closure of a program, as a value: every header that its compiler could read.
"""

import posixpath
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated, NamedTuple

from gpucache.framing import digest as digest
from gpucache.framing import key_of
from gpucache.json_keys import json_keys
from gpucache.model import BuildRequest, CacheKey, Checks, KeyField, Language, Program, Toolchain

NOT_FOUND = "not found"
REPLACED = "this process began before another build replaced "
"""The beginning of the value for a compiler whose build is unknown; the name of its file follows."""
SEARCHED = "searched directory"
"""The label of a place that a located artifact may contain."""
FOLDER = "current directory"
"""The label of the current directory of a program, which a located artifact may name."""
SOURCE_NAME = "name of the source"
"""The label of the name that a program gives its source if it calls its compiler itself."""
PART = "part"
"""The label, in the key of a link, for each program that was compiled before: a digest of its keys."""
CPU_FEATURES = "CPU features"
"""The label of the words for a CPU's instruction sets, in one value."""
RESOLUTION = "resolution of includes"
"""The label of how the names of headers were resolved; it differs with every header that differs."""
_INCLUDE, _VARIABLE = "include ", "environment "


_FIELD = partial(tuple.__new__, KeyField)
"""``KeyField(*pair)``, of which a hit makes many, without a Python call."""


class KeyInputs(NamedTuple):
    """The parts of a request's key that only a backend can name."""

    options: tuple[str, ...]
    """Canonical build options, in order, without include directories."""
    toolchain: Toolchain
    environment: tuple[tuple[str, str], ...] = ()
    local_sizes: tuple[tuple[int, ...], ...] = ()
    """The local sizes that the artifact is compiled for, outside of the key; empty unless it builds late."""
    locations: tuple[str, ...] = ()
    """Directories as the compiler is given them, for the located key."""
    file_name: str = ""
    """The source's name as the compiler gets it, for the located key."""
    folder: str = ""
    """The current directory if the compiler may write it, for the located key."""


def source_digest(source: bytes) -> str:
    """SHA-256 of a source whose lines end in LF, as lower-case hex.

    Compilers read CR LF as the end of a line, also after a backslash and in a raw string, and so do
    most programs that read a text file: builds of the file's bytes are valid for them too.
    """
    return digest(source.replace(b"\r\n", b"\n"))


def program_digest(program: Program) -> str:
    """SHA-256 of a program's source, as lower-case hex: of a module every byte counts."""
    return (digest if program.language is Language.SPIR_V else source_digest)(program.source)


def key_fields(
    request: BuildRequest, closure: "Closure", inputs: KeyInputs, source: str | None = None
) -> tuple[KeyField, ...]:
    """The portable key fields of a request, in the order in which they are hashed.

    ``source`` is the digest of a source that is not available.
    """
    known = program_digest(request.program) if source is None else source
    return tuple(map(_FIELD, _pairs(request, closure, inputs, known)))


def located_fields(fields: Sequence[KeyField], inputs: KeyInputs) -> tuple[KeyField, ...]:
    """The portable fields and the places that a located artifact may contain."""
    places = [KeyField(SEARCHED, place) for place in inputs.locations]
    folder = [KeyField(FOLDER, inputs.folder)] if inputs.folder else []
    return (*fields, *places, KeyField("file name", inputs.file_name), *folder)


def cache_key(fields: Iterable[KeyField]) -> CacheKey:
    return CacheKey(key_of(fields))


def _pairs(
    request: BuildRequest, closure: "Closure", inputs: KeyInputs, source: str
) -> Iterable[tuple[str, str]]:
    yield "language", request.program.language.value
    yield "source", source
    for include in closure.includes:
        yield f"{_INCLUDE}{include.name}", include.digest or NOT_FOUND
    if closure.includes:
        yield RESOLUTION, closure.resolution
    for option in inputs.options:
        yield "option", option
    if request.checks is not Checks.NONE:
        yield "checks", request.checks.value
    yield "artifact kind", request.artifact_kind.value
    yield from inputs.toolchain.fields
    for name, value in inputs.environment:
        yield f"{_VARIABLE}{name}", value
    for expression in request.name_expressions:
        yield "name expression", expression
    if request.asked is not None:
        folder, last = posixpath.split(request.asked.file_name)
        yield SOURCE_NAME, f"*/{last}" if folder else last


def header_of(label: str) -> str | None:
    """The name of the header that a field is about; None for a field of anything else."""
    return label.removeprefix(_INCLUDE) if label.startswith(_INCLUDE) else None


def variable_of(label: str) -> str | None:
    """The environment variable that a field is about; None for a field of anything else."""
    return label.removeprefix(_VARIABLE) if label.startswith(_VARIABLE) else None


def format_local_size(size: Sequence[int]) -> str:
    """A local size as people write it: ``64`` or ``16x16``."""
    return "x".join(str(extent) for extent in size)


@json_keys("field=label before=left now=right")
class Difference(NamedTuple):
    """A key field that differs; several values are joined by a space."""

    label: Annotated[str, "The key field, such as define N."]
    left: Annotated[str | None, "Its value in the nearest or first entry; null where it is not there."]
    right: Annotated[str | None, "Its value now or in the second entry; null where it is not there."]
    several: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    """Both sides value by value if one has several, as a joined text does not show where one ends."""

    def values(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if self.several is not None:
            return self.several
        words = self.label == CPU_FEATURES
        sides = (() if side is None else (side,) for side in (self.left, self.right))
        left, right = (
            tuple(word for text in side for word in text.split()) if words else side for side in sides
        )
        return left, right

    def apart(self) -> tuple[str | None, str | None]:
        """Both sides without their common values; unchanged if only the order differs."""
        from collections import Counter

        left, right = map(Counter, self.values())
        gone, new = tuple((left - right).elements()), tuple((right - left).elements())
        return (_joined(gone), _joined(new)) if gone or new else (self.left, self.right)


def difference(left: Sequence[KeyField], right: Sequence[KeyField]) -> tuple[Difference, ...]:
    """The differences between two lists of key fields, by label, in the order of the left list."""
    one, two = _by_label(left), _by_label(right)
    sides = (
        (label, one.get(label, ()), two.get(label, ()))
        for label in {**one, **two}
        if one.get(label) != two.get(label)
    )
    return tuple(
        Difference(label, _joined(one), _joined(two), (one, two) if len(one) > 1 or len(two) > 1 else None)
        for label, one, two in sides
    )


def _by_label(fields: Iterable[KeyField]) -> dict[str, tuple[str, ...]]:
    values: dict[str, tuple[str, ...]] = {}
    for label, value in fields:
        values[label] = (*values[label], value) if label in values else (value,)
    return values


def _joined(values: tuple[str, ...]) -> str | None:
    return " ".join(values) if values else None


class Include(NamedTuple):
    """A header of the closure: its name as spelled, and its SHA-256, None if it resolved nowhere."""

    name: str
    digest: str | None


Asked = tuple[str, str, str]
"""A question to the disk, the path that it is about, and the answer."""
Stamps = tuple[tuple[str, tuple[int, ...]], ...]
"""Paths with the properties that change when the file or directory does."""


class Closure(NamedTuple):
    """Every header the compiler could read for a program.

    Equal closures mean equal content reached in the same way, wherever the files are.
    """

    includes: tuple[Include, ...] = ()
    resolution: str = ""
    """Digest of which include resolved to which content; distinguishes equal sets reached differently."""
    uncacheable: str | None = None
    """Why no key can be made, with the remedy; None if one can."""
    files: tuple[str, ...] = ()
    """The paths of the headers found; for traces and watching, never part of a key."""
    stamps: "Stamps | None" = ()
    """Each file and, ending in a slash, each searched directory with its device, inode, size, ctime, mtime:
    they show whether one was different for a while. None if they were not taken. Never part of a key."""
    asked: Sequence[Asked] | None = ()
    """All questions asked of the disk, in order; None if an answer is an error that may pass.
    Never part of a key."""
    tells_places: bool = False
    """Whether a constant may have been made of the path of a header, as by ``sizeof(__FILE__)``: such a
    constant cannot be found in the artifact."""
    tells_name: bool = False
    """Whether a constant may have been made of the source's name, unless the compiler makes that up."""
    renames: bool = False
    """Whether a text may have a name that is relative to the current directory, by a ``#line``."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Closure) and self[:3] == other[:3]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:3])
