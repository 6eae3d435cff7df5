"""One cache file: its header, key and name, and the question whether a program would restore it. Pure.

====== ===== =================================================================
offset bytes content
====== ===== =================================================================
0      8     magic ``FUTHARK\\0``
8      8     int64: size of the whole file, 48 + payload
16     32    key, eight uint32
48     n     payload, to the end of the file
====== ===== =================================================================

Numbers are in the order of the host, which is little-endian wherever Futhark runs on a GPU. There is no
checksum. CUDA stores PTX text without the final NUL, HIP what its compiler returned, OpenCL the binary of
the one device. CUDA and HIP compile again where the driver refuses the payload; OpenCL does where the binary
is refused as such, but stops where the build of it fails.

The key is an adapted djb2 of each input, all of them XOR-ed. An input is hashed byte by byte as
``x = 33*x + c`` from 5381 on, and ``x`` is XOR-ed into word ``place mod 8`` of eight 32-bit words. It starts
anew for every input: the order of inputs does not matter, and an input given twice cancels. ``c`` is a C
``char``, so bytes from 0x80 on count differently where ``char`` has no sign. CUDA and HIP add each build
option by itself and the source, OpenCL one string of all options and the source. A program's output with
``-L`` names its options and its file. Source: Futhark, rts/c/cache.h (``cache_hash``, ``cache_store``,
``cache_restore``), rts/c/gpu_prototypes.h and rts/c/backends/{cuda,hip,opencl}.h.
"""

import platform
import re
import struct
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath

from gpucache.caches.format import once
from gpucache.caches.interface import Wanted
from gpucache.errors import FormatError, UsageError
from gpucache.payload import PayloadInfo, PayloadKind, describe
from gpucache.units import format_size, printable

KEY_BYTES = 32
COMPARED_BYTES = 8
"""The part that Futhark compares: the number of words is passed to memcmp as the number of bytes."""
MAGIC = b"FUTHARK\0"
HEADER_BYTES = 48
PARTIAL = r"\.futhark-[0-9a-f]{16}\.gpucache-tmp"
SOURCE, ENDING = ".fut", ".cache"
"""Common endings of sources' and cache files' names, as in Futhark's documentation."""
_START = 5381
_WORD = 0xFFFF_FFFF
_UNSIGNED = tuple(range(256))
_SIGNED = tuple(byte - 256 * (byte > 127) for byte in range(256))
_UNSIGNED_MACHINES = ("aarch64", "arm", "ppc64", "riscv", "s390")
_LAYOUT = struct.Struct(f"<8sq{KEY_BYTES}s")
_BACKENDS = {
    PayloadKind.PTX: "cuda",
    PayloadKind.CUBIN: "cuda",
    PayloadKind.FATBIN: "cuda",
    PayloadKind.LTOIR: "cuda",
    PayloadKind.AMDGPU: "hip",
    PayloadKind.OFFLOAD_BUNDLE: "hip",
    PayloadKind.UNKNOWN: "",
}


def contribution(data: bytes, *, signed: bool = True) -> int:
    """The effect of one input on the key: a number of 256 bits, whose little-endian bytes are the key's."""
    steps, x = _SIGNED if signed else _UNSIGNED, _START
    words = [0] * 8
    for at, byte in enumerate(data):
        x = (33 * x + steps[byte]) & _WORD
        words[at & 7] ^= x
    return sum(word << 32 * index for index, word in enumerate(words))


def total(inputs: Iterable[bytes], *, signed: bool = True) -> int:
    """The effect of several inputs, in any order."""
    added = 0
    for one in inputs:
        added ^= contribution(one, signed=signed)
    return added


def to_bytes(number: int) -> bytes:
    return number.to_bytes(KEY_BYTES, "little")


def key_of(options: Iterable[str | bytes], source: bytes, signed: bool = True) -> bytes:
    """The 32 key bytes of a program: its options one by one (OpenCL: one joined string) and its source.

    ``source`` is the output of ``--dump-cuda``, ``--dump-opencl`` or ``--dump-hip``; ``signed`` says
    whether ``char`` has a sign where the program runs.
    """
    given = (one if isinstance(one, bytes) else one.encode("utf-8", "surrogateescape") for one in options)
    return to_bytes(total((*given, source), signed=signed))


def native_signed() -> bool:
    """Whether ``char`` is signed on this machine: not on AArch64 Linux, but on x86-64."""
    return not (sys.platform == "linux" and platform.machine().lower().startswith(_UNSIGNED_MACHINES))


def encode(key: bytes, payload: bytes) -> bytes:
    """A whole cache file; raises FormatError for a key without 32 bytes."""
    if len(key) != KEY_BYTES:
        raise FormatError(f"a Futhark key has {KEY_BYTES} bytes and this one has {len(key)}")
    return _LAYOUT.pack(MAGIC, HEADER_BYTES + len(payload), key) + payload


def target_of(payload: PayloadInfo) -> str:
    """A payload's target, such as ``cuda:compute_80``, ``hip:gfx90a`` or ``opencl``; empty if unknown.

    PTX counts as CUDA's, although NVIDIA's OpenCL returns it too.
    """
    backend = _BACKENDS.get(payload.kind, "opencl")
    return f"{backend}:{payload.architecture}" if payload.architecture else backend


