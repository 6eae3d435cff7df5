"""Caches whose entries are one compiled binary each, with or without a header: a class for each owner."""

import re
import struct
from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches.binary_format import OF_OPENCL, BinaryFormat
from gpucache.caches.files import Files, Frame, Parts, Rule
from gpucache.caches.format import Format
from gpucache.caches.layout import Layout, Left, hashed
from gpucache.caches.learning_places import GgmlOpenclPlaces
from gpucache.caches.portable import Fact, Moving
from gpucache.caches.systems import (
    HashcatPlaces,
    IntelNeoPlaces,
)
from gpucache.payload import PayloadInfo, PayloadKind, describe
from gpucache.units import printable

_PROGRAM = r"apps/(global|[\w.+-]+-\d{1,20})"
_TEMPORARY = r"\d{1,20}\.tmp"


class AdaptiveCpp(BinaryFormat, of="adaptivecpp"):
    """The binaries of SYCL programs that were built for the generic target.

    Source: AdaptiveCpp 24.10, ``src/common/filesystem.cpp``, ``src/common/appdb.cpp`` and
    ``src/runtime/kernel_cache.cpp``; no file written by it was available. ``apps/PROGRAM-HASH/jit-cache/``
    has a file ``ID.ID.jit`` for each kernel, device and set of options: PTX, AMD's code objects, SPIR-V, or a
    library for the CPU. It is written to ``NUMBER.tmp`` and renamed, and then entered by its absolute path in
    ``app.vN.db``, a message of MessagePack with statistics that also improve the next compile. A binary that
    is not entered there is not used; one that is gone is compiled again. Nothing has a checksum, and nothing
    is ever removed.
    """

    layout = Layout(
        [rf"{_PROGRAM}/jit-cache/(\d{{1,20}}\.\d{{1,20}})\.jit"],
        left=[Left(f"{_PROGRAM}/{below}{_TEMPORARY}", sure=True) for below in ("", "jit-cache/")],
        own=[rf"{_PROGRAM}/app\.v\d+\.db"],
        signs=[_PROGRAM],
        key=hashed,
    )
    served = "AdaptiveCpp would load it if the program's app.db lists it"
    kinds = frozenset(
        {
            PayloadKind.PTX, PayloadKind.CUBIN, PayloadKind.AMDGPU, PayloadKind.OFFLOAD_BUNDLE,
            PayloadKind.SPIRV, PayloadKind.ELF,
        }
    )  # fmt: skip
    consequence = "AdaptiveCpp hands it to the driver, so the kernel fails at every start"
    moving = Moving(
        "AdaptiveCpp finds a binary by its absolute path in a program's app.db; copy ACPP_APPDB_DIR to the "
        "same path of machines of one GPU and driver"
    )

    def look(self, item: Files) -> CacheEntry:
        return super().look(item)._replace(program=item.parts[1].rpartition("-")[0] or item.parts[1])


class Hashcat(HashcatPlaces, BinaryFormat):
    """The kernels that hashcat built for the devices of this machine.

    Source: hashcat 6.2, ``src/backend.c`` and ``src/folder.c``; checked against its files. The 8 hex digits
    in a name are the beginning of an MD5 of when hashcat was compiled, of its options and of the device and
    driver; the kernel's source is not part of it. An empty file is built again, every other one is passed to
    the driver. Files are written in place, without a lock, and nothing is ever removed.
    """

    layout = Layout(
        [r"((?:m\d+_a\d-(?:optimized|pure)|shared|markov_[bl]e|amp_a\d))\.([0-9a-f]{8})\.kernel"],
        key=lambda groups: groups[1] + hashed(groups[:1])[:32],
    )
    opaque = (
        "its entries do not record the inputs of their keys; the digits change with hashcat's build, "
        "the device and the driver, and not with the kernel's source"
    )
    served = "hashcat would pass it to the driver, also if its kernel's source has changed"
    kinds = OF_OPENCL
    consequence = "hashcat hands it to the driver, which fails or ends the program, at every start"
    moving = Moving(
        "a kernel is found for any source, so another hashcat would run it; copy the kernels along "
        "with hashcat itself"
    )
    empty = "it is empty, so hashcat builds it again"

    def look(self, item: Files) -> CacheEntry:
        return super().look(item)._replace(program=item.names[0].partition(".")[0])


