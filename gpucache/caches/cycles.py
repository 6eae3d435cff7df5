"""The kernels that Cycles, Blender's renderer, compiled itself, for GPUs without shipped kernels.

Source: Cycles of 2026, ``src/device/{cuda,hip,hiprt}/device_impl.cpp`` and ``src/util/path.cpp``; no file
written by it was available. nvcc or hipcc writes ``cycles_``, the kernel, the architecture and an MD5 over
Cycles' sources and the compiler's options, in upper case: ``.cubin`` for CUDA, ``.ptx`` for OptiX, nothing or
``.hipfb`` for HIP. An existing file is used unchecked, so a broken one is never compiled again, and files of
other versions stay. The kernels shipped with Cycles (``lib/*.zst``) are part of the program, not a cache.
"""

from gpucache.answers.entries import CacheEntry
from gpucache.caches.desktop_places import CyclesPlaces
from gpucache.caches.files import Files
from gpucache.caches.files_format import BinaryFormat
from gpucache.caches.layout import Layout, hashed
from gpucache.payload import PayloadKind

_MD5 = "([0-9A-F]{32})"


class Cycles(CyclesPlaces, BinaryFormat):
    """A file for each kernel and architecture."""

    layout = Layout(
        [
            rf"cycles_([a-z]\w*)_(sm_\d+)_{_MD5}\.cubin",
            rf"cycles_([a-z]\w*)_(compute_\d+)_{_MD5}\.ptx",
            rf"cycles_([a-z]\w*)_(gfx[\w:+-]+)_{_MD5}(?:\.(?:hipfb|fatbin))?",
        ],
        own=[r"Apple_\w+/"],  # archives of Metal, a directory for each device
        key=lambda groups: groups[2].lower() + hashed(["_".join(groups[:2])])[:8],
    )
    wanted = {"key": "the 32 hex digits in a file's name, or more of an entry's"}
    opaque = (
        "its entries do not record the inputs of their keys, which are all of Cycles' sources and the "
        "compiler's options; Cycles' log (up to Blender 4 by --debug-cycles) names the file it looks for"
    )
    key_digits = 40
    kinds = frozenset({PayloadKind.CUBIN, PayloadKind.PTX, PayloadKind.AMDGPU, PayloadKind.OFFLOAD_BUNDLE})
    consequence = "Cycles loads it as it is and renders nothing on this GPU until it is removed"
    shows = "a GPU binary"

    def look(self, item: Files) -> CacheEntry:
        return super().look(item)._replace(program=item.names[0].split("_")[1])
