"""AdaptiveCpp's JIT cache: a file for each binary that its generic compiler made for one program.

Source: AdaptiveCpp 24.10, ``src/common/filesystem.cpp``, ``src/common/appdb.cpp`` and
``src/runtime/kernel_cache.cpp``; no file written by it was available. ``apps/PROGRAM-HASH/jit-cache/``
has a file ``ID.ID.jit`` for each kernel, device and set of options: PTX, AMD's code objects, SPIR-V, or a
library for the CPU. It is written to ``NUMBER.tmp`` and renamed, and then entered by its absolute path in
``app.vN.db``, a message of MessagePack with statistics that also improve the next compile. A binary that is
not entered there is not used; one that is gone is compiled again. Nothing has a checksum, and nothing is
ever removed.
"""

from gpucache.answers.entries import CacheEntry
from gpucache.caches.files import Files
from gpucache.caches.files_format import BinaryFormat
from gpucache.caches.layout import Layout, Left, hashed
from gpucache.caches.portable import Moving
from gpucache.caches.systems import AdaptiveCppPlaces
from gpucache.payload import PayloadKind

_PROGRAM = r"apps/(global|[\w.+-]+-\d{1,20})"
_TEMPORARY = r"\d{1,20}\.tmp"


class AdaptiveCpp(AdaptiveCppPlaces, BinaryFormat):
    """The binaries of SYCL programs that were built for the generic target."""

    layout = Layout(
        [rf"{_PROGRAM}/jit-cache/(\d{{1,20}}\.\d{{1,20}})\.jit"],
        left=[Left(f"{_PROGRAM}/{below}{_TEMPORARY}", sure=True) for below in ("", "jit-cache/")],
        own=[rf"{_PROGRAM}/app\.v\d+\.db"],
        signs=[_PROGRAM],
        key=hashed,
    )
    opaque = (
        "its entries do not record the inputs of their names: the kernel, its arguments, the device "
        "and the options; ACPP_DEBUG_LEVEL=3 logs hits and compiles"
    )
    served = "AdaptiveCpp would load it if the program's app.db lists it"
    key_digits = 40
    kinds = frozenset(
        {
            PayloadKind.PTX, PayloadKind.CUBIN, PayloadKind.AMDGPU, PayloadKind.OFFLOAD_BUNDLE,
            PayloadKind.SPIRV, PayloadKind.ELF,
        }
    )  # fmt: skip
    consequence = "AdaptiveCpp hands it to the driver, so the kernel fails at every start"
    shows = "a GPU binary"
    moving = Moving(
        "AdaptiveCpp finds a binary by its absolute path in a program's app.db; copy ACPP_APPDB_DIR to the "
        "same path of machines of one GPU and driver"
    )

    def look(self, item: Files) -> CacheEntry:
        return super().look(item)._replace(program=item.parts[1].rpartition("-")[0] or item.parts[1])
