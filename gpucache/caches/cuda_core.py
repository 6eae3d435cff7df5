"""The program cache of cuda.core, ``FileStreamProgramCache``: opt-in, a file per compiled program.

Source: cuda-core 1.2, cuda/core/utils/_cache_dir.py and _program_cache/_file_stream.py. An entry is the
compiled binary as it is, at ``entries/<2 hex>/<62 hex>``; the digits are the SHA-256 of the key, which itself
is a SHA-256 over inputs that are stored nowhere. It is written to ``tmp/entry-*`` and renamed; there is no
lock, and a reader that finds a file gone compiles anew. Whatever lies two folders down in ``entries`` counts
for cuda.core's eviction, which goes by access times that it sets itself at every hit. Empty folders stay, as
a program that is about to write into one would fail. Nothing here imports cuda.
"""

import hashlib
import re
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from gpucache.caches import places
from gpucache.caches.files_format import FilesFormat
from gpucache.caches.foreign import ForeignSystem
from gpucache.caches.format import HOUR_NS, Look
from gpucache.caches.layout import Files, Layout, Left, Node
from gpucache.caches.places import WINDOWS, Home, Place, Var
from gpucache.outcomes import FindingKind, Problem
from gpucache.payload import PayloadInfo, PayloadKind, describe
from gpucache.units import format_size

LARGEST_BYTES = 1 << 30
"""The largest binary that is given out."""
CHECKED_BYTES = 256 << 20
"""Of larger files only the beginning is looked at."""
SCANNED_BYTES = 64 << 10
"""What a scan reads of a file; of a larger one the names of kernels may remain unknown."""
CONSEQUENCE = "cuda.core serves it unchecked, so the program fails when it loads it, at every start"
_BELOW = "cuda-python/program-cache"
_VARIABLE = "LOCALAPPDATA" if WINDOWS else "XDG_CACHE_HOME"
_GROUP, _REST = re.compile(r"[0-9a-f]{2}"), re.compile(r"[0-9a-f]{62}")
_DIGITS = re.compile(r"[0-9a-fA-F]{62,66}")
# What Program.compile stores, and what programs that use the cache as a mapping can store beside it.
_KINDS = frozenset(
    {PayloadKind.CUBIN, PayloadKind.PTX, PayloadKind.LTOIR, PayloadKind.FATBIN, PayloadKind.ELF}
)