_HEAD, _MAGIC = 16, b"GGMLCLBC\1\0\0\0"
_AGAIN = "llama.cpp compiles the program again and replaces it"


class GgmlOpencl(GgmlOpenclPlaces, BinaryFormat):
    """The OpenCL programs of llama.cpp and other programs built with ggml.

    Source: llama.cpp from July 2026 on, ``ggml/src/ggml-opencl/cl-program-cache.cpp``, checked against files
    that this module wrote by itself on Intel's CPU runtime and PoCL; llama.cpp runs only on Adreno and Intel
    GPUs, and none was available. A file is ``GGMLCLBC``, u32 1, u32 0 and the driver's binary; its name is a
    SHA-256 of source, options, and the names and versions of device, driver and platform. Files are written
    under a temporary name and renamed, and never removed; a binary that the driver rejects is compiled again.
    Without a variable they are among temporary files. ggml's Vulkan and CUDA backends store nothing
    themselves.
    """

    layout = Layout([r"([0-9a-f]{64})\.clbin"], left=[Left(r"[0-9a-f]{64}\.clbin\.tmp\.(?P<pid>\d+)")])
    wanted = {"key": "the hex digits that GGML_OPENCL_KERNEL_CACHE_DEBUG=1 prints, or of a file's name"}
    kinds = frozenset(PayloadKind)
    consequence = "llama.cpp hands it to the driver, which refuses it, so it is compiled again, or crashes"

    def unwrap(self, data: bytes, *, whole: bool) -> tuple[bytes, Problem | None]:
        if len(data) > _HEAD and data.startswith(_MAGIC):
            return data[_HEAD:], None
        if not whole:
            return data, None
        if len(data) <= _HEAD:
            return b"", Problem(FindingKind.TRUNCATED, f"it ends in its header; {_AGAIN}")
        return data, Problem(FindingKind.MISLABELLED, f"it does not begin as llama.cpp's files do; {_AGAIN}")

    def _wrong(self, binary: bytes, info: PayloadInfo, *, whole: bool) -> Problem | None:
        unknown = info.kind is PayloadKind.UNKNOWN and binary
        return None if unknown else super()._wrong(binary, info, whole=whole)


_MD5 = "([0-9A-F]{32})"


class Cycles(BinaryFormat, of="cycles"):
    """A file for each kernel and architecture.

    Source: Cycles of 2026, ``src/device/{cuda,hip,hiprt}/device_impl.cpp`` and ``src/util/path.cpp``; no file
    written by it was available. nvcc or hipcc writes ``cycles_``, the kernel, the architecture and an MD5
    over Cycles' sources and the compiler's options, in upper case: ``.cubin`` for CUDA, ``.ptx`` for OptiX,
    nothing or ``.hipfb`` for HIP. An existing file is used unchecked, so a broken one is never compiled
    again, and files of other versions stay. The kernels shipped with Cycles (``lib/*.zst``) are part of the
    program, not a cache.
    """

    layout = Layout(
        [
            rf"cycles_([a-z]\w*)_(sm_\d+)_{_MD5}\.cubin",
            rf"cycles_([a-z]\w*)_(compute_\d+)_{_MD5}\.ptx",
            rf"cycles_([a-z]\w*)_(gfx[\w:+-]+)_{_MD5}(?:\.(?:hipfb|fatbin))?",
        ],
        own=[r"Apple_\w+/"],  # archives of Metal, a directory for each device
        key=lambda groups: groups[2].lower() + hashed(["_".join(groups[:2])])[:8],
    )
    opaque = (
        "its entries do not record the inputs of their keys, which are all of Cycles' sources and the "
        "compiler's options; Cycles' log (up to Blender 4 by --debug-cycles) names the file it looks for"
    )
    kinds = frozenset({PayloadKind.CUBIN, PayloadKind.PTX, PayloadKind.AMDGPU, PayloadKind.OFFLOAD_BUNDLE})
    consequence = "Cycles loads it as it is and renders nothing on this GPU until it is removed"

    def look(self, item: Files) -> CacheEntry:
        return super().look(item)._replace(program=item.names[0].split("_")[1])


