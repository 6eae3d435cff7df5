"""What an answer of a layer's index depends on: files, variables, the CPU. ``native/conditions.c`` looks.

Each is five fields: a kind, where its path begins, the path or another text, what was found, and more of it.

| kind | holds as long as |
|---|---|
| F | there is this file: with this content if a value tells size, time and content, and with this number |
| S, B | a library or other file of a compiler is as it was: by size and time, else by content |
| A, D | nothing is at this path; a folder is there |
| R | a path leads to the same place |
| O | nothing but this file lies in its folder |
| W | the program is in this folder |
| E | of all variables that fit the text's patterns and none of the value's, exactly those of more are set |
| P | no folder of LD_LIBRARY_PATH has a file of this name |
| C | of all features of the CPU that fit the text's patterns it has exactly those of the value |

A path begins nowhere, in the program's folder (``w``), where its process was at the start (``s``), or beside
the library that a field of the question names, by its number; the library itself if the text is empty. Equal
numbers mean that paths lead to one file. Patterns and variables each end with NUL.
"""

# Paths are text as programs give it, and asked of the disk one by one.
# ruff: noqa: PTH116, PTH117, PTH118, PTH119, PTH120

import os
import platform
import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import xxhash

from gpucache.backends.cuda import BACKEND as CUDA
from gpucache.backends.cuda import nvrtc
from gpucache.backends.cuda.options import VARIABLES
from gpucache.backends.interface import Backend
from gpucache.backends.opencl import BACKEND as OPENCL
from gpucache.backends.opencl.cpu import FEATURES, cpu_features
from gpucache.backends.opencl.options import INTEL, variables
from gpucache.backends.options import Variables
from gpucache.engine.prepare import Prepared
from gpucache.intercept.environment import LAYERS
from gpucache.intercept.index import Condition
from gpucache.intercept.nvrtc import LIBRARY_PATH, Call
from gpucache.intercept.opencl import Asked
from gpucache.keys import digest
from gpucache.model import CacheKey

_ELSEWHERE = "/nonexistent/gpucache"
_VALUE = struct.Struct("<QQQ")
_CHUNK = 1 << 20
_BLOCK, _BLOCKS = 4096, 256
_NO_TIME, _MADE_UP_S = (1 << 64) - 1, 10 * 366 * 24 * 3600
"""Systems whose files never change in place give all of them one time before 1980, which tells nothing."""
_FIRST_LIBRARY, _FIELDS_OF_DEVICE, _NVRTC_LIBRARY = 6, 8, 4
_CONFIGURATION = "cl.cfg"
"""Read by Intel's runtime from beside its library, and from where its process is when it is loaded."""
_EARLY, _CPU = "configuration at the start", "CPU features"
_CHANGED = "what it was compiled of has changed since"


class UncoveredError(Exception):
    """An answer depends on what an index cannot tell; its text is why."""


def of_build(
    asked: Asked, prepared: Sequence[Prepared], keys: Sequence[CacheKey], files: Sequence[Sequence[str]]
) -> tuple[Condition, ...]:
    """What the answer to a build depends on; raises UncoveredError.

    For each device what was looked up, the key that was found, and the files of its driver.
    """
    tied = any(map(_is_tied, [OPENCL] * len(keys), prepared, keys, [asked.environ] * len(keys)))
    found = _Found(asked.cwd, tied=tied)
    for number, one in enumerate(prepared):
        toolchain = one.compilation.inputs.toolchain
        fields = dict(toolchain.fields)
        if _EARLY in fields:
            raise UncoveredError(f"its driver was configured by a {_CONFIGURATION} where the command began")
        found.add_closure(one, OPENCL, asked.environ)
        found.add_variables(variables(toolchain.implementation), asked.environ)
        place = _FIRST_LIBRARY + number * _FIELDS_OF_DEVICE
        found.add_compiler(place, asked.devices[number].library, files[number], asked.environ)
        if toolchain.implementation == INTEL:
            found.add(Condition("A", b"s", _CONFIGURATION.encode()))
            if not any(os.path.basename(file) == _CONFIGURATION for file in files[number]):
                found.add(Condition("A", b"%d" % place, _CONFIGURATION.encode()))
        if _CPU in fields:
            x86 = platform.machine() in ("x86_64", "i686")
            found.add(Condition("C", b"", _texts(FEATURES if x86 else "*"), _texts(cpu_features().split())))
    return found.all()


def of_call(call: Call, prepared: Prepared, key: CacheKey) -> tuple[Condition, ...]:
    """What the answer to a call of NVRTC depends on; raises UncoveredError."""
    if call.headers:
        raise UncoveredError("it has headers in memory, whose own includes an index does not follow")
    found = _Found(call.cwd, tied=_is_tied(CUDA, prepared, key, call.environ))
    if call.file_name.stems is not None:
        found.stand_alone(call.file_name.given, call.file_name.kept)
    found.add_closure(prepared, CUDA, call.environ)
    found.add_variables(VARIABLES, call.environ)
    passed, builtins = nvrtc.search_builtins(call.library, call.version, call.environ.get(LIBRARY_PATH, ""))
    found.add_compiler(_NVRTC_LIBRARY, str(call.library), [str(call.library), str(builtins)], call.environ)
    for path in passed:
        found.add(Condition("A", b"", os.fsencode(path)))
    return found.all()


