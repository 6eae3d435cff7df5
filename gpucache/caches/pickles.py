"""Pickles in caches of others, read opcode by opcode: their texts and bytes, and the names that they import.

Whoever loads a pickle runs what it imports, so the names are compared with those that the owner's versions
write; any other makes it untrusted, whatever the rest of it is. The comparison fails closed: a name that the
opcodes do not spell out, an extension code, a newer protocol, and bytes that may be a pickle of their own are
no known names. It says nothing of the data that known names get, such as generated code, which owners run.

A class for each owner that keeps little else follows. Source: CPython, ``Lib/pickletools.py`` and
``Lib/pickle.py``. Nothing is unpickled.
"""

import io
import pickletools
import re
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches.binary_format import broken
from gpucache.caches.files import Files
from gpucache.caches.format import Format
from gpucache.caches.layout import Layout, Left, hashed
from gpucache.errors import FormatError
from gpucache.payload import PayloadKind
from gpucache.payload.reading import CutError
from gpucache.units import printable

NEWEST = 5
_DEEPEST = 8
_OF_TORCH = 5
"""The number of pickles that begin a tensor's bytes; its values follow."""
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
    """Names by which the owner pickles a program's functions and classes as code."""

    @classmethod
    def of(cls, owner: str, *patterns: str, of_code: str = "(?!)") -> "Names":
        """Names given as patterns, each for a whole ``module:name``."""
        return cls(owner, re.compile("|".join(f"(?:{one})" for one in patterns)), re.compile(of_code))


def values(
    data: bytes, pickles: int, names: Names | None = None
) -> tuple[list[str | bytes | float], Problem | None]:
    """The texts, bytes and fractions in consecutive pickles, and why the data do not begin with so many.

    An import that is not among the names comes before any other problem, as it runs before that.
    """
    found: list[str | bytes | float] = []
    stream = io.BytesIO(data)
    try:
        for _ in range(pickles):
            for value in _read(stream, len(data), names, 0):
                if isinstance(value, str | bytes | float):
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
    except CutError:
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


def _read(
    stream: io.BytesIO, size: int, names: Names | None, depth: int, unknown: list[str] | None = None
) -> Iterator[object]:
    """The arguments of a pickle's opcodes, up to its end, compared with the names; of one that repeats a text
    that text.

    Raises _UnknownError for a name that is not known, or adds it to ``unknown`` and reads on.
    """
    texts: list[object] = []  # those on top of the stack
    stack: list[object] = []
    memo: dict[object, object] = {}
    for code, value, _ in pickletools.genops(stream):
        name = code.name
        if name == "FRAME" and int(value or 0) > size - stream.tell():
            raise CutError("cut")
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
        yield texts[-1] if name in _LOADS else value


def _require_on(stack: list[object], code: pickletools.OpcodeInfo) -> None:
    """Apply an opcode to a stack of kinds; raises FormatError if it takes more than there are."""
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


_LARGEST_BYTES = 256 << 20


class PickledFormat(Format):
    """Entries of pickles, libraries and GPU binaries, each file of which the owner reads unchecked."""

    names: Names
    fails: str
    """The effect of a broken file; ends the sentences about that."""

    def look(self, item: Files) -> CacheEntry:
        kind = "pickle" if item.names[0].endswith(("pkl", "pickle")) else PayloadKind.ELF.value
        return self.entry(item)._replace(program="/".join((*item.parts, item.names[0])), artifact_kind=kind)

    def check(self, item: Files) -> Iterator[Problem]:
        for name in item.names:
            if not name.endswith((".so", ".pkl", ".pickle")):
                continue
            data = item.read(name, _LARGEST_BYTES)
            if name.endswith(".so"):
                yield from broken(name, data, PayloadKind.ELF, self.fails)
                yield from self.linked(item, name, data, self.fails)
            elif wrong := self.pickled(data):
                runs = f"{self.owner} runs it at the next start"
                end = runs if wrong.kind is FindingKind.UNTRUSTED else self.fails
                yield Problem(wrong.kind, f"{name} {wrong.detail}; {end}")

    def pickled(self, data: bytes) -> Problem | None:
        return problem(data, self.names)


_MACHINE = r"(?:Linux|Darwin|Windows)_[\w.-]+_p\d+\.\d+\.\d+"
_FORMULA = r"(?:pykeops_\w+_|keops\w*_)?[0-9a-f]{10}"


class Keops(PickledFormat, of="keops"):
    """The formulas that KeOps compiled.

    Source: keopscore 2.3 (PyPI), ``keopscore/config/base_config.py`` and ``keopscore/utils/Cache.py``;
    checked against files for a CPU. A directory for each machine and Python has a library for each formula,
    its source and a text, cubins or PTX on a GPU, and ``*_cache.pkl``, which are written in place at the end
    of a program and unpickled when KeOps is imported. A file that is gone is made again; none is ever
    removed.
    """

    layout = Layout(
        [rf"({_MACHINE})/({_FORMULA})(?:\.cpython[\w-]+)?\.so", rf"({_MACHINE})/(\w+_cache)\.pkl"],
        own=[
            rf"{_MACHINE}/{_FORMULA}\.(?:cpp|nfo|cu)",
            rf"{_MACHINE}/(?:cubin|ptx)_[0-9a-f]+",
            rf"{_MACHINE}/\w*(?:keops|Keops|KeOps)\w*(?:\.[\w-]+)?\.(?:so|cpp)",
            r"build_folder_location\.txt",
        ],
        signs=[_MACHINE],
        key=hashed,
    )
    names = Names.of("KeOps", "types:SimpleNamespace")
    fails = "KeOps reads it as it is, so the program ends at every start"
    links = ("pykeops", "keopscore")

    def look(self, item: Files) -> CacheEntry:
        return super().look(item)._replace(renewed=item.names[0].endswith(".pkl"))