_VERSION, _HASH, _OLDER = r"clic-(\d+(?:\.\d+)*-r\d+)", r"([0-9a-f]{16}-\d+)", r"(\d{15,20})"
_NEWER = f"{_VERSION}/{_HASH}/{_HASH}"


def _key(groups: Sequence[str]) -> str:
    program = groups[-1].partition("-")[0]
    digits = program if len(groups) > 2 else f"{int(program) % 2**64:016x}"
    return digits + hashed(groups)[:24]


class Clesperanto(BinaryFormat, of="clesperanto"):
    """The programs that clesperanto built for the devices of this machine.

    Source: CLIc, ``clic/src/cache.cpp``; checked against files of pyclesperanto 0.25, which is newer. Each
    version has a directory (``clic-0.25.1-r4``) with ``DEVICE-LENGTH/PROGRAM-LENGTH.bin``: digits of hashes
    of the driver's description of a device and of a kernel's source, each with the length of its input. Older
    versions had decimal hashes and no version directory; CUDA's files end in ``.ptx``. Files are written
    under a temporary name and renamed, a file that the driver rejects is built again, and nothing is ever
    removed.
    """

    layout = Layout(
        [rf"{_NEWER}\.(?:bin|ptx)", rf"{_OLDER}/{_OLDER}\.(?:bin|ptx)"],
        left=[Left(rf"{_NEWER}\.(?:bin|ptx)\.tmp\d+_\d+", sure=True)],
        signs=[f"{_VERSION}/{_HASH}", f"{_VERSION}", rf"{_OLDER}/{_OLDER}\.(?:bin|ptx)"],
        key=_key,
    )
    folders_removed = 2
    kinds = OF_OPENCL
    consequence = (
        "clesperanto rebuilds a binary that the driver refuses; some drivers accept it, and the program "
        "ends at every start"
    )
    tells_toolchain = True
    moving = Moving(tells="the path of the driver's cache", untold=("device", Fact.DRIVER))

    def look(self, item: Files) -> CacheEntry:
        version = item.parts[0].removeprefix("clic-") if len(item.parts) > 1 else ""
        return super().look(item)._replace(toolchain=(("CLIc", version),))


_KEY, _KINDS = "([0-9a-f]{16})", "(?:cl|l0|ocloc)_cache"
_OTHER = (b"CTNI", b"!<ar")
"""How binaries in the patch token format begin, and archives for several devices."""


class IntelNeo(IntelNeoPlaces, BinaryFormat):
    """The binaries that the driver's compiler made, a file for each program.

    Source: intel/compute-runtime of 2026, ``programmers-guide/COMPILER_CACHE.md``, ``compiler_cache.cpp`` and
    ``compiler_cache_linux.cpp``; no cache of an Intel GPU was available. A file is named by 16 hex digits of
    a hash over compiler, options, device and input, is in the root or two one-digit directories below it, and
    contains only the device binary. ``config.file`` is the size of all as u64, and the lock (flock) around
    every change; the driver evicts by it, so a removal corrects it. An empty file is a miss. The directory
    that the variable names must exist, or the driver caches nothing.
    """

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
    opaque = (
        "its entries do not record the inputs of their keys; with NEOReadDebugKeys=1 and "
        "BinaryCacheTrace=1 the driver writes HASH.trace and HASH.input next to them, which can be compared"
    )
    kinds = frozenset({PayloadKind.INTEL_GPU, PayloadKind.ELF, PayloadKind.SPIRV, PayloadKind.LLVM_BITCODE})
    consequence = "the driver loads it, and the program fails, at every start"
    empty = "it is empty, so the driver compiles it again"
    lock_name = sum_name = "config.file"
    sum_is_alone = True
    without_sum = "the driver evicts by none"

    def _wrong(self, binary: bytes, info: PayloadInfo, *, whole: bool) -> Problem | None:
        return None if binary.startswith(_OTHER) else super()._wrong(binary, info, whole=whole)

    def summed(self, item: Files) -> int:
        """The file's size, not its size on disk."""
        return sum(status.st_size for status in item.seen.values())


