"""The file ``info`` of an entry, read without unpickling it.

It is ``pickle.dump(_SourceInfo(dependencies, log))`` of a dataclass, and PyOpenCL loads it with
``pickle.load``, which calls whatever the file names. Here the few opcodes that Python writes for this
one value (protocols 2 to 5) are read as data: the class is a pair of texts and is never looked up, and
everything else is refused. Format: CPython, ``Lib/pickletools.py``. Knows bytes only.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gpucache.errors import FormatError
from gpucache.units import printable

LARGEST_BYTES = 8 << 20
_STEPS = 400_000
_CLASS = ("pyopencl.cache", "_SourceInfo")
_LINE_LIMIT = 256
_FIELDS = {"dependencies", "log"}


class EndedError(FormatError):
    """The bytes end before the value does."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """A header that an entry was made with."""

    path: str
    mtime: float
    """Seconds since 1970, as ``st_mtime`` gives them."""
    md5: str


@dataclass(frozen=True, slots=True)
class Info:
    """What an entry says of its build."""

    dependencies: tuple[Dependency, ...]
    log: str


@dataclass(frozen=True, slots=True)
class _Class:
    """A class by its module and name."""

    path: tuple[object, object]


@dataclass(slots=True)
class _Instance:
    """What the class makes, with its state once that was given."""

    state: object = None


class _Mark:
    """The opcode MARK on the stack."""


_MARK = _Mark()


def read_info(data: bytes) -> Info:
    """The value of an ``info`` file; raises FormatError for anything else, EndedError where it is cut."""
    if len(data) > LARGEST_BYTES:
        raise FormatError("info is larger than what is read of one")
    reading = _Reading(data)
    return _info(reading.run())


@dataclass(slots=True)
class _Reading:
    """A pickle being read: place, stack and memo. Each opcode adds at most one reference to either."""

    data: bytes
    place: int = 0
    stack: list[object] = field(default_factory=list)
    memo: dict[int, object] = field(default_factory=dict)

    def run(self) -> object:
        for _ in range(_STEPS):
            code = self.take(1)
            if code == b".":
                return self._result()
            handler = _OPCODES.get(code)
            if handler is None:
                raise FormatError(f"info has the opcode 0x{code.hex()}, which its value does not need")
            handler(self)
        raise FormatError("info has more parts than are read")

    def take(self, count: int) -> bytes:
        end = self.place + count
        if end > len(self.data):
            raise EndedError(f"info ends at byte {len(self.data)}, in the middle of its value")
        part = self.data[self.place : end]
        self.place = end
        return part

    def number(self, layout: str) -> int:
        (value,) = struct.unpack(layout, self.take(struct.calcsize(layout)))
        return int(value)

    def line(self) -> str:
        end = self.data.find(b"\n", self.place, self.place + _LINE_LIMIT)
        if end < 0:
            raise EndedError("info ends in the middle of a name")
        return printable(self.take(end + 1 - self.place)[:-1])

    def push(self, value: object) -> None:
        self.stack.append(value)

    def pop(self) -> object:
        if not self.stack:
            raise FormatError("info takes a value that it did not give")
        return self.stack.pop()

    def text(self, layout: str) -> None:
        raw = self.take(self.number(layout))
        try:
            self.push(raw.decode("utf-8", "surrogatepass"))
        except UnicodeDecodeError as error:
            raise FormatError("info holds a text that is not UTF-8") from error

    def since_mark(self) -> list[object]:
        taken: list[object] = []
        while (value := self.pop()) is not _MARK:
            taken.append(value)
        return taken[::-1]

    def remember(self, index: int) -> None:
        value = self.pop()
        self.memo[index] = value
        self.push(value)

    def recall(self, index: int) -> None:
        if index not in self.memo:
            raise FormatError("info refers to a part that it did not give")
        self.push(self.memo[index])

    def _result(self) -> object:
        value = self.pop()
        if self.stack or self.place != len(self.data):
            raise FormatError("info holds more than one value")
        return value


def _float(reading: _Reading) -> None:
    (value,) = struct.unpack(">d", reading.take(8))
    reading.push(value)


def _global(reading: _Reading) -> None:
    _push_class(reading, reading.line(), reading.line())


def _stack_global(reading: _Reading) -> None:
    name, module = reading.pop(), reading.pop()
    _push_class(reading, module, name)


def _push_class(reading: _Reading, module: object, name: object) -> None:
    if (module, name) != _CLASS:
        shown = printable(f"{module}.{name}".encode("utf-8", "replace")) if isinstance(module, str) else "?"
        raise FormatError(f"info names {shown}, which PyOpenCL would load and may call")
    reading.push(_Class(_CLASS))


def _new(reading: _Reading) -> None:
    arguments, kind = reading.pop(), reading.pop()
    if arguments != () or not isinstance(kind, _Class):
        raise FormatError("info makes something else than what PyOpenCL writes")
    reading.push(_Instance())


def _build(reading: _Reading) -> None:
    state, made = reading.pop(), reading.pop()
    if not isinstance(made, _Instance) or made.state is not None or not isinstance(state, dict):
        raise FormatError("info sets the state of something else than what PyOpenCL writes")
    made.state = state
    reading.push(made)


def _append(reading: _Reading, values: list[object]) -> None:
    target = reading.pop()
    if not isinstance(target, list):
        raise FormatError("info adds to what is no list")
    target.extend(values)
    reading.push(target)


def _set(reading: _Reading, pairs: list[object]) -> None:
    target = reading.pop()
    if not isinstance(target, dict) or len(pairs) % 2:
        raise FormatError("info adds to what is no dictionary")
    for name, value in zip(pairs[::2], pairs[1::2], strict=True):
        if not isinstance(name, str):
            raise FormatError("info has a field whose name is no text")
        target[name] = value
    reading.push(target)


def _triple(reading: _Reading) -> None:
    third, second, first = reading.pop(), reading.pop(), reading.pop()
    reading.push((first, second, third))


def _pair(reading: _Reading) -> list[object]:
    value, name = reading.pop(), reading.pop()
    return [name, value]


_OPCODES: Mapping[bytes, Callable[[_Reading], object]] = {
    b"\x80": lambda reading: reading.take(1),  # PROTO
    b"\x95": lambda reading: reading.take(8),  # FRAME: the frame's length, of no use here
    b"(": lambda reading: reading.push(_MARK),
    b"N": lambda reading: reading.push(None),
    b")": lambda reading: reading.push(()),
    b"]": lambda reading: reading.push([]),
    b"}": lambda reading: reading.push({}),
    b"G": _float,
    b"X": lambda reading: reading.text("<I"),
    b"\x8c": lambda reading: reading.text("<B"),
    b"\x8d": lambda reading: reading.text("<Q"),
    b"\x87": _triple,
    b"a": lambda reading: _append(reading, [reading.pop()]),
    b"e": lambda reading: _append(reading, reading.since_mark()),
    b"s": lambda reading: _set(reading, _pair(reading)),
    b"u": lambda reading: _set(reading, reading.since_mark()),
    b"q": lambda reading: reading.remember(reading.number("<B")),
    b"r": lambda reading: reading.remember(reading.number("<I")),
    b"\x94": lambda reading: reading.remember(len(reading.memo)),
    b"h": lambda reading: reading.recall(reading.number("<B")),
    b"j": lambda reading: reading.recall(reading.number("<I")),
    b"c": _global,
    b"\x93": _stack_global,
    b"\x81": _new,
    b"b": _build,
}


def _info(value: object) -> Info:
    state = value.state if isinstance(value, _Instance) else None
    if not isinstance(state, dict) or set(state) != _FIELDS:
        raise FormatError("info holds something else than the dependencies and the log of a build")
    dependencies, log = state["dependencies"], state["log"]
    if not isinstance(dependencies, list) or not (log is None or isinstance(log, str)):
        raise FormatError("info has dependencies or a log of another kind than PyOpenCL writes")
    return Info(tuple(map(_dependency, dependencies)), log or "")


def _dependency(value: object) -> Dependency:
    if isinstance(value, tuple) and len(value) == 3:
        path, mtime, md5 = value
        if isinstance(path, str) and isinstance(mtime, float) and isinstance(md5, str):
            return Dependency(path, mtime, md5)
    raise FormatError("info has a dependency that is not a path, a time and a checksum")
