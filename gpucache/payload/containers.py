"""Containers of drivers and compilers, and ours, each with its own header after a magic number.

They are NVIDIA's fatbins and LTO-IR, poclbin, rusticl's binaries, and the data of ``vkGetPipelineCacheData``.
NVIDIA documents neither of its formats: every statement about their layout comes from files by ``fatbinary``
13.0 and NVRTC 11.8, 12.4, 12.9 and 13.5, and fields that were not understood are not read.

Ours has the results of a compiler for one kernel in several files: the magic number, the u32 count of files,
for each file the u32 length of its name in UTF-8, its u64 size and the name, then the bytes of all files in
that order. Little-endian; nothing follows.
"""

import struct
from collections.abc import Iterator, Mapping

from gpucache.errors import FormatError
from gpucache.payload.reading import BrokenError, PayloadKind, Reading, Source

_FATBIN_KINDS = {1: "compute_", 2: "sm_"}
_TAG_ARCHITECTURE = 1
_TAG_SPECIFIC = 0x20
_TAG_END = 0x63
_TAGS_READ = 256
_IMAGES_READ = 4096
_GAP_BYTES = 4096
FATBIN = b"\x50\xed\x55\xba"
_SPIRV = b"\x03\x02\x23\x07"
_POCL_READ = range(6, 12)
_POCL_WITH_ROOT_SIZE = 9
_POCL_FILES_READ = (9,)
"""The versions that were checked against real poclbins, with the files of their kernels."""
_POCL_WITH_GLOBALS = 10
_POCL_HAS_GLOBALS = 2
_KERNEL_LIMIT = 65_536
_BUILD_HASH_BYTES = 41
_VENDORS = {
    0x1002: "AMD",
    0x1010: "Imagination",
    0x106B: "Apple",
    0x10DE: "NVIDIA",
    0x13B5: "Arm",
    0x5143: "Qualcomm",
    0x8086: "Intel",
    0x10005: "Mesa",
}
"""Vendors by number: the PCI's list, and larger numbers from the specification's ``VkVendorId``."""


def read_fatbin(reading: Reading) -> None:
    """Describe a fatbin, whose header is u32 magic, u16 version, u16 header size and u64 size of the images.

    The header of an image is u16 kind (1 for PTX, 2 for a cubin), u16, u32 header size, u64 content size, and
    at offset 28 the architecture as u32. Raises BrokenError if an image or the whole exceeds the payload,
    as every cut after the magic number makes them.
    """
    reading.kind = PayloadKind.FATBIN
    version, header_size, size = reading.unpack("<HHQ", 4, "fatbin header")
    reading.note("fatbin version", version)
    reading.note_names("images", _images(reading, header_size, header_size + size))
    reading.require(header_size + size, "last image")


def images(source: Source, start: int, end: int) -> Iterator[str | None]:
    """The architectures of the images in some fatbins one behind the other, of which only headers are read;
    None for an image of another kind. Raises CutError."""
    for _ in range(_IMAGES_READ):
        gap = source.cut(start, min(start + _GAP_BYTES, end)).find(FATBIN)
        if gap < 0:
            return
        start += gap
        header_size, size = struct.unpack("<HQ", source.cut(start + 6, start + 16))
        source.require(start + header_size + size, "last image")
        at, start = start + header_size, start + header_size + size
        while at < start:
            source.require(at + 32, "image header")
            head = source.cut(at, at + 32)
            kind, _, length, content = struct.unpack_from("<HHIQ", head)
            yield (
                f"{_FATBIN_KINDS[kind]}{int.from_bytes(head[28:], 'little')}"
                if kind in _FATBIN_KINDS
                else None
            )
            at += max(length, 32) + content


def _images(reading: Reading, start: int, end: int) -> Iterator[str]:
    for _ in range(_IMAGES_READ):
        if start >= end:
            return
        kind, _unread, header_size, size = reading.unpack("<HHIQ", start, "image header")
        (number,) = reading.unpack("<I", start + 28, "image header")
        yield f"{_FATBIN_KINDS.get(kind, f'kind {kind} for sm_')}{number}"
        start += max(header_size, 32) + size
        reading.require(start, "image")


def read_ltoir(reading: Reading) -> None:
    """Describe NVRTC's LTO-IR, which is encoded NVVM IR after pairs of u16 tag and u16 value.

    The u16 at offset 12 says where the pairs begin, the u32 at 16 where they end, and the u32 at 20 where the
    content begins. Tag 1 is ten times the architecture, tag 0x20 is 1 for an ``a`` architecture (an
    ``f`` leaves no trace), and tag 0x63 ends the pairs. The length of the content is stored nowhere, so a cut
    after the header is not noticed. LTO-IR is code for a virtual architecture, so its architecture is shown
    as ``compute_90``.
    """
    reading.kind = PayloadKind.LTOIR
    start, _unread, end, content = reading.unpack("<HHII", 12, "LTO-IR header")
    reading.require(max(end, content + 1), "LTO-IR header")
    tags: dict[int, int] = {}
    for offset in range(start, min(end, start + 4 * _TAGS_READ), 4):
        tag, value = reading.unpack("<HH", offset, "LTO-IR header")
        if tag == _TAG_END:
            break
        tags[tag] = value
    if number := tags.get(_TAG_ARCHITECTURE):
        reading.architecture = f"compute_{number // 10}{'a' if tags.get(_TAG_SPECIFIC) else ''}"