_NAME = r"([A-Za-z_]\w*)_arch(\d+\.\d+|gfx[\w:+-]+)_nvrtc(\d+\.\d+)_(sass|ptx)_(\d+)_([0-9a-f]{40})"
_FORMS = {"sass": "sm", "ptx": "compute"}


class TorchKernels(BinaryFormat, of="torch-kernels"):
    """The kernels of special functions, of complex numbers, and of ``torch.cuda.jiterator``.

    Source: PyTorch 2.13, ``aten/src/ATen/native/cuda/jit_utils.cpp``; no file written on a GPU was available.
    The name has the kernel, the architecture, NVRTC's version, the form, the length of the source and its
    SHA-1; the content is the bare cubin or PTX. It is written to ``..._tmp_PID`` and renamed; PyTorch loads
    it unchecked and removes none.
    """

    layout = Layout(
        [_NAME],
        left=[Left(_NAME + r"_tmp_\d+")],
        key=lambda groups: groups[5] + hashed(groups[:5])[:24],
    )
    kinds = frozenset({PayloadKind.CUBIN, PayloadKind.PTX, PayloadKind.AMDGPU, PayloadKind.OFFLOAD_BUNDLE})
    consequence = "PyTorch loads it as it is, so the operation raises an error at every start"

    def look(self, item: Files) -> CacheEntry:
        found = re.fullmatch(_NAME, item.names[0])
        kernel, arch, nvrtc, form = found.groups()[:4] if found else ("", "", "", "")
        digits = f"{_FORMS.get(form, '')}_{arch.replace('.', '')}"
        target = f"hip:{arch}" if arch.startswith("gfx") else f"cuda:{digits}"
        return super().look(item)._replace(program=kernel, target=target, toolchain=(("NVRTC", nvrtc),))

    def shows_left(self, start: bytes) -> bool:
        return not start or describe(start).kind in self.kinds


class Pycuda(BinaryFormat, of="pycuda"):
    """The modules of ``SourceModule`` and ``compile``, which nvcc made.

    Source: PyCUDA 2026.1 (PyPI), ``pycuda/compiler.py``; no file written on a GPU was available. A name is an
    MD5 of the source, preprocessed where it has includes, the options with the architecture, nvcc's version
    and the bits of a pointer, without separators. A file is written in place and read unchecked, so one that
    a killed program left cut fails every start. Nothing is ever removed. Old versions kept it among temporary
    files, by the user's number.
    """

    layout = Layout([r"([0-9a-f]{32})\.(?:cubin|ptx|fatbin)"])
    kinds = frozenset({PayloadKind.CUBIN, PayloadKind.PTX, PayloadKind.FATBIN})
    consequence = "PyCUDA loads it as it is, so the program fails at every start"


_OF_VERSIONS = (r"(\d[\w.+-]*)/ptx/", "")


