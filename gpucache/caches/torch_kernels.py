"""PyTorch's jiterator cache: a file for each elementwise kernel that it compiled with NVRTC or hipRTC.

Source: PyTorch 2.13, ``aten/src/ATen/native/cuda/jit_utils.cpp``; no file written on a GPU was available. The
name has the kernel, the architecture, NVRTC's version, the form, the length of the source and its SHA-1; the
content is the bare cubin or PTX. It is written to ``..._tmp_PID`` and renamed; PyTorch loads it unchecked and
removes none.
"""

import re

from gpucache.answers.entries import CacheEntry
from gpucache.caches.files import Files
from gpucache.caches.files_format import BinaryFormat
from gpucache.caches.layout import Layout, Left, hashed
from gpucache.caches.systems import TorchKernelsPlaces
from gpucache.payload import PayloadKind, describe

_NAME = r"([A-Za-z_]\w*)_arch(\d+\.\d+|gfx[\w:+-]+)_nvrtc(\d+\.\d+)_(sass|ptx)_(\d+)_([0-9a-f]{40})"
_FORMS = {"sass": "sm", "ptx": "compute"}


class TorchKernels(TorchKernelsPlaces, BinaryFormat):
    """The kernels of special functions, of complex numbers, and of ``torch.cuda.jiterator``."""

    layout = Layout(
        [_NAME],
        left=[Left(_NAME + r"_tmp_\d+")],
        key=lambda groups: groups[5] + hashed(groups[:5])[:24],
    )
    wanted = {"key": "the 40 hex digits in a file's name, or more of an entry's"}
    opaque = "its entries say nothing of their sources but the SHA-1; remove one to have it compiled again"
    kinds = frozenset({PayloadKind.CUBIN, PayloadKind.PTX, PayloadKind.AMDGPU, PayloadKind.OFFLOAD_BUNDLE})
    consequence = "PyTorch loads it as it is, so the operation raises an error at every start"
    shows = "a GPU binary"

    def look(self, item: Files) -> CacheEntry:
        found = re.fullmatch(_NAME, item.names[0])
        kernel, arch, nvrtc, form = found.groups()[:4] if found else ("", "", "", "")
        digits = f"{_FORMS.get(form, '')}_{arch.replace('.', '')}"
        target = f"hip:{arch}" if arch.startswith("gfx") else f"cuda:{digits}"
        return super().look(item)._replace(program=kernel, target=target, toolchain=(("NVRTC", nvrtc),))

    def is_left(self, start: bytes) -> bool:
        return not start or describe(start).kind in self.kinds
