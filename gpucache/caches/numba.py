"""Numba's cache of functions with ``cache=True``: an index for each, and a file for each compiled version.

Source: ``numba/core/caching.py`` of Numba 0.60 to 0.68, and numba-cuda, which copied it; checked against
files of 0.68. Each source directory has a directory below NUMBA_CACHE_DIR, named by its name and its path's
SHA-1. ``MODULE.FUNCTION-LINE.pyXY.nbi`` is a pickle of Numba's version, and one of a stamp of the source and
a dictionary from signature and target to the name of a ``.N.nbc``, which is a pickle with object code. Files
are written under a temporary name and renamed, and nothing is ever removed. Numba unpickles the files;
gpucache only lists opcodes. A ``.nbc`` begins with the function's name, and has an ELF file and LLVM bitcode;
there is no checksum, so changed machine code does not show, and neither do two versions of one function in
each other's place. Without the variable files are in ``__pycache__`` next to each source; if that cannot be
written they are in the user's directory of caches, laid out as below the variable's, and those of notebooks
in IPython's, in one directory.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches import interpreters, pickles
from gpucache.caches.files import Files
from gpucache.caches.format import Format
from gpucache.caches.layout import Layout, Left, hashed
from gpucache.caches.portable import Moving
from gpucache.caches.systems import NumbaPlaces
from gpucache.errors import FormatError
from gpucache.payload import describe

_NAME = r"([\w.-]+-(?:\d+|[0-9a-f]{10})\.py\d+\w*)"
_FUNCTIONS = (rf"(.*_[0-9a-f]{{40}})/{_NAME}", _NAME)
"""The names of functions' files: in a directory of all caches, and next to sources or notebooks."""
_VERSION_BYTES = 256
_LARGEST_BYTES = 256 << 20
_FAILS = "Numba raises an error that it does not catch, so the program fails at every start"
_AGAIN = "Numba compiles it again"
_RUNS = "Numba runs that instead, so programs get its results or die"
_ENDS: Mapping[FindingKind | None, str] = {
    FindingKind.MISLABELLED: _RUNS,
    FindingKind.UNTRUSTED: "Numba runs it at the next start",
    FindingKind.UNSUPPORTED: "Numba writes that where a program passes functions, enums or named tuples",
}
_STARTS = (b"\x7fELF", b"BC\xc0\xde")
_QUALIFIED = re.compile(r"[\w.<>]+")
_NAMES = pickles.Names.of(
    "Numba",
    r"builtins:object|copyreg:_reconstructor|numpy:dtype",
    r"numba\.(?:core|cuda|np)\.types(?:\.\w+)*:_?[A-Z]\w*",
    r"numba\.core\.typing\.templates:Signature|numba\.core\.types\.abstract:_type_reconstructor",
    r"numba\.core\.funcdesc:PythonFunctionDescriptor|numba\.core\.environment:_rebuild_env",
    r"numba\.core\.typed_passes:_reload_parfors",
    of_code=r"numba\.cloudpickle\.cloudpickle:_\w+|numba\.core\.serialize:\w+",
)
"""The names in indexes of Numba 0.60 and 0.68."""


class Numba(NumbaPlaces, Format):
    """The compiled versions of functions with ``cache=True``, for CPUs and for CUDA."""

    layout = Layout(
        [rf"{one}\.{name}" for name in ("nbi", r"\d+\.nbc", "lcs") for one in _FUNCTIONS],
        left=[Left(rf"{one}(?:\.\d+)?\.nb[ic]\.tmp\.[0-9a-f]{{16}}", sure=True) for one in _FUNCTIONS],
        own=[r".+\.py[co]", r".+\.pyc\.\d+"],  # Python's own, next to a source
        signs=[r".*_[0-9a-f]{40}", rf"{_NAME}\.nb[ic]"],
        key=hashed,
    )
    served = "Numba would look at it; whether it serves it depends on the source, its line and the target"
    moving = Moving(
        "an entry has code and constants of modules that it does not name, and Numba serves it where those "
        "differ, with wrong results; put NUMBA_CACHE_DIR and the sources into one image"
    )
    folders_removed = 1

    def look(self, item: Files) -> CacheEntry:
        (name, *rest) = item.names
        if not name.endswith(".nbi"):
            detail = f"it has no index (.nbi), so {_AGAIN}"
            return self.entry(item)._replace(damage=Problem(FindingKind.ORPHAN, detail), shows=False)
        start = item.part(name, 0, _VERSION_BYTES)
        version = _version(start)
        problem = None
        if version is None:
            kind = FindingKind.CORRUPT if start else FindingKind.TRUNCATED
            problem = Problem(kind, f"{name} {'does not read' if start else 'is empty'}; {_FAILS}")
        python = re.sub(r".*\.py(\d)(\d*).*", r"\1.\2", name)
        return self.entry(item)._replace(
            program=name.rpartition("-")[0],
            artifact_kind="numba",
            fields=(("versions", str(len(rest))),),
            damage=problem,
            gone=f"Python {python}" if interpreters.is_gone(python) else "",
            shows=version is not None or not start or any(_is_code(item, one) for one in rest),
            toolchain=(("Numba", version or ""),),
        )

    def check(self, item: Files) -> Iterator[Problem]:
        if problem := self.look(item).damage:
            yield problem
            return
        index, *versions = item.names
        for name in versions:
            if name.endswith(".nbc") and (wrong := _damage(index, item.read(name, _LARGEST_BYTES))):
                end = _ENDS.get(wrong.kind, _FAILS)
                yield Problem(wrong.kind, f"{name} {wrong.detail}; {end}")
        values, wrong = pickles.values(item.read(index, _LARGEST_BYTES), 2, _NAMES)
        if wrong:
            yield Problem(wrong.kind, f"{index} {wrong.detail}; {_ENDS.get(wrong.kind, _FAILS)}")
        named = (one for one in values if isinstance(one, str) and one.endswith(".nbc"))
        gone = sorted(one for one in named if one not in item.seen)
        if gone and not wrong:
            yield Problem(FindingKind.TRUNCATED, f"{gone[0]} is gone, which the index names; {_AGAIN}")

    def payload(self, item: Files) -> bytes:
        for name in item.names:
            if name.endswith(".nbc"):
                return item.read(name, _LARGEST_BYTES)
        raise FormatError(f"{Path(item.folder, item.names[0])} names no compiled version")


def _is_code(item: Files, name: str) -> bool:
    """Whether a file next to an index that does not read shows that both are Numba's."""
    return name.endswith(".nbc") and _damage(item.names[0], item.read(name, _LARGEST_BYTES)) is None


def _version(start: bytes) -> str | None:
    """Numba's version from the first pickle of an index; None if it has none."""
    match pickles.values(start, 1)[0]:
        case [str(version)] if re.fullmatch(r"\d[\w.+!-]*", version):
            return version
    return None


def _damage(index: str, data: bytes) -> Problem | None:
    """The problem of a compiled version: of its pickle, its object code, or that it is not Numba's."""
    values, wrong = pickles.values(data, 1, _NAMES)
    if wrong:
        return wrong
    for info in (describe(value) for value in values if isinstance(value, bytes) and value[:4] in _STARTS):
        if info.problem:
            return Problem(FindingKind.CORRUPT, f"has {info.kind.value} that is broken: {info.problem}")
    match values:
        case [str(name), "object", *_] if _QUALIFIED.fullmatch(name):
            function = index.rpartition("-")[0]
            if not f".{function}".endswith(f".{re.sub('[<>]', '', name)}"):
                return Problem(FindingKind.MISLABELLED, f"has the code of {name}, another function")
    return None