class Mlx(BinaryFormat, of="mlx"):
    """The modules that MLX's backend for CUDA compiled.

    Source: MLX of 2025, ``mlx/backend/cuda/jit_module.cpp``, and texts of the library of mlx-cuda 0.32
    (PyPI); no file written on a GPU was available. Without the variable each version of MLX has a directory
    among temporary files. ``MODULE.ptx`` is a cubin, or PTX where NVRTC does not know the GPU; ``.txt`` has
    the names of its kernels, ``.cu`` the source, which MLX never reads. They are written in place and read
    unchecked, and found by the module's name alone.
    """

    layout = Layout(
        [rf"{below}([\w.-]+)\.ptx" for below in _OF_VERSIONS],
        own=[rf"{below}[\w.-]+\.(?:txt|cu)" for below in _OF_VERSIONS],
        signs=[rf"{_OF_VERSIONS[0]}[\w.-]+\.ptx"],
        key=hashed,
    )
    opaque = "a module is found by its name alone, on any GPU; remove the cache after a change of GPU"
    served = "MLX would load it, also if it is for another GPU or of another source"
    kinds = frozenset({PayloadKind.CUBIN, PayloadKind.PTX})
    consequence = "MLX loads it as it is, so the program fails at every start"
    moving = Moving("a module is found by its name alone, so other GPUs would get the wrong code")

    def look(self, item: Files) -> CacheEntry:
        return super().look(item)._replace(program=item.names[0].removesuffix(".ptx"))


class Aiter(BinaryFormat, of="aiter"):
    """The modules that AITER built for AMD's GPUs.

    Source: AITER of 2026, ``aiter/jit/core.py``; no file written on a GPU was available. ``module_NAME.so``
    is a library that AITER imports by its name alone; ``build/`` has the sources, objects and locks of each.
    In a home directory the rest of the package's ``jit`` is next to them. Nothing has a checksum, and nothing
    is ever removed.
    """

    layout = Layout(
        [r"((?:module_|lib)\w+)\.so"],
        own=[
            "build/",
            "utils/",
            "__pycache__/",
            r"[\w.-]+\.(?:py|csv)",
            r"optCompilerConfig\.json",
            "blob/",
        ],
        signs=[r"module_\w+\.so"],
        key=hashed,
    )
    opaque = "a module is found by its name alone; AITER_REBUILD=1 builds it again"
    kinds = frozenset({PayloadKind.ELF})
    links = ("amd-aiter", "aiter")
    consequence = "AITER imports it as it is, so the program ends at every start"


_DRJIT_HEAD = struct.Struct("<B4I16s")
_DISCARDED = "Dr.Jit discards it and compiles the kernel again"


class Drjit(BinaryFormat, of="drjit"):
    """The kernels that Dr.Jit compiled, for itself, Mitsuba 3 and Sionna.

    Source: files of Dr.Jit 1.5 (PyPI) on a CPU, and its behaviour with broken ones. A file
    ``<32 hex>.BACKEND.vN.bin`` is u8 N, u32 size of the rest, u32 sizes of the source, the machine code and
    its relocations, 16 bytes of a checksum, and these three packed by LZ4 with a dictionary of Dr.Jit's. It
    is linked into place when it is complete, and any difference is noticed; at a start the oldest go above
    DRJIT_CACHE_MAXSIZE. OptiX keeps its own database next to them while its variable does not move it.
    """

    layout = Layout(
        [r"([0-9a-f]{32})\.\w+\.v\d+\.bin"],
        own=[r"sweep\.stamp", r"optix\d*cache\.db(?:-\w+)?"],
        key=lambda groups: groups[0],
    )
    kinds = frozenset({PayloadKind.UNKNOWN})
    consequence = _DISCARDED

    def look(self, item: Files) -> CacheEntry:
        return super().look(item)._replace(target=item.names[0].split(".")[1], artifact_kind="drjit-kernel")

    def unwrap(self, data: bytes, *, whole: bool) -> tuple[bytes, Problem | None]:
        rest = data[_DRJIT_HEAD.size :]
        size = _DRJIT_HEAD.unpack_from(data)[1] if rest else 0
        if whole and data and len(rest) != (size or -1):
            return rest, Problem(FindingKind.TRUNCATED, f"its size is not that in its header; {_DISCARDED}")
        return rest, None


_BACKENDS = ("(?:cuda|hip|ocl|omp)/", "")