def stored_form(payload: bytes) -> bytes:
    """A payload as Futhark stores it: PTX without the NUL that NVRTC appends."""
    ptx = payload.endswith(b"\0") and describe(payload).kind is PayloadKind.PTX
    return payload.rstrip(b"\0") if ptx else payload


def program_of(name: str) -> str:
    """The program that a cache file is named after: ``foo.fut`` of ``foo.fut.cache``."""
    return PurePath(name).stem or name


def source_of(name: str) -> str | None:
    """The source next to which ``futhark bench --cache-extension`` left the file; None for other names.

    Source: Futhark, src/Futhark/Test.hs (``determineCache``).
    """
    program = program_of(name)
    return program if program != name and program.endswith(SOURCE) and program != SOURCE else None


BACKENDS = ("cuda", "hip", "opencl")
FIELDS: Mapping[str, str] = {
    "source": "the kernels, as the program's --dump-cuda, --dump-hip or --dump-opencl FILE writes them",
    "log": "the program's stderr with -L: gives its options, its backend and its file",
    "option": "a build option, repeated in the program's order, if there is no log",
    "backend": f"one of {', '.join(BACKENDS)}; else the log's, or that of the file's content",
}
OPTION_LIMIT = 100_000
_OPENCL_ONLY = b"-cl-fp32-correctly-rounded-divide-sqrt"

# A program's output with -L. Any bytes are read; a log of several starts counts for its last one.


_LISTS = {b"NVRTC compile options:": "cuda", b"HIPRTC build options:": "hip"}
_JOINED = b"OpenCL compiler options: "
_ASKING = re.compile(rb"Restoring cache from from (.*?)(?:\.\.\.)?", re.DOTALL)
_NOT_STORED = re.compile(rb"Failed to cache (?:PTX|compiled code|binary): (.*)", re.DOTALL)
_STOPPED = b"Compilation of OpenCL program failed"


@dataclass(slots=True)
class LogReading:
    """The facts of a log's last start."""

    backend: str = ""
    options: tuple[bytes, ...] | None = None
    """None if the log has no list of options; one joined string for OpenCL."""
    asked_for: bytes = b""
    stopped: bool = False
    """Whether the platform refused a restored binary, after which Futhark ends."""
    store_error: bytes = b""

    def take(self, line: bytes) -> None:
        """A line about the file; lines about others are ignored."""
        if match := _ASKING.fullmatch(line):
            self.asked_for = match[1]
        elif match := _NOT_STORED.fullmatch(line):
            self.store_error = match[1]
        elif self.asked_for and _STOPPED in line:
            self.stopped = True


def read_log(log: bytes) -> LogReading:
    """The facts of a log. Raises nothing, for any bytes."""
    reading = LogReading()
    listed: list[bytes] | None = None
    for line in (one.removesuffix(b"\r") for one in log.split(b"\n")):
        if listed is not None and line.startswith(b"\t") and len(listed) < OPTION_LIMIT:
            listed.append(line[1:])
            continue
        if listed is not None:
            reading.options, listed = tuple(listed), None
        if line in _LISTS:
            reading, listed = LogReading(_LISTS[line]), []
        elif line.startswith(_JOINED):
            reading = LogReading("opencl", (line.removeprefix(_JOINED),))
        else:
            reading.take(line)
    if listed is not None:
        reading.options = tuple(listed)
    return reading


# The question.


@dataclass(frozen=True, slots=True)
class FutharkBuild:
    """A program as it is built now."""

    source: bytes
    options: tuple[bytes, ...]
    """In order; for OpenCL the parts of its one string between its spaces."""
    backend: str
    """Empty if the question and its log do not say."""
    log: LogReading | None = None

    def of(self, backend: str) -> "FutharkBuild":
        """The question for a backend, if it named none."""
        options = b" ".join(self.options).split(b" ") if backend == "opencl" else self.options
        return replace(self, backend=backend, options=tuple(options))

    @property
    def total(self) -> int:
        """The key, as a number."""
        joined = (b" ".join(self.options),) if self.backend == "opencl" else self.options
        return total((*joined, self.source), signed=native_signed())

    @property
    def words(self) -> str:
        """The question, in a few words."""
        size = format_size(len(self.source))
        return f"{self.backend} source of {size} with {len(self.options)} options".strip()


def read_question(wanted: Wanted) -> FutharkBuild:
    """The question; raises UsageError for a field that is missing or has an unusable value."""
    source, log = once(wanted, "source"), once(wanted, "log")
    if source is None:
        raise UsageError("the field 'source' is missing; run the program with --dump-cuda FILE and give FILE")
    reading = None if log is None else read_log(log)
    options = wanted.get("option") or (reading.options if reading else None)
    if options is None:
        raise UsageError(
            "the build options are missing; give 'log', the program's stderr with -L (which lists them), "
            "or each as 'option'"
        )
    named = once(wanted, "backend")
    if named is not None and named.decode("utf-8", "replace") not in BACKENDS:
        raise UsageError(
            f"the field 'backend' cannot be {printable(named)!r}; give one of {', '.join(BACKENDS)}"
        )
    backend = named.decode() if named else reading.backend if reading else ""
    if not backend and any(_OPENCL_ONLY in option for option in options):
        backend = "opencl"
    return FutharkBuild(source, options, "", reading).of(backend)
