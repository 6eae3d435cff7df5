"""The compiler cache of Intel's GPU driver, for OpenCL, Level Zero and ocloc.

Source: intel/compute-runtime of 2026, ``programmers-guide/COMPILER_CACHE.md``, ``compiler_cache.cpp`` and
``compiler_cache_linux.cpp``; no cache of an Intel GPU was available. A file is named by 16 hex digits of a
hash over compiler, options, device and input, is in the root or two one-digit directories below it, and
contains only the device binary. ``config.file`` is the size of all as u64, and the lock (flock) around every
change; the driver evicts by it, so a removal corrects it. An empty file is a miss. The directory that the
variable names must exist, or the driver caches nothing.
"""

from gpucache.answers.entries import Problem
from gpucache.caches.files import Files
from gpucache.caches.files_format import BinaryFormat, LockedFormat, SummedFormat
from gpucache.caches.layout import Layout, Left
from gpucache.caches.systems import IntelNeoPlaces
from gpucache.payload import PayloadInfo, PayloadKind

_KEY, _KINDS = "([0-9a-f]{16})", "(?:cl|l0|ocloc)_cache"
_OTHER = (b"CTNI", b"!<ar")
"""The beginnings of binaries in the patch token format, and in archives for several devices."""


class IntelNeo(IntelNeoPlaces, LockedFormat, SummedFormat, BinaryFormat):
    """The binaries that the driver's compiler made, a file for each program."""

    layout = Layout(
        [rf"{_KEY}\.{_KINDS}", rf"[0-9a-f]/[0-9a-f]/{_KEY}\.{_KINDS}"],
        left=[Left(rf"{_KINDS}\.\w{{6}}"), Left(rf"[0-9a-f]/[0-9a-f]/{_KINDS}\.\w{{6}}")],
        signs=[r"config\.file", rf"{_KEY}\.{_KINDS}", rf"[0-9a-f]/[0-9a-f]/{_KEY}\.{_KINDS}"],
        own=[
            r"config\.file",
            "stats",
            "[0-9a-f]/stats",
            "[0-9a-f]/[0-9a-f]/stats",
            r"[0-9a-f]{16}\.(?:trace|input)",
        ],
    )
    wanted = {"key": "the 16 hex digits of an entry's name, or the first of them"}
    opaque = (
        "its entries do not record the inputs of their keys; with NEOReadDebugKeys=1 and "
        "BinaryCacheTrace=1 the driver writes HASH.trace and HASH.input next to them, which can be compared"
    )
    key_digits = 16
    kinds = frozenset({PayloadKind.INTEL_GPU, PayloadKind.ELF, PayloadKind.SPIRV, PayloadKind.LLVM_BITCODE})
    consequence = "the driver loads it, and the program fails, at every start"
    shows = "a binary for Intel's GPUs"
    empty = "it is empty, so the driver compiles it again"
    lock_name = sum_name = "config.file"
    sum_is_alone = True
    without_sum = "the driver evicts by none"

    def _wrong(self, binary: bytes, info: PayloadInfo, *, whole: bool) -> Problem | None:
        return None if binary.startswith(_OTHER) else super()._wrong(binary, info, whole=whole)

    def summed(self, item: Files) -> int:
        """The file's size, not its size on disk."""
        return sum(status.st_size for status in item.seen.values())