class _Found:
    """The conditions of one answer, each once."""

    def __init__(self, cwd: str, *, tied: bool) -> None:
        self._cwd = cwd
        self._tied = tied
        self._found: dict[Condition, None] = {}
        self._numbers: dict[tuple[int, int], int] = {}
        self._alone: str | None = None
        if tied:
            self.add(Condition("W", b"", os.fsencode(cwd)))

    def add(self, condition: Condition) -> None:
        self._found[condition] = None

    def all(self) -> tuple[Condition, ...]:
        return tuple(self._found)

    def add_variables(self, variables: Variables, environ: Mapping[str, str]) -> None:
        kept = _texts(
            f"{name}={value}" for name, value in variables.among(environ) if value or name != LAYERS
        )
        self.add(Condition("E", b"", _texts(variables.reaching), _texts(variables.harmless), kept))

    def stand_alone(self, given: str, kept: str) -> None:
        """Say that a source has a folder of its own whose name was made up, if it has."""
        folder = os.path.dirname(kept)
        if folder != os.path.dirname(given):
            self._alone = folder
            self.add(Condition("O", b"5"))

    def add_compiler(
        self, field: int, library: str, files: Sequence[str], environ: Mapping[str, str]
    ) -> None:
        """The files of a compiler: those in the folder of its library are looked for beside it again.

        They are looked at by the names that they were found by, which may be links. A library of theirs that
        the loader would now find in LD_LIBRARY_PATH is another.
        """
        real = os.path.realpath(library) if library else ""
        folder = os.path.dirname(files[0]) if files else ""
        known = bool(files) and real == os.path.realpath(files[0])
        beside = known and os.path.dirname(real) == os.path.realpath(folder)
        if real:
            self.add(Condition("S", b"%d" % field, b"", _value(real, spread=True)))
        for file in files[1:] if known else files:
            is_library = ".so" in os.path.basename(file)
            kind, place, text = "S" if is_library else "B", b"", file
            if beside and file.startswith(f"{folder}/"):
                place, text = b"%d" % field, file.removeprefix(f"{folder}/")
            self.add(Condition(kind, place, os.fsencode(text), _value(file, spread=is_library)))
            if is_library and os.path.dirname(file) in environ.get(LIBRARY_PATH, "").split(":"):
                self.add_variables(Variables((LIBRARY_PATH,)), environ)
            elif is_library:
                self.add(Condition("P", b"", os.fsencode(os.path.basename(file))))

    def add_closure(self, prepared: Prepared, backend: Backend, environ: Mapping[str, str]) -> None:
        """All that was asked of the disk to find the headers of a program."""
        asked = prepared.closure.asked
        if asked is None:
            raise UncoveredError("its headers could not be read for sure")
        apart = _apart(prepared, backend, environ)
        # PoCL looks for headers beside the program, in its own cache, where nobody keeps any.
        unseen = [prepared.compilation.rule.home if backend is OPENCL else None]
        unseen.append(self._alone)
        contents = {path: answer for question, path, answer in asked if question == "read"}
        for question, path, answer in asked:
            if not path or question == "watch":
                continue
            if any(folder is not None and _is_below(path, folder) for folder in unseen):
                continue
            if question == "list":
                raise UncoveredError("it includes headers through a macro, which an index does not follow")
            place, text = self._placed(path, apart)
            if question == "real":
                self._add_link(path, answer, place)
            elif (question == "read" and answer) or (answer.startswith("file") and contents.get(path) != ""):
                # What is read through '..' was looked at under another name than it was read by.
                value = _header(path, contents[path]) if path in contents else b""
                self.add(Condition("F", place, text, value, self._number(path)))
            elif answer.isdigit():  # a number alone is that of nothing
                self.add(Condition("A", place, text))
            elif answer.startswith("folder"):
                self.add(Condition("D", place, text, b"", self._number(path)))
            else:
                raise UncoveredError(f"{path} cannot be read, and is looked at")

    def _add_link(self, path: str, target: str, place: bytes) -> None:
        if path == target == self._cwd:
            return
        if place:
            raise UncoveredError(f"where {path} leads depends on the folder that it is built in")
        self.add(Condition("R", b"", os.fsencode(path), os.fsencode(target)))

    def _placed(self, path: str, apart: Sequence[str]) -> tuple[bytes, bytes]:
        """Where a path begins, and the rest of it."""
        own = not self._tied and _is_below(path, self._cwd) and not any(_is_below(path, one) for one in apart)
        return (
            (b"w", os.fsencode(path[len(self._cwd.rstrip("/")) + 1 :])) if own else (b"", os.fsencode(path))
        )

    def _number(self, path: str) -> bytes:
        status = _status(path)
        return b"%d" % self._numbers.setdefault((status.st_dev, status.st_ino), len(self._numbers))


def _is_tied(backend: Backend, prepared: Prepared, key: CacheKey, environ: Mapping[str, str]) -> bool:
    """Whether an answer is for one current directory alone: it holds paths, or some may lead there or not."""
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
    """The folders that are searched wherever the program is."""
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


def _header(path: str, content: str) -> bytes:
    """The value of a header whose content has a digest."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UncoveredError(f"{path} cannot be read any more ({error.strerror})") from None
    if digest(data) != content:
        raise UncoveredError(_CHANGED)
    parts = (data[at : at + _CHUNK] for at in range(0, len(data), _CHUNK))
    return _VALUE.pack(len(data), _NO_TIME, _total(parts))


@lru_cache(maxsize=1024)
def _value(path: str, *, spread: bool) -> bytes:
    """The value of a file of a compiler; of a large library only blocks are read that are spread evenly."""
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
    time_ns = status.st_mtime_ns if status.st_mtime > _MADE_UP_S else _NO_TIME
    return _VALUE.pack(status.st_size, time_ns, total)


def _total(parts: Iterable[bytes]) -> int:
    total = 0
    for part in parts:
        total = xxhash.xxh64_intdigest(part, total)
    return total


def _texts(texts: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(text) + b"\0" for text in texts)
