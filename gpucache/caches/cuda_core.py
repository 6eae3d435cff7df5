"""The program cache of cuda.core, ``FileStreamProgramCache``: opt-in, a file per compiled program.

Source: cuda-core 1.2, cuda/core/utils/_cache_dir.py and _program_cache/_file_stream.py. An entry is the
compiled binary as it is, at ``entries/<2 hex>/<62 hex>``; the digits are the SHA-256 of the key, which itself
is a SHA-256 over inputs that are not stored. It is written to ``tmp/entry-*`` and renamed; there is no lock,
and a reader that finds a file gone compiles again. Every file two levels below ``entries`` counts for
cuda.core's eviction, which goes by access times that it sets itself at every hit. Empty directories stay, as
a program that is about to write into one would fail. This module never imports cuda.
"""

import hashlib
import os
import re
import stat
from itertools import islice
from pathlib import Path

from gpucache.answers.entries import FindingKind, Problem
from gpucache.caches import places
from gpucache.caches.binary_format import BinaryFormat
from gpucache.caches.layout import Layout, Left, Node, Whose
from gpucache.caches.portable import Moving
from gpucache.payload import PayloadKind
from gpucache.units import printable

_GROUP, _REST = re.compile(r"[0-9a-f]{2}"), re.compile(r"[0-9a-f]{62}")


class CudaCore(BinaryFormat, of="cuda.core"):
    """Caches that programs ask for by ``Program.compile(cache=FileStreamProgramCache())``."""

    layout = Layout(
        "entries/([0-9a-f]{2})/([0-9a-f]{62})",
        left=[Left("tmp/entry-[a-z0-9_]{8}")],  # as tempfile.mkstemp completes the prefix
        signs=["entries/[0-9a-f]{2}"],
    )
    wanted = {
        "key": "hex digits of cuda.core.utils.make_program_cache_key's result, or of an entry's name on disk",
    }
    opaque = (
        "its entries do not record their inputs, so only key=HEX can be queried; "
        "gpucache.cuda.compile_program keeps the inputs and explains its misses"
    )
    # The kinds that Program.compile stores, and those that programs using the cache as a mapping can store.
    kinds = frozenset(
        {PayloadKind.CUBIN, PayloadKind.PTX, PayloadKind.LTOIR, PayloadKind.FATBIN, PayloadKind.ELF}
    )
    consequence = "cuda.core serves it unchecked, so the program fails when it loads it, at every start"
    moving = Moving(untold=("NVRTC",))

    @classmethod
    def whose(cls, path: Path) -> Whose:
        whose = super().whose(path)
        if whose is Whose.FOREIGN:
            return whose
        names = {found.name for found in islice(path.iterdir(), 3)}
        own = places.is_folder(path / "tmp") and (whose is Whose.OWN or names == {"entries", "tmp"})
        return Whose.OWN if own else Whose.UNKNOWN

    def used_ns(self, status: os.stat_result) -> int:
        """The time of the last hit: cuda.core sets it at every hit, and evicts by it alone."""
        return status.st_atime_ns

    def stranger(self, node: Node) -> Problem:
        """Report a file in place of a directory or the reverse, as these make programs fail."""
        *above, last = node.parts
        folder = stat.S_ISDIR(node.status.st_mode)
        if above == ["entries"] and not folder and _GROUP.fullmatch(last):
            detail = f"it is in the place of a directory: programs whose keys begin with {last} fail"
            return Problem(FindingKind.MISPLACED, detail, "remove it")
        if len(above) == 2 and folder and _GROUP.fullmatch(above[1]) and _REST.fullmatch(last):
            detail = "a directory is in the place of an entry: the program with this key fails"
            return Problem(FindingKind.MISPLACED, detail, "remove it")
        if len(above) == 2 and above[0] == "entries" and not folder:
            path = printable("/".join(node.parts), None)
            detail = f"{path} is not named as an entry, but cuda.core counts it and removes it when it evicts"
            return Problem(FindingKind.LEFTOVER, detail, "move it elsewhere")
        return super().stranger(node)

    def filed_as(self, key: str) -> str:
        if len(key) != 64:
            return ""
        return hashlib.sha256(bytes.fromhex(key), usedforsecurity=False).hexdigest()