def read_poclbin(reading: Reading) -> None:
    """Describe a poclbin, which is little-endian. Source: PoCL's ``pocl_binary.c``.

    The header has the magic, u64 device id, u32 version, u32 number of kernels, u64 flags, from version 9
    on u32 root entries, then 41 bytes of build hash, and from version 10 on a u64 where flag bit 1 is set.
    The root files follow: from version 9 on after their size as u64, before that one file. A file is u32 and
    name, u32 and content. Each kernel is u64 size of all of it, u64 size of its files, u32, u32 and name, a
    rest that is not read, and its files. Versions 8 (PoCL 3.0) and 9 (3.1) were read from real files; 6, 7,
    10 and 11 follow the source; of other versions only the header up to the flags is read. The kernels must
    end where the payload does, so every cut is a problem.
    """
    reading.kind = PayloadKind.POCLBIN
    device, version, count, flags = reading.unpack("<QIIQ", 8, "poclbin header")
    reading.note("poclbin version", version)
    reading.note("device id", f"{device:016x}")
    if version not in _POCL_READ:
        reading.note("kernels", count)
        return
    start = 32 if version < _POCL_WITH_ROOT_SIZE else 36
    reading.require(start + _BUILD_HASH_BYTES, "poclbin header")
    reading.note("build hash", reading.text(start, start + _BUILD_HASH_BYTES))
    start += _BUILD_HASH_BYTES
    if version >= _POCL_WITH_GLOBALS and flags & _POCL_HAS_GLOBALS:
        start += 8
    if count > _KERNEL_LIMIT:
        raise BrokenError(f"it claims {count} kernels, more than the {_KERNEL_LIMIT} that are read")
    start = _root_end(reading, version, start)
    reading.note_names("kernels", _pocl_kernels(reading, version, start, count), kernels=True)


def _root_end(reading: Reading, version: int, start: int) -> int:
    if version >= _POCL_WITH_ROOT_SIZE:
        (size,) = reading.unpack("<Q", start, "size of the program files")
        start, end = start + 8, start + 8 + size
        reading.require(end, "program files")
        if version in _POCL_FILES_READ:
            _pocl_files(reading, start, end)
        return end
    return _pocl_file(reading, start)


def _pocl_files(reading: Reading, start: int, end: int) -> None:
    while start < end:
        start = _pocl_file(reading, start)
    if start != end:
        raise BrokenError(f"a file ends at byte {start}, beyond byte {end} where files end")


def _pocl_file(reading: Reading, start: int) -> int:
    """Take a file's content as a part; returns where the file ends."""
    (size,) = reading.unpack("<I", start, "name of a file")
    content = start + 4 + size
    (size,) = reading.unpack("<I", content, "length of a file")
    end = content + 4 + size
    reading.require(end, "file")
    reading.parts.append((content + 4, end))
    return end


def _pocl_kernels(reading: Reading, version: int, start: int, count: int) -> Iterator[str]:
    for index in range(count):
        size, files, _arguments, length = reading.unpack("<QQII", start, f"header of kernel {index}")
        if 24 + length > size:
            raise BrokenError(f"kernel {index} has {size} bytes and a name of {length}")
        reading.require(start + size, f"content of kernel {index}")
        yield reading.text(start + 24, start + 24 + length)
        start += size
        if version in _POCL_FILES_READ:
            _pocl_files(reading, start - files, start)
    if start != len(reading.data):
        raise BrokenError(f"the last kernel ends at byte {start} of the payload's {len(reading.data)}")


def read_rusticl(reading: Reading) -> None:
    """Describe a binary of Mesa's rusticl; every cut of version 1 is a problem.

    The magic is followed by, each as u32, the version (only 1 was seen), the length of the device's name, the
    length of the SPIR-V, and OpenCL's binary type; then come the name and the SPIR-V. Mesa 22.3 writes
    neither the magic nor the device.
    """
    if not reading.data.startswith(b"rusticl\0"):
        if reading.cut(12, 16) == _SPIRV:
            reading.kind = PayloadKind.RUSTICL
            (spirv_length,) = reading.unpack("<I", 4, "rusticl header")
            _rusticl_end(reading, spirv_length, 12)
        return
    reading.kind = PayloadKind.RUSTICL
    version, name_length, spirv_length, _type = reading.unpack("<4I", 8, "rusticl header")
    reading.note("rusticl version", version)
    if version == 1:
        reading.note("device", reading.text(24, 24 + name_length))
        _rusticl_end(reading, spirv_length, 24 + name_length)


