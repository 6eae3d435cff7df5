"""The description of a payload, and the bounded reading of its bytes that every format shares.

This module must not know any format.
"""

import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import BinaryIO, NamedTuple, Protocol, Self

from gpucache.errors import FormatError
from gpucache.units import PRINTED, format_size, printable

NAMES_SHOWN = 16


class PayloadKind(StrEnum):
    """The kind of a payload. ``elf`` is any other ELF file."""

    CUBIN = "cubin"
    FATBIN = "fatbin"
    PTX = "ptx"
    LTOIR = "ltoir"
    SPIRV = "spir-v"
    LLVM_BITCODE = "llvm-bitcode"
    POCLBIN = "poclbin"
    INTEL_CPU = "intel-opencl-cpu"
    INTEL_GPU = "intel-gpu"
    AMDGPU = "amdgpu"
    RUSTICL = "rusticl"
    OFFLOAD_BUNDLE = "offload-bundle"
    VULKAN_PIPELINES = "vulkan-pipelines"
    ELF = "elf"
    FILES = "files"
    UNKNOWN = "unknown"


_BACKENDS = {
    PayloadKind.AMDGPU: "hip",
    PayloadKind.OFFLOAD_BUNDLE: "hip",
    PayloadKind.VULKAN_PIPELINES: "vulkan",
}
"""The backend that runs a payload that is not for CUDA."""


class PayloadInfo(NamedTuple):
    """The description of a payload, in words that can be shown: names from the bytes are made printable."""

    kind: PayloadKind
    architecture: str | None
    """Such as ``sm_90`` for NVIDIA's machine code, ``compute_90`` for PTX and LTO-IR, ``gfx90a`` for AMD's,
    the numbers of vendor and device (``10de:2330``) for Vulkan; None if the bytes do not say. It has a
    suffix (``sm_90a``) if the bytes state one."""
    detail: tuple[tuple[str, str], ...]
    """Readable pairs of label and value, the size first."""
    problem: str | None
    """The structural damage in bytes that were recognised, as one sentence; None if there is none."""
    kernels: tuple[str, ...] | None = None
    """Names of the first kernels as the bytes spell them; None if they do not name them."""

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        told = (("kind", self.kind.value), ("architecture", self.architecture), ("problem", self.problem))
        return (*((label, value) for label, value in told if value is not None), *self.detail)

    @property
    def target(self) -> str:
        """Its target, such as ``cuda:sm_90`` or ``hip:gfx90a``; empty if the bytes do not say."""
        if self.architecture is None:
            return ""
        return f"{_BACKENDS.get(self.kind, 'cuda')}:{self.architecture}"


class BrokenError(FormatError):
    """A payload contradicts its own format; the message is the ``problem``. Never leaves ``describe``."""


class CutError(BrokenError):
    """The bytes end before all the data that they declare."""


class Source(Protocol):
    """Bytes that are read piece by piece: ``Reading`` has them in memory, ``OnDisk`` in a file."""

    def require(self, end: int, part: str) -> None:
        """Raise CutError if a part that ends at offset ``end`` is incomplete."""

    def cut(self, start: int, end: int) -> bytes:
        """The bytes between two offsets, as many as exist."""


class OnDisk(NamedTuple):
    """A file that is read piece by piece, as it may have gigabytes."""

    stream: BinaryIO
    size: int

    @classmethod
    def of(cls, stream: BinaryIO) -> Self:
        """An open file with its size; raises OSError."""
        return cls(stream, os.fstat(stream.fileno()).st_size)

    def require(self, end: int, part: str) -> None:
        """Raise CutError if a part that ends at offset ``end`` is incomplete."""
        if end > self.size:
            raise CutError(f"the {part} ends at byte {end}, beyond the file's {self.size} bytes")

    def cut(self, start: int, end: int) -> bytes:
        """The bytes between two offsets, as many as exist; raises CutError if the file became shorter."""
        start, end = min(start, self.size), min(end, self.size)
        self.stream.seek(start)
        data = self.stream.read(max(0, end - start))
        if len(data) < end - start:
            raise CutError("the file became shorter while it was read")
        return data


@dataclass(slots=True)
class Reading:
    """A description in progress, and the bytes that it is made from."""

    data: bytes
    kind: PayloadKind = PayloadKind.UNKNOWN
    architecture: str | None = None
    detail: list[tuple[str, str]] = field(default_factory=list)
    kernels: tuple[str, ...] | None = None
    parts: list[tuple[int, int]] = field(default_factory=list)
    """Where the payloads inside this one begin and end, if the format tells."""

    def require(self, end: int, part: str) -> None:
        """Raise CutError if a part that ends at offset ``end`` is incomplete."""
        if end > len(self.data):
            raise CutError(f"the {part} ends at byte {end}, beyond the payload's {len(self.data)} bytes")

    def cut(self, start: int, end: int) -> bytes:
        return self.data[start:end]

    def unpack(self, layout: str, offset: int, part: str) -> tuple[int, ...]:
        """The integers of a struct layout at an offset; raises CutError if some are missing."""
        self.require(offset + struct.calcsize(layout), part)
        return struct.unpack_from(layout, self.data, offset)

    def text(self, start: int, end: int) -> str:
        """The UTF-8 text up to a NUL or ``end``, made printable and cut to a length that can be shown."""
        return printable(self.data[start : min(end, start + PRINTED)].partition(b"\0")[0])

    def note(self, label: str, value: object) -> None:
        self.detail.append((label, str(value)))

    def note_names(self, plural: str, names: Iterable[str], *, kernels: bool = False) -> None:
        """Add the number of names and the first of them, also if reading them ends in a problem.

        ``kernels`` marks them as the names of launchable functions, under the format's own name for those.
        """
        shown: list[str] = []
        count = 0
        try:
            for name in names:
                count += 1
                if count <= NAMES_SHOWN:
                    shown.append(name)
        finally:
            self.note(plural, count)
            if shown:
                more = f" and {count - NAMES_SHOWN} more" if count > NAMES_SHOWN else ""
                self.note(f"names of {plural}", ", ".join(shown) + more)
            if kernels:
                self.kernels = tuple(shown)

    def info(self, problem: str | None = None) -> PayloadInfo:
        detail = (("size", format_size(len(self.data))), *self.detail)
        return PayloadInfo(self.kind, self.architecture, detail, problem, self.kernels)