class CudaCore(FilesFormat):
    """Caches that programs ask for by ``Program.compile(cache=FileStreamProgramCache())``."""

    name = "cuda.core"
    title = "cuda.core program cache"
    owner = "cuda.core"
    place = Place(
        (Var(_VARIABLE, _BELOW), Home(f"{'AppData/Local' if WINDOWS else '.cache'}/{_BELOW}", expanded=True)),
        move=f"set {_VARIABLE}, or give FileStreamProgramCache another path",
        nowhere="cuda.core names no place without a home folder or XDG_CACHE_HOME; set XDG_CACHE_HOME",
        lacking=(
            "a program that gives FileStreamProgramCache a path keeps its cache there, whatever the "
            "environment says"
        ),
        opt_in=True,
    )
    layout = Layout(
        "entries/(.+)/(.+)",
        left=[Left("tmp/entry-[a-z0-9_]{8}", HOUR_NS)],  # as tempfile.mkstemp completes the prefix
        signs=["entries/[0-9a-f]{2}", "entries/.+/[0-9a-fA-F]{32,}"],
    )
    wanted = {
        "key": "hex digits of what cuda.core.utils.make_program_cache_key returns, or of an entry's name on "
        "disk",
    }
    opaque = (
        "its entries say nothing of what they were made from, so only key=HEX can be asked for; "
        "gpucache.cuda.compile_program keeps the inputs and explains its misses"
    )
    absent = (
        "no entry has this key: it was never built here, or was evicted, of which cuda.core keeps no record; "
        "gpucache.cuda.compile_program says which input changed"
    )
    served = "cuda.core would serve it, without checking it"
    shows = "a CUDA binary"

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Whether a folder has ``tmp``, and ``entries`` that hold one or are new."""
        if not places.is_folder(path / "tmp"):
            return False
        if Layout("entries/[0-9a-f]{2}/[0-9a-f]{62}").holds_an_entry(path):
            return True
        names = {found.name for found in islice(path.iterdir(), 3)}
        return names == {"entries", "tmp"} and not cls.layout.is_foreign(path)

    def look(self, item: Files) -> Look:
        """Kernel, architecture and kind as the beginning of the binary says them."""
        status = next(iter(item.seen.values()))
        start = item.part(item.names[0], 0, SCANNED_BYTES)
        info = describe(start)
        shows = not start or info.kind in _KINDS
        return Look(
            program=next(iter(info.kernels or ()), ""),
            target=f"cuda:{info.architecture}" if info.kind in _KINDS and info.architecture else "",
            kind=info.kind.value if start else "",
            problem=_misplaced(item) or _content(start, info, whole=len(start) == status.st_size),
            used_ns=status.st_atime_ns,
            stays="" if shows or _is_reached(item) else _NOT_ITS_OWN,
            shows=shows,
        )

    def stays(self, item: Files) -> str:
        """Its name is none of cuda.core's, nor as if a copy of one had been renamed."""
        return "" if _DIGITS.fullmatch(item.key) else _NOT_ITS_OWN

    def check(self, item: Files) -> Iterator[Problem]:
        """Whether a key leads to it, and what it holds."""
        if (astray := _misplaced(item)) is not None:
            yield astray
        size = next(iter(item.seen.values())).st_size
        whole = size <= CHECKED_BYTES
        data = item.part(item.names[0], 0, CHECKED_BYTES if whole else SCANNED_BYTES)
        if (wrong := _content(data, describe(data), whole=whole)) is not None:
            yield wrong

    def notes(self, item: Files) -> Iterator[str]:
        """How far a large one was looked at, and what LTO-IR does not say."""
        if next(iter(item.seen.values())).st_size > CHECKED_BYTES:
            yield f"it is larger than {format_size(CHECKED_BYTES)}: only its beginning was looked at"
        if describe(item.part(item.names[0], 0, SCANNED_BYTES)).kind is PayloadKind.LTOIR:
            yield "LTO-IR does not say how long it is, so whether its end was cut off cannot be told"

    def payload(self, item: Files) -> bytes:
        """The file."""
        return item.read(item.names[0], LARGEST_BYTES)

    def unreadable(self, error: OSError) -> Problem:
        """A program that asks for it fails."""
        return Problem(
            FindingKind.UNTRUSTED,
            f"it cannot be read ({error.strerror}): a program of this user that asks for it fails",
            "remove it, or give the program a cache of its own",
        )

    def stranger(self, node: Node) -> Problem:
        """A file in the place of a folder, or a folder in that of an entry, makes programs fail."""
        *above, last = node.parts
        folder = stat.S_ISDIR(node.status.st_mode)
        if above == ["entries"] and not folder and _GROUP.fullmatch(last):
            detail = f"it lies where a folder belongs: programs whose keys begin with {last} fail"
            return Problem(FindingKind.MISPLACED, detail, "remove it")
        if len(above) == 2 and folder and _GROUP.fullmatch(above[1]) and _REST.fullmatch(last):
            detail = "a folder lies where an entry belongs: the program with this key fails"
            return Problem(FindingKind.MISPLACED, detail, "remove it")
        return super().stranger(node)

    def is_left(self, start: bytes) -> bool:
        """A binary, as far as it was written."""
        return describe(start).kind in _KINDS

    def filed_as(self, key: str) -> str:
        """The SHA-256 of the key, as ``make_program_cache_key`` returns keys."""
        return hashlib.sha256(bytes.fromhex(key), usedforsecurity=False).hexdigest()


_NOT_ITS_OWN = "cuda.core gives no such name, so it may be somebody else's and stays; move it elsewhere"


def _is_reached(item: Files) -> bool:
    return bool(_GROUP.fullmatch(item.parts[-1]) and _REST.fullmatch(item.names[0]))


def _misplaced(item: Files) -> Problem | None:
    if _is_reached(item):
        return None
    return Problem(
        FindingKind.MISPLACED,
        "its path is not entries/<2 hex>/<62 hex>, so no key leads to it: a program misses and adds another "
        "copy",
    )


def _content(data: bytes, info: PayloadInfo, *, whole: bool) -> Problem | None:
    """What is wrong with the bytes of a file; of its beginning only whether it is a binary."""
    if not data:
        return Problem(FindingKind.TRUNCATED, f"it is empty; {CONSEQUENCE}") if whole else None
    if info.kind not in _KINDS:
        start = next((value for label, value in info.detail if label == "starts with"), "")
        words = f"bytes of no known format ({start})" if info.kind is PayloadKind.UNKNOWN else info.kind.value
        return Problem(
            FindingKind.MISLABELLED, f"it holds {words} where a CUDA binary belongs; {CONSEQUENCE}"
        )
    if whole and info.problem is not None:
        return Problem(FindingKind.CORRUPT, f"its {info.kind.value} is broken: {info.problem}; {CONSEQUENCE}")
    return None


SYSTEM = ForeignSystem(CudaCore)
