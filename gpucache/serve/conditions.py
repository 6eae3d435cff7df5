"""The conditions of an index's answer: files, variables, the CPU. ``native/conditions.c`` checks them.

Each is five fields: a kind, the base of its path, the path or another text, the value found, and more of it.

| kind | met as long as |
|---|---|
| F | this file exists: with this content if a value has size and content, and with this number |
| S, B | a library or other file of a compiler is unchanged |
| I | a library of a compiler is of this build, by its build id |
| A, D | nothing is at this path; a directory exists |
| N | a directory has the same names |
| L | in the user's own root as N; in a layer or an image always, as drivers are mounted there |
| R | a path leads to the same place |
| O | nothing but this file is in its directory |
| W | the program is in this directory |
| E | of all variables that fit the text's patterns and none of the value's, exactly more's are set |
| P | no directory of LD_LIBRARY_PATH has a file of this name |
| C | of all features of the CPU that fit the text's patterns it has exactly the value's |

A path has no base, or begins in the program's directory (``w``), in its process's first directory (``s``), or
next to the library that a field of the question names, by its number; the library itself if the text is
empty. Equal numbers mean that paths lead to one file. Patterns and variables each end with NUL.

An answer may be used elsewhere, so the content of a header counts, and a compiler's library is recognised as
in keys, by its build id, else by blocks of its content. Files and directories have a stamp besides, a memo of
the machine that wrote the row: in its own root it stands for the content if device, inode, size and both
times agree. Where a stamp cannot be trusted, as for a file younger than a file system's clock or on another
machine's disk, there is none.
"""

# Paths are text as programs give it, and asked of the disk one by one.
# ruff: noqa: PTH112, PTH116, PTH117, PTH118, PTH119, PTH120

import os
import struct
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import xxhash

from gpucache.backends.installation import read_library
from gpucache.backends.interface import Backend
from gpucache.backends.opencl import BACKEND as OPENCL
from gpucache.backends.options import Variables
from gpucache.engine.prepare import Prepared
from gpucache.errors import OptionError
from gpucache.host.file_stamps import is_settled, is_young
from gpucache.keys import (
    FOLDER,
    PART,
    RESOLUTION,
    SEARCHED,
    SOURCE_NAME,
    Closure,
    digest,
    header_of,
    variable_of,
)
from gpucache.model import CacheKey
from gpucache.serve.environment import LAYERS, LIBRARY_PATH
from gpucache.serve.index import Condition

_ELSEWHERE = "/nonexistent/gpucache"
_VALUE = struct.Struct("<QQ")
_CHUNK = 1 << 20
_BLOCK, _BLOCKS = 4096, 256
_STAMPED = "FSBNL"
"""The kinds of conditions that have a stamp, in the order of the conditions; all as ``native`` reads them."""
_CLOCK_NS = 10_000_000
"""By how much the times lag that a local file system sets."""
_CHANGED = "its inputs have changed since its compile"
NEW = " is new, and for a minute may still be written"
"""The end of the only reason that goes away by itself."""


CPU = "CPU features"
_STAMP, _SUM = struct.Struct("<5Q"), struct.Struct("<Q")
_NO_STAMP = bytes(_SUM.size)
BY_FIELD, BY_FILES, BY_VARIABLES, BY_CPU, BY_PLACE = "field", "files", "variables", "CPU", "place"
COVERED: Mapping[str, str] = {
    **dict.fromkeys(
        ("language", "source", PART, "option", "artifact kind", "name expression", SOURCE_NAME), BY_FIELD
    ),
    **dict.fromkeys(("platform name", "platform vendor", "platform version"), BY_FIELD),
    **dict.fromkeys(("device name", "device vendor", "device version", "driver version"), BY_FIELD),
    **dict.fromkeys(("architecture", "NVRTC version", "hipRTC version"), BY_FIELD),
    **dict.fromkeys(("NVRTC build id", "NVRTC builtins build id"), BY_FILES),
    **dict.fromkeys(("driver UUID", "compiler build", "compiler built-ins"), BY_FILES),
    **dict.fromkeys(("configuration", RESOLUTION), BY_FILES),
    CPU: BY_CPU,
    **dict.fromkeys((SEARCHED, "file name", FOLDER), BY_PLACE),
}
"""The condition for each field of a key: a field of the question, files, variables, the CPU, or that an
answer is tied to its place. Each header and each variable has its own label. A key with any other field is
left to the server."""


class Met(NamedTuple):
    """The conditions of an answer, and the stamps of this machine's files."""

    conditions: tuple[Condition, ...]
    stamps: bytes