def _rusticl_end(reading: Reading, spirv_length: int, start: int) -> None:
    end = start + spirv_length
    reading.require(end, "SPIR-V")
    reading.note("SPIR-V bytes", spirv_length)
    reading.parts.append((start, end))
    if end < len(reading.data):  # Mesa refuses them
        raise BrokenError(f"{len(reading.data) - end} bytes follow its SPIR-V")


def read_pipelines(reading: Reading) -> None:
    """Describe a pipeline cache by its header, which is little-endian wherever it was written.

    Source: Vulkan specification, ``VkPipelineCacheHeaderVersionOne``; checked against files of Mesa's
    lavapipe. u32 size of the header (32) and u32 version (1) serve as a magic number; u32 vendor, u32 device
    and the 16 bytes of a UUID follow, by which a driver refuses data that another driver or version
    made. The length of the driver's data is not given, so of all cuts only one in the header is a problem.
    """
    reading.kind = PayloadKind.VULKAN_PIPELINES
    vendor, device = reading.unpack("<II", 8, "header")
    reading.architecture = f"{vendor:04x}:{device:04x}"
    reading.note("vendor", _VENDORS.get(vendor, f"{vendor:#06x}"))
    reading.note("device", f"{device:#06x}")
    reading.require(32, "header")
    reading.note("UUID", reading.cut(16, 32).hex())


PLAN_TAG = b"ftrt"
"""The beginning of a plan of TensorRT's since 8.6."""
PLAN_START_BYTES = 28


def is_plan(start: bytes) -> bool:
    """Whether a file begins as a plan of TensorRT's, of any version, or is empty."""
    return not start or start.startswith((PLAN_TAG, b"ptrt"))


def plan_version(start: bytes) -> tuple[tuple[str, str], ...]:
    """TensorRT's version from the first ``PLAN_START_BYTES`` of a plan, as a toolchain; empty if it has
    none."""
    known = len(start) >= PLAN_START_BYTES and start.startswith(PLAN_TAG + b"\0\0\0\0")
    return (("TensorRT", ".".join(map(str, start[24:28]))),) if known else ()


MAGIC = b"\x93GPCFILE"
_FILE = struct.Struct("<IQ")
_COUNT = struct.Struct("<I")
_MOST_FILES = 4096
_LONGEST_NAME = 255


def pack(files: Mapping[str, bytes]) -> bytes:
    parts = [MAGIC, _COUNT.pack(len(files))]
    for name, data in files.items():
        written = name.encode()
        parts += [_FILE.pack(len(written), len(data)), written]
    return b"".join([*parts, *files.values()])


def unpack(payload: bytes) -> dict[str, bytes]:
    """The files of a payload by name, none of which names a directory; raises FormatError."""
    try:
        places = list(_places(Reading(payload)))
    except BrokenError as error:
        raise FormatError(str(error)) from None
    return {name: payload[start:end] for name, start, end in places}


def binary(payload: bytes) -> bytes:
    """The last file that is for an architecture, which is the binary; without one the payload itself."""
    from gpucache.payload import describe

    made = (data for data in reversed(unpack(payload).values()) if describe(data).architecture)
    return next(made, payload)


def read_files(reading: Reading) -> None:
    """Describe the files, and the architecture of the binary among them; raises BrokenError."""
    from gpucache.payload import describe

    reading.kind = PayloadKind.FILES
    places = list(_places(reading))
    reading.note_names("files", (name for name, _, _ in places))
    inside = (describe(reading.cut(start, end)) for _, start, end in reversed(places))
    reading.architecture = next((one.architecture for one in inside if one.architecture), None)


def _places(reading: Reading) -> Iterator[tuple[str, int, int]]:
    (count,) = reading.unpack(_COUNT.format, len(MAGIC), "count of files")
    if not reading.data.startswith(MAGIC) or count > _MOST_FILES:
        raise BrokenError("it does not list files")
    at = len(MAGIC) + _COUNT.size
    sizes: dict[str, int] = {}
    for _ in range(count):
        length, size = reading.unpack(_FILE.format, at, "list of files")
        at += _FILE.size
        reading.require(at + min(length, _LONGEST_NAME), "list of files")
        name = reading.cut(at, at + length).decode(errors="replace")
        if length > _LONGEST_NAME or {"/", "\\", "\0"} & set(name) or name in ("", ".", "..", *sizes):
            raise BrokenError(f"{name[:_LONGEST_NAME]!r} is not the name of a file in it")
        sizes[name] = size
        at += length
    for name, size in sizes.items():
        reading.require(at + size, f"file {name}")
        yield name, at, at + size
        at += size
    if at != len(reading.data):
        raise BrokenError(f"{len(reading.data) - at} bytes follow its last file")