_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[\w.<>]+")


class Flydsl(PickledFormat, of="flydsl"):
    """The kernels of AMD's FlyDSL.

    Source: FlyDSL 0.5.0 (PyPI), ``flydsl/compiler/jit_{function,executor}.py``; checked against a kernel
    that it compiled for an absent GPU. A directory for each function has ``<64 hex>.pkl``, with the compiled
    module packed by zlib and the names of functions to call after it is loaded, and ``<64 hex>.lock``, which
    is held by flock(2). A file is written under a temporary name and renamed; a broken one is compiled again.
    """

    layout = Layout(
        [r"([a-z_]\w*)/([0-9a-f]{64})\.pkl", r"([a-z_]\w*)/([0-9a-f]{64})\.lock"],
        left=[Left(r"[a-z_]\w*/\.[0-9a-f]{64}\.pkl\.\w{8}\.tmp", sure=True)],
        key=lambda groups: groups[1] + hashed(groups[:1])[:8],
    )
    names = Names.of("FlyDSL", "flydsl\\.compiler\\.jit_executor:CompiledArtifact")
    fails = "FlyDSL compiles the kernel again"

    def look(self, item: Files) -> CacheEntry:
        entry = super().look(item)._replace(program=item.parts[0])
        if item.names[0].endswith(".lock"):
            problem = Problem(FindingKind.ORPHAN, "its kernel is gone, and the lock stays")
            return entry._replace(artifact_kind="", damage=problem)
        return entry

    def pickled(self, data: bytes) -> Problem | None:
        """Whether functions are pickled too: a program's own functions cannot be judged."""
        texts, problem = values(data, 1, self.names)
        named = (one for one in texts if isinstance(one, str) and _REFERENCE.fullmatch(one))
        strange = next((one for one in named if not one.startswith("flydsl.")), "")
        if problem or not strange:
            return problem
        pythons = strange.split(":")[0].partition(".")[0] in sys.stdlib_module_names
        kind = FindingKind.UNTRUSTED if pythons else FindingKind.UNSUPPORTED
        return Problem(kind, f"has FlyDSL call {printable(strange.encode())} when it is loaded")


_FILES = (
    r"lib\.so", r"(?:func_types|task)\.pickle",
    r"compile\.sh|\w+_output\.txt|source\.(?:cc|cu|hip)|candidates\.(?:txt|json)|meta\.json|task\.txt|version\.txt",
    r"\.lock",
)  # fmt: skip
_GRAPH = r"graphs/([0-9a-f]{16,64})"
_TASK = r"ops/((?:cpu|cuda|hip)_space_\d)/([a-z_]\w*)/([0-9a-f]{16,64})"


class Hidet(PickledFormat, of="hidet"):
    """The operators that Hidet compiled.

    Source: hidet 0.6.1 (PyPI), ``hidet/option.py`` and ``hidet/drivers/build_{task,module}.py``; checked
    against files for a CPU. ``ops/`` has a directory for each configuration, task and hash, and
    ``ir_modules/`` one for each hash: ``lib.so``, ``func_types.pickle`` and more, built in place below a
    lock. They are loaded unchecked, and none is ever removed. ``graphs/`` has graphs with copies of their
    operators, which stay, as a graph without one of them may not load.
    """

    layout = Layout(
        [
            f"{place}/(?:{name})"
            for name in _FILES
            for place in (
                _TASK,
                "(ir_modules)/([0-9a-f]{16,64})",
                f"{_GRAPH}/(graph_module)",
                rf"{_GRAPH}/kernels/(\d+)",
            )
        ],
        own=[rf"{_GRAPH}/(?:\w+\.json|graph_string\.txt|weights\.npz|\.lock)"],
        signs=[_TASK, "graphs/[0-9a-f]{16,64}"],
        key=hashed,
    )
    names = Names.of(
        "Hidet",
        r"(?:tilus\.)?hidet\.(?:ir|graph)(?:\.\w+)*:_?[A-Z]\w*",
        r"numpy:dtype|numpy\.(?:_core|core)\.multiarray:scalar",
    )
    folders_removed = 1
    fails = "the program that loads it ends, at every start"
    links = ("hidet",)

    def stays(self, item: Files) -> str:
        return (
            "a graph without it may not load; remove the graph's directory"
            if item.parts[0] == "graphs"
            else ""
        )

    def look(self, item: Files) -> CacheEntry:
        whole = item.names[0] == "lib.so"
        problem = Problem(FindingKind.ORPHAN, f"it has no library, so {self.owner} builds it again")
        return self.entry(item)._replace(
            program="/".join(item.parts[:-1]),
            artifact_kind=PayloadKind.ELF.value if whole else "",
            damage=None if whole else problem,
        )


class Tilus(Hidet, of="tilus"):
    """The programs that Tilus compiled, in libraries and pickles of Hidet's kind.

    Source: Tilus 0.2.0 (PyPI), ``tilus/drivers.py`` and ``tilus/option.py``; no file written on a GPU was
    available. ``programs/<12 hex>/`` has the text of a program and its options, which Tilus compares, and
    ``module/`` with the files. Below a checkout of Tilus it is ``.cache`` there.
    """

    layout = Layout(
        [f"programs/([0-9a-f]{{12}})/module/(?:{name})" for name in _FILES],
        own=[
            "scripts/",
            r"programs/[0-9a-f]{12}/(?:program\.txt|options\.txt|\.lock)",
            "programs/[0-9a-f]{12}/ir/",
        ],
        signs=["programs/[0-9a-f]{12}"],
        key=hashed,
    )
    links = ("tilus",)