class UncoveredError(Exception):
    """An answer depends on something that an index cannot check; the text gives the reason."""


def of_view(
    closures: Iterable[Closure], files: Iterable[str], since_ns: int = sys.maxsize
) -> tuple[Condition, ...]:
    """The conditions under which a process sees the headers and the compiler that a key was made of.

    They are confirmed at once and not kept, so the same file is the same content: it is named by its status.
    ``files`` are those of the compiler, known as they were at ``since_ns``. Raises OptionError for one that
    has changed.
    """
    found = dict[Condition, None]()
    for file in files:
        status = _now(file)
        if status.st_ctime_ns > since_ns - _CLOCK_NS:
            raise OptionError(f"{file} has changed since the command began, so nothing is kept for it")
        kind = "S" if ".so" in os.path.basename(file) else "B"
        found[Condition(kind, b"", os.fsencode(file), _status_stamp(status))] = None
    for closure in closures:
        asked = closure.asked
        if asked is None:
            asked = [("read", file, "content") for file in closure.files]
        for question, path, answer in asked:
            if one := _seen(question, path, answer):
                found[one] = None
    return tuple(found)


def _seen(question: str, path: str, answer: str) -> Condition | None:
    """The condition that a process sees the same answer of the disk; None if it does not matter."""
    text = os.fsencode(path)
    if question == "watch" or not path.startswith("/"):
        return None
    if question == "real":
        return Condition("R", b"", text, os.fsencode(answer))
    if answer.startswith("file") or (question == "read" and answer):
        return Condition("F", b"", text, _status_stamp(_now(path)))
    if question == "list":
        return Condition("D" if os.path.isdir(path) else "A", b"", text)
    if answer.startswith("folder"):
        return Condition("D", b"", text)
    return None if answer.startswith("other") else Condition("A", b"", text)


def _now(path: str) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError as error:
        raise OptionError(f"{path} cannot be looked at any more ({error.strerror})") from None


def _status_stamp(status: os.stat_result) -> bytes:
    times = (one % (1 << 64) for one in (status.st_mtime_ns, status.st_ctime_ns))
    fields = _STAMP.pack(status.st_dev, status.st_ino, status.st_size, *times)
    return _SUM.pack(xxhash.xxh64_intdigest(fields))


def require_covered(prepared: Prepared, key: CacheKey, cwd: str) -> None:
    """Raise UncoveredError for a key with a field that no condition covers, or made in another directory."""
    if prepared.request.cwd != cwd:
        raise UncoveredError("its program changed the current directory while it was built")
    for item in prepared.fields if key == prepared.key else prepared.located:
        if item.label not in COVERED and header_of(item.label) is None and variable_of(item.label) is None:
            raise UncoveredError(f"the index cannot check the {item.label} of its key")


