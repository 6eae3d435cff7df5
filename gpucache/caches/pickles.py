"""Pickles in caches of others, read opcode by opcode: their texts and bytes, and the names that they import.

Whoever loads a pickle runs what it imports, so the names are compared with those that the owner's versions
write; any other makes it untrusted, whatever the rest of it is. The comparison fails closed: a name that the
opcodes do not spell out, an extension code, a newer protocol, and bytes that may be a pickle of their own are
no known names. It says nothing of the data that known names get, such as generated code, which owners run.

Source: CPython, ``Lib/pickletools.py`` and ``Lib/pickle.py``. Nothing is unpickled. Must not know any system.
"""

import io
import pickletools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpucache.answers.entries import FindingKind, Problem
from gpucache.errors import FormatError
from gpucache.units import printable

NEWEST = 5
_DEEPEST = 8
_OF_TORCH = 5
"""The number of pickles at the beginning of a tensor's bytes; its values follow."""
_TEXTS = frozenset({"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"})
_STORES = frozenset({"MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"})
_LOADS = frozenset({"GET", "BINGET", "LONG_BINGET"})
_NAME = re.compile(r"[\w.]+:[\w.]+")
_NUMBER = re.compile(rb"[IL][^\n]+\n")
"""A number in text, which the loader reads in more forms than ``pickletools``."""
_ARCHIVE = b"PK\x03\x04"
_PROTOCOL = re.compile(rb"\x80[\x00-\x05]")


class Names(NamedTuple):
    """The names that the versions of one owner write into pickles."""

    owner: str
    known: re.Pattern[str]
    of_code: re.Pattern[str]
    """Those by which the owner writes functions and classes of a program, as code."""

    @classmethod
    def of(cls, owner: str, *patterns: str, of_code: str = "(?!)") -> "Names":
        """Names by patterns of ``module:name``, each of which has to match the whole."""
        return cls(owner, re.compile("|".join(f"(?:{one})" for one in patterns)), re.compile(of_code))


def values(data: bytes, pickles: int, names: Names | None = None) -> tuple[list[str | bytes], Problem | None]:
    """The texts and bytes in a number of consecutive pickles, and why the data do not begin with these.

    An import that is not among the names comes before any other problem, as it runs before that.
    """
    found: list[str | bytes] = []
    stream = io.BytesIO(data)
    try:
        for _ in range(pickles):
            for value in _read(stream, len(data), names, 0):
                if isinstance(value, str | bytes):
                    found.append(value)
    except _UnknownError as error:
        told = printable(str(error).replace(":", ".").encode("utf-8", "replace")) or "a name that it computes"
        owner = names.owner if names else ""
        if names and names.of_code.fullmatch(str(error)):
            return found, Problem(
                FindingKind.UNSUPPORTED,
                f"has code of a program ({told}), which nobody can tell from other code",
            )
        return found, Problem(
            FindingKind.UNTRUSTED, f"imports {told}, which no known version of {owner} writes into a pickle"
        )
    except _CutError:
        return found, Problem(FindingKind.TRUNCATED, "ends in the middle of a frame of a pickle")
    except Exception as error:  # the opcodes of arbitrary bytes can raise anything
        if stream.tell() >= len(data):
            return found, Problem(FindingKind.TRUNCATED, "ends in the middle of a pickle")
        return found, Problem(FindingKind.CORRUPT, f"is not a pickle ({error})")
    return found, None


def problem(data: bytes, names: Names) -> Problem | None:
    return values(data, 1, names)[1]


class _UnknownError(Exception):
    """The pickle imports something that its owner does not write: ``module:name``, or an empty text."""


class _CutError(FormatError):
    """A frame of a pickle is cut."""


def _read(
    stream: io.BytesIO, size: int, names: Names | None, depth: int, unknown: list[str] | None = None
) -> Iterator[object]:
    """The arguments of a pickle's opcodes, up to its end, compared with the names.

    Raises _UnknownError for a name that is not known, or adds it to ``unknown`` and reads on.
    """
    texts: list[object] = []  # those on top of the stack
    stack: list[object] = []
    memo: dict[object, object] = {}
    for code, value, _ in pickletools.genops(stream):
        name = code.name
        if name == "FRAME" and int(value or 0) > size - stream.tell():
            raise _CutError("cut")
        if name == "PROTO" and int(value or 0) > NEWEST:
            raise FormatError(f"protocol {value}")
        if name in _STORES:
            memo[len(memo) if value is None else value] = texts[-1] if texts else None
        elif name in _TEXTS or name in _LOADS:
            texts = [*texts[-1:], memo.get(value) if name in _LOADS else value]
        elif name not in ("PROTO", "FRAME"):
            if names is not None and (name.endswith("GLOBAL") or name == "INST" or name.startswith("EXT")):
                _require(_imported(name, value, texts), names, unknown)
            texts = []
        if names is not None and isinstance(value, bytes | bytearray) and value:
            _require_inside(bytes(value), names, depth + 1)
        _require_on(stack, code)
        yield value


def _require_on(stack: list[object], code: pickletools.OpcodeInfo) -> None:
    """Do to a stack of kinds what an opcode does; raises FormatError if it would take more than there is."""
    below = code.stack_before
    if pickletools.markobject in below:
        marks = [at for at, kind in enumerate(stack) if kind is pickletools.markobject]
        if not marks:
            raise FormatError("it has no mark")
        del stack[marks[-1] :]
        below = below[: below.index(pickletools.markobject)]
    if len(below) > len(stack):
        raise FormatError("its stack is empty")
    del stack[len(stack) - len(below) :]
    stack += code.stack_after


def _imported(opcode: str, value: object, texts: Sequence[object]) -> str:
    """The name that an opcode imports, as ``module:name``; empty if only a run would tell."""
    if opcode == "STACK_GLOBAL" and len(texts) == 2 and all(isinstance(one, str) for one in texts):
        return ":".join(map(str, texts))
    return str(value).replace(" ", ":", 1) if opcode in ("GLOBAL", "INST") else ""


def _require(imported: str, names: Names, unknown: list[str] | None) -> None:
    if not names.known.fullmatch(imported):
        if unknown is None:
            raise _UnknownError(imported)
        unknown.append(imported)


def _require_inside(data: bytes, names: Names, depth: int) -> None:
    """Raise _UnknownError if bytes inside a pickle, which an owner may load as well, import anything else.

    They begin with their protocol, or are of the oldest two, which look like other data. A loader runs what
    comes before an error, so one name in data that are no pickle is enough. PyTorch reads archives, too.
    """
    if depth > _DEEPEST or data.startswith(_ARCHIVE):
        raise _UnknownError("")
    stream, pickles = io.BytesIO(data), 0
    while (at := stream.tell()) < len(data):
        declared, codes, whole, unknown = _PROTOCOL.match(data, at), 0, False, list[str]()
        try:
            for _ in _read(stream, len(data), names, depth, unknown):
                codes += 1
            whole = True
        except _UnknownError:
            raise
        except Exception:  # no pickle, unless it began as one
            if not unknown and pickles < _OF_TORCH and (declared or _NUMBER.match(data, at)):
                raise _UnknownError("") from None
        spelt = next(filter(_NAME.fullmatch, unknown), "")
        if spelt or (unknown and (declared or whole)) or ("" in unknown and codes):
            raise _UnknownError(spelt or unknown[0])
        if not whole:
            return
        pickles += 1