class Pyfr(BinaryFormat, of="pyfr"):
    """The kernels of PyFR, a directory for each of its backends.

    Source: PyFR 3.1 (PyPI), ``pyfr/cache.py`` and ``pyfr/backends/*/compiler.py``; checked against its
    libraries for a CPU. Files are named by digests of the source, the options and the device or compiler,
    written under a temporary name and renamed, and read unchecked; at a start the least recently read go
    until 128 MiB are left. A library that does not load is compiled again.
    """

    layout = Layout(
        [rf"{below}(?:lib)?([0-9a-f]{{32,64}})(?:\.(?:so|dylib|dll))?" for below in _BACKENDS],
        left=[Left(below + "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}") for below in _BACKENDS],
        signs=[rf"{_BACKENDS[0]}(?:lib)?[0-9a-f]{{32,64}}(?:\.\w+)?", r"lib[0-9a-f]{64}\.so"],
    )
    kinds = OF_OPENCL | {PayloadKind.ELF}
    links = ("pyfr",)
    consequence = "PyFR loads it as it is, so the program ends or fails at every start"


_REMOVED = "ArrayFire removes it and compiles it again"
_ARRAYFIRE_NAME = r"KER(\d{1,20})_(CL|CU)_(.+)_AF_(\d{1,4})\.bin"
_WORDS = struct.Struct("=Q")
_MOST_NAMES, _LARGEST_BYTES = 65_536, 1 << 30
_OFFSET, _PRIME, _MASK = 0x811C9DC5, 0x01000193, (1 << 64) - 1
"""The constants of 32-bit FNV-1a, which ArrayFire computes with 64 bits."""


class ArrayFire(BinaryFormat, of="arrayfire"):
    """The kernels that ArrayFire compiled for OpenCL and CUDA devices; its other backends store nothing.

    Source: ArrayFire 3.8 to 3.9, ``src/backend/{opencl,cuda}/compile_module.cpp``, ``common/util.cpp`` and
    ``deterministicHash.cpp``; no file written by it was available. ``KER`` and the number of a hash over
    sources and options, ``_CL_`` with the OpenCL vendor's number and the device's name or ``_CU_`` with the
    compute capability, and ``_AF_`` with the version. A file is u64 FNV-1a of the binary, u64 size of it and
    the binary; CUDA kernels that were not generated begin with u64 number of names, each a kernel and its
    mangled name after their u64 sizes. Files are written under a temporary name and renamed; an invalid file
    is removed and compiled again, and nothing else is ever removed. If the variable's directory is not
    writable, ``~/.arrayfire`` is used, and if that is not, ``/tmp/arrayfire``.
    """

    layout = Layout(
        [_ARRAYFIRE_NAME],
        left=[Left(r"\d{1,20}")],
        own=["test"],
        key=lambda groups: f"{int(groups[0]):016x}" + hashed(["_".join(groups[1:])])[:24],
    )
    checksums = True
    kinds = frozenset(PayloadKind) - {PayloadKind.UNKNOWN}
    consequence = _REMOVED
    checked_bytes = largest_bytes = 32 << 20

    def shows_left(self, start: bytes) -> bool:
        parts = _parts(start)
        return parts is not None and parts.size <= _LARGEST_BYTES

    def look(self, item: Files) -> CacheEntry:
        (name,) = item.names
        _, backend, device, version = re.fullmatch(_ARRAYFIRE_NAME, name, re.DOTALL).groups()  # type: ignore[union-attr]
        found, parts = super().look(item), _parts(item.part(name, 0, self.scanned_bytes))
        return found._replace(
            program=parts.kernel if parts and parts.kernel else found.program,
            target=f"cuda:sm_{device}" if backend == "CU" else printable(device),
            toolchain=(("ArrayFire", version),),
        )

    def unwrap(self, data: bytes, *, whole: bool) -> tuple[bytes, Problem | None]:
        parts = _parts(data)
        binary = b"" if parts is None else data[parts.start : parts.start + parts.size]
        if not whole:
            return binary, None
        if parts is None or len(binary) < parts.size:
            return binary, Problem(FindingKind.TRUNCATED, f"it ends before its content does; {_REMOVED}")
        if _hash(binary) != parts.hash:
            return binary, Problem(FindingKind.CORRUPT, f"its hash does not match its content; {_REMOVED}")
        return binary, None

    def _wrong(self, binary: bytes, info: PayloadInfo, *, whole: bool) -> Problem | None:
        """The fault of a binary; none if its hash is right, as some drivers' formats are not public."""
        return None