class Conditions:
    """The conditions of one answer, each once, as they are found."""

    def __init__(self, cwd: str, *, tied: bool, since_ns: int = sys.maxsize) -> None:
        self._cwd = cwd
        self._since_ns = since_ns
        self._tied = tied
        self._found: dict[Condition, bytes] = {}
        """Each with its stamp, or nothing if its kind has none."""
        self._numbers: dict[tuple[int, int], int] = {}
        self._same: dict[str | int, str | int] = {}
        """Numbers of files in a closure by their numbers here, and the reverse."""
        self._alone: str | None = None
        if tied:
            self.add(Condition("W", b"", os.fsencode(cwd)))

    def add(self, condition: Condition, stamp: bytes = _NO_STAMP) -> None:
        self._found[condition] = stamp if condition.kind in _STAMPED else b""

    def all(self) -> Met:
        return Met(tuple(self._found), b"".join(self._found.values()))

    def add_variables(self, variables: Variables, environ: Mapping[str, str]) -> None:
        kept = texts(f"{name}={value}" for name, value in variables.among(environ) if value or name != LAYERS)
        self.add(Condition("E", b"", texts(variables.reaching), texts(variables.harmless), kept))

    def stand_alone(self, given: str, kept: str) -> None:
        """Record that a source has a private directory with a made-up name, if it has."""
        folder = os.path.dirname(kept)
        if folder != os.path.dirname(given):
            self._alone = folder
            self.add(Condition("O", b"5"))

    def add_compiler(
        self, field: int, library: str, files: Sequence[str], environ: Mapping[str, str]
    ) -> None:
        """The files of a compiler: files in its library's directory are looked for next to it again.

        They are checked by the names that they were found by, which may be links. A library of theirs that
        the loader would now find in LD_LIBRARY_PATH differs.
        """
        real = os.path.realpath(library) if library else ""
        folder = os.path.dirname(files[0]) if files else ""
        known = bool(files) and (library == files[0] or real == os.path.realpath(files[0]))
        beside = known and os.path.dirname(real) == os.path.realpath(folder)
        if real:
            kind, value, stamp = self._recognised(real, is_library=True)
            self.add(Condition(kind, b"%d" % field, b"", value), stamp)
        for file in files[1:] if known else files:
            is_library = ".so" in os.path.basename(file)
            kind, value, stamp = self._recognised(file, is_library=is_library)
            place, text = b"", file
            if beside and file.startswith(f"{folder}/"):
                place, text = b"%d" % field, file.removeprefix(f"{folder}/")
            self.add(Condition(kind, place, os.fsencode(text), value), stamp)
            if is_library and os.path.dirname(file) in environ.get(LIBRARY_PATH, "").split(":"):
                self.add_variables(Variables((LIBRARY_PATH,)), environ)
            elif is_library:
                self.add(Condition("P", b"", os.fsencode(os.path.basename(file))))

    def add_folders(self, files: Sequence[str]) -> None:
        """The directories of a compiler's files: a new file there might be read, too."""
        for folder in dict.fromkeys(map(os.path.dirname, files)):
            self._add_names("L", folder, b"", os.fsencode(folder))

    def add_system(self, listed: Sequence[str], absent: Sequence[str]) -> None:
        """The directories whose listings decide where headers are looked for, and missing ones that would."""
        for folder in listed:
            self._add_names("N", folder, b"", os.fsencode(folder))
        for folder in absent:
            self.add(Condition("A", b"", os.fsencode(folder)))

    def _add_names(self, kind: str, folder: str, place: bytes, text: bytes, names: str = "") -> None:
        """Add the condition that a directory has the same names, or is missing.

        Raises UncoveredError if the digest of the names is not ``names``."""
        try:
            stamp = _stamp(folder, os.stat(folder))  # which is taken before it is read
            found = sorted(os.listdir(os.fsencode(folder)))  # noqa: PTH208 - as it was read before
        except (FileNotFoundError, NotADirectoryError):
            found = None
        except OSError as error:
            raise UncoveredError(f"{folder} cannot be listed any more ({error.strerror})") from None
        if names and digest(b"\0".join(found or ())) != names:
            raise UncoveredError(_CHANGED)
        if found is None:
            self.add(Condition("A", place, text))
        else:
            total = sum(map(xxhash.xxh64_intdigest, found)) % (1 << 64)
            self.add(Condition(kind, place, text, _VALUE.pack(len(found), total)), stamp)

    def add_closure(self, prepared: Prepared, backend: Backend, environ: Mapping[str, str]) -> None:
        """Add all disk accesses that found the headers of a program."""
        asked = prepared.closure.asked
        if asked is None:
            raise UncoveredError("its headers could not be read for sure")
        apart = _apart(prepared, backend, environ)
        self._same.clear()
        # PoCL looks for headers next to the program, in its own cache, which has none.
        unseen = [prepared.compilation.rule.home if backend is OPENCL else None]
        unseen.append(self._alone)
        contents = {path: answer for question, path, answer in asked if question == "read"}
        for question, path, answer in asked:
            if not path or question == "watch":
                continue
            if any(folder is not None and _is_below(path, folder) for folder in unseen):
                continue
            place, text = self._placed(path, apart)
            if question == "list":
                self._add_names("N", path, place, text, answer)
            elif question == "real":
                self._add_link(path, answer, place)
            elif (question == "read" and answer) or (answer.startswith("file") and contents.get(path) != ""):
                # A file read through '..' was looked at under another name than it was read by.
                value, stamp = _header(path, contents[path]) if path in contents else (b"", _NO_STAMP)
                before = answer.removeprefix("file") if question == "look" else ""
                self.add(Condition("F", place, text, value, self._number(path, before)), stamp)
            elif answer.isdigit():  # a number alone is that of nothing
                self.add(Condition("A", place, text))
            elif answer.startswith("folder"):
                self.add(Condition("D", place, text, b"", self._number(path, answer.removeprefix("folder"))))
            else:
                raise UncoveredError(f"{path} cannot be read, and is looked at")

    def _add_link(self, path: str, target: str, place: bytes) -> None:
        if path == target == self._cwd:
            return
        if place:
            raise UncoveredError(f"where {path} leads depends on the directory that it is built in")
        self.add(Condition("R", b"", os.fsencode(path), os.fsencode(target)))

    def _placed(self, path: str, apart: Sequence[str]) -> tuple[bytes, bytes]:
        """Where a path begins, and the rest of it."""
        own = not self._tied and _is_below(path, self._cwd) and not any(_is_below(path, one) for one in apart)
        return (
            (b"w", os.fsencode(path[len(self._cwd.rstrip("/")) + 1 :])) if own else (b"", os.fsencode(path))
        )

    def _recognised(self, path: str, *, is_library: bool) -> tuple[str, bytes, bytes]:
        """The kind of the condition for a file of a compiler, its value and its stamp."""
        status = _status(path)
        build_id = read_library(Path(path)).build_id if is_library else None
        # The build id tells what another content cannot: that no part of the file is still being written.
        is_late = status.st_ctime_ns > self._since_ns - _CLOCK_NS
        if is_late or (not build_id and is_young(status, self._since_ns)):
            raise UncoveredError(f"{path}{NEW}")
        if build_id:
            return "I", bytes.fromhex(build_id), _NO_STAMP
        value = _value(path, _status_stamp(status), spread=is_library)
        return "S" if is_library else "B", value, _stamp(path, status)

    def _number(self, path: str, before: str) -> bytes:
        """A number for a file; raises UncoveredError if other paths led to it when its key was made."""
        status = _status(path)
        number = self._numbers.setdefault((status.st_dev, status.st_ino), len(self._numbers))
        if before:
            seen = (self._same.setdefault(before, number), self._same.setdefault(number, before))
            if seen != (number, before):
                raise UncoveredError(_CHANGED)
        return b"%d" % number


