"""llama.cpp's OpenCL programs, as ggml's OpenCL backend keeps them: a file for each program and device.

Source: llama.cpp from July 2026 on, ``ggml/src/ggml-opencl/cl-program-cache.cpp``, checked against files that
this module wrote by itself on Intel's CPU runtime and PoCL; llama.cpp runs only on Adreno and Intel GPUs, and
none was available. A file is ``GGMLCLBC``, u32 1, u32 0 and the driver's binary; its name is a SHA-256 of
source, options, and the names and versions of device, driver and platform. Files are written under a
temporary name and renamed, and never removed; a binary that the driver rejects is compiled again. Without a
variable they are among temporary files. ggml's Vulkan and CUDA backends store nothing themselves.
"""

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches.files import Files
from gpucache.caches.files_format import BinaryFormat
from gpucache.caches.layout import Layout, Left
from gpucache.caches.systems import GgmlOpenclPlaces
from gpucache.payload import PayloadInfo, PayloadKind

_HEAD, _MAGIC = 16, b"GGMLCLBC\1\0\0\0"
_AGAIN = "llama.cpp compiles the program again and replaces it"


class GgmlOpencl(GgmlOpenclPlaces, BinaryFormat):
    """The OpenCL programs of llama.cpp and other programs built with ggml."""

    layout = Layout([r"([0-9a-f]{64})\.clbin"], left=[Left(r"[0-9a-f]{64}\.clbin\.tmp\.(?P<pid>\d+)")])
    wanted = {"key": "the hex digits that GGML_OPENCL_KERNEL_CACHE_DEBUG=1 prints, or of a file's name"}
    opaque = "its entries do not record the inputs of their keys"
    served = "llama.cpp would hand it to the driver"
    kinds = frozenset(PayloadKind)
    consequence = "llama.cpp hands it to the driver, which refuses it, so it is compiled again, or crashes"
    shows = "a file that begins as llama.cpp's do"

    def look(self, item: Files) -> CacheEntry:
        """Describe the binary; the file's header identifies the owner, as a binary can be of any kind."""
        start = item.part(item.names[0], 0, 8)
        return super().look(item)._replace(shows=not start or start == _MAGIC[:8])

    def unwrap(self, data: bytes, *, whole: bool) -> tuple[bytes, Problem | None]:
        if len(data) > _HEAD and data.startswith(_MAGIC):
            return data[_HEAD:], None
        if not whole:
            return data, None
        if len(data) <= _HEAD:
            return b"", Problem(FindingKind.TRUNCATED, f"it ends in its header; {_AGAIN}")
        return data, Problem(FindingKind.CORRUPT, f"it does not begin as llama.cpp's files do; {_AGAIN}")

    def _wrong(self, binary: bytes, info: PayloadInfo, *, whole: bool) -> Problem | None:
        unknown = info.kind is PayloadKind.UNKNOWN and binary
        return None if unknown else super()._wrong(binary, info, whole=whole)