class _ArrayFireFile(NamedTuple):
    """Parts of a file: the hash of its binary, the binary's offset and size, and the first kernel's name."""

    hash: int
    start: int
    size: int
    kernel: str


def _parts(data: bytes) -> _ArrayFireFile | None:
    """The parts at the beginning of a file; None if it ends before the binary begins."""
    at, kernel = 0, ""
    try:
        (count,) = _WORDS.unpack_from(data, at)
        if count <= _MOST_NAMES:  # a hash is beyond that
            at = _WORDS.size
            for _ in range(2 * count):
                (length,) = _WORDS.unpack_from(data, at)
                at += _WORDS.size
                kernel = kernel or printable(data[at : at + length])
                at += length
        ((digest,), (size,)) = _WORDS.unpack_from(data, at), _WORDS.unpack_from(data, at + _WORDS.size)
    except (struct.error, OverflowError):  # the second of a length beyond every file's
        return None
    return _ArrayFireFile(digest, at + 2 * _WORDS.size, size, kernel)


def _hash(data: bytes) -> int:
    return reduce(lambda digest, byte: (digest ^ byte) * _PRIME & _MASK, data, _OFFSET)


_SCANNED_BYTES = 64 << 10


def _broken_output(one: Parts) -> str:
    info = describe(one.read("output"))
    return (info.kind is not PayloadKind.UNKNOWN and info.problem) or ""


_STEP = Frame(
    "llvmcache-.+", "output:p64 log:p64 more:rest", "every program that asks for it compiles it again",
    (
        Rule(FindingKind.CORRUPT, lambda one: one.spans["more"].length, "has {} bytes behind its log"),
        Rule(FindingKind.CORRUPT, _broken_output, "is broken, {}", "it is served, so programs fail"),
    ),
)  # fmt: skip


class AmdComgr(Format, of="amd-comgr"):
    """The steps that AMD's code object manager compiled, for HIP's run-time compilation and for OpenCL.

    Source: ROCm/llvm-project, ``amd/comgr/src/comgr-cache.cpp`` and ``comgr-cache-command.cpp``, and LLVM's
    ``Caching.cpp``; no entry from an AMD machine was available. ``llvmcache-HEX`` is u64 size and the output
    of one compile step, then u64 size and its log, in the machine's byte order, and nothing after that. The
    name is a SHA of the compiler, its options and its inputs. Files are written under a temporary name and
    renamed, and pruned by AMD_COMGR_CACHE_POLICY; an invalid file is compiled again.
    """

    layout = Layout(
        ["llvmcache-([0-9a-f]{64})"],
        left=[Left(r"amdgpu-compiler-[0-9a-f]{6}\.tmp\.o", sure=True)],
        own=[r"llvmcache\.timestamp"],
    )
    opaque = (
        "its entries do not record the inputs of their keys; AMD_COMGR_EMIT_VERBOSE_LOGS=1 with "
        "AMD_COMGR_REDIRECT_LOGS=stderr logs hits and stores, and has separate keys"
    )

    frames = (_STEP,)

    def look(self, item: Files) -> CacheEntry:
        problem = next(self.judged(item, item.names[0], whole=False), None)
        info = describe(
            b"" if problem else self.parts(item, item.names[0], _STEP).read("output", _SCANNED_BYTES)
        )
        return self.entry(item)._replace(
            target=info.target,
            artifact_kind="" if info.kind is PayloadKind.UNKNOWN else info.kind.value,
            damage=problem,
        )

    def payload(self, item: Files) -> bytes:
        return self.parts(item, item.names[0], _STEP).read("output")
