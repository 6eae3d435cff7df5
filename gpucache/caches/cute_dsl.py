"""The CuTe DSL's cache: a file of MLIR's bytecode for each function, with its kernels compiled in it.

Source: CuTe DSL 4.2.1, 4.4.2 and 4.5.0, ``cutlass/base_dsl/cache_helpers.py`` and ``dsl.py``; no file written
on a GPU was available. ``cute_dsl_<64 hex>.mlir`` is bytecode, and since 4.4 its CRC-32 in 4 bytes after it;
4.2 wrote none, so its files count as damaged, but no later version reads them. The digits are a SHA-256 of
the module, the DSL's version, its options and every variable that it reads, and the current directory. A file
is written to ``tmp.pid_PID_UUID/`` and renamed. An invalid one is compiled again and replaced;
nothing is ever removed.
"""

import zlib
from collections.abc import Iterator

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches.files import Files
from gpucache.caches.files_format import FilesFormat
from gpucache.caches.layout import Layout, Left
from gpucache.caches.learning_places import CuteDslPlaces

_NAME = r"cute_dsl_([0-9a-f]{64})\.mlir"
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_MAGIC, _CHECKSUM_BYTES = b"ML\xefR", 4
_AGAIN = "the CuTe DSL warns, compiles it again and replaces it"


class CuteDsl(CuteDslPlaces, FilesFormat):
    """The functions that ``cute.compile`` and ``cute.jit`` compiled, FlashAttention's among them."""

    layout = Layout(
        [_NAME], left=[Left(rf"tmp\.pid_(?P<pid>\d+)_{_UUID}/{_NAME}")], own=["pyir_class_facts/"]
    )
    wanted = {"key": "the 64 hex digits in a file's name"}
    opaque = (
        "its files do not record the inputs of their names; the current directory and every variable "
        "of the DSL's are part of that; CUTE_DSL_LOG_TO_CONSOLE=1 logs the hashes"
    )
    served = "the CuTe DSL would load it"
    shows = "bytecode of MLIR's"
    checksums = True

    def look(self, item: Files) -> CacheEntry:
        start = item.part(item.names[0], 0, len(_MAGIC))
        problem = None
        if len(start) < len(_MAGIC):
            problem = Problem(FindingKind.TRUNCATED, f"it ends before its bytecode; {_AGAIN}")
        elif start != _MAGIC:
            problem = Problem(FindingKind.MISLABELLED, f"it is not MLIR bytecode; {_AGAIN}")
        shows = problem is None or problem.kind is FindingKind.TRUNCATED
        return self.entry(item)._replace(artifact_kind="mlir", damage=problem, shows=shows)

    def check(self, item: Files) -> Iterator[Problem]:
        data = item.read(item.names[0])
        if problem := self.look(item).damage:
            yield problem
        elif zlib.crc32(data[:-_CHECKSUM_BYTES]) != int.from_bytes(data[-_CHECKSUM_BYTES:], "little"):
            yield Problem(FindingKind.CORRUPT, f"its CRC-32 does not match its content; {_AGAIN}")

    def payload(self, item: Files) -> bytes:
        return super().payload(item)[:-_CHECKSUM_BYTES]