def is_tied(backend: Backend, prepared: Prepared, key: CacheKey, environ: Mapping[str, str]) -> bool:
    """Whether an answer is for one current directory alone: it contains paths, or some may lead there."""
    if key != prepared.key:
        return True
    cwd = prepared.request.cwd
    apart = [place for place in _apart(prepared, backend, environ) if _is_below(place, cwd)]
    given = {*prepared.compilation.include_dirs, *prepared.compilation.inherited_dirs} - {*apart}
    names = [include.name for include in prepared.closure.includes]
    led = [*given, *(os.path.normpath(os.path.join(cwd, name)) for name in names)]
    return any(os.path.isabs(name) and _is_below(name, cwd) for name in names) or any(
        _is_below(path, place) for path in led for place in apart
    )


def _apart(prepared: Prepared, backend: Backend, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The directories that are searched wherever the program is."""
    request = prepared.request._replace(cwd=_ELSEWHERE)
    here, there = (
        (*one.include_dirs, *one.inherited_dirs, *filter(None, (one.rule.home,)))
        for one in (
            prepared.compilation,
            backend.plan(request, prepared.compilation.inputs.toolchain, environ),
        )
    )
    system = (place for place in prepared.compilation.rule.system if os.path.isabs(place))
    return tuple(dict.fromkeys((*(place for place in here if place in there), *system)))


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _status(path: str) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError as error:
        raise UncoveredError(f"{path} cannot be looked at any more ({error.strerror})") from None


def _header(path: str, content: str) -> tuple[bytes, bytes]:
    """The value of a header whose content has a digest, and its stamp."""
    stamp = _stamp(path, _status(path))
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UncoveredError(f"{path} cannot be read any more ({error.strerror})") from None
    if digest(data) != content:
        raise UncoveredError(_CHANGED)
    parts = (data[at : at + _CHUNK] for at in range(0, len(data), _CHUNK))
    return _VALUE.pack(len(data), _total(parts)), stamp


def _stamp(path: str, status: os.stat_result) -> bytes:
    """The stamp that identifies the content of a file here; none where it does not."""
    return _status_stamp(status) if is_settled(path, status, time.time_ns()) else _NO_STAMP


@lru_cache(maxsize=1024)
def _value(path: str, _: bytes, *, spread: bool) -> bytes:
    """The value of a compiler's file with a stamp; of a large library blocks are read, spread evenly."""
    try:
        with Path(path).open("rb") as file:
            status = os.fstat(file.fileno())
            if spread and status.st_size > _CHUNK:
                parts = []
                for number in range(_BLOCKS):
                    file.seek((status.st_size - _BLOCK) * number // (_BLOCKS - 1))
                    parts.append(file.read(_BLOCK))
                total = _total([b"".join(parts)])
            else:
                total = _total(iter(lambda: file.read(_CHUNK), b""))
    except OSError as error:
        raise UncoveredError(f"{path} cannot be read ({error.strerror})") from None
    return _VALUE.pack(status.st_size, total)


def _total(parts: Iterable[bytes]) -> int:
    total = 0
    for part in parts:
        total = xxhash.xxh64_intdigest(part, total)
    return total


def texts(several: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(text) + b"\0" for text in several)
