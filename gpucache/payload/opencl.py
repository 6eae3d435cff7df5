"""The containers of OpenCL implementations that return neither ELF nor SPIR-V: poclbin and rusticl."""

from collections.abc import Iterator

from gpucache.payload.reading import BrokenError, PayloadKind, Reading

_POCL_READ = range(6, 12)
_POCL_WITH_ROOT_SIZE = 9
_POCL_WITH_GLOBALS = 10
_POCL_HAS_GLOBALS = 2
_KERNEL_LIMIT = 65_536
_BUILD_HASH_BYTES = 41


def read_poclbin(reading: Reading) -> None:
    """Describe a poclbin, which is little-endian. Source: PoCL's ``pocl_binary.c``.

    The header holds the magic, u64 device id, u32 version, u32 number of kernels, u64 flags, from version 9
    on u32 root entries, then 41 bytes of build hash, and from version 10 on a u64 where flag bit 1 is set.
    The root files follow: from version 9 on behind their size as u64, before that one file as u32 and name,
    u32 and content. Each kernel is u64 size of all of it, u64, u32, u32 and name, and a rest that is not read
    here. Versions 8 (PoCL 3.0) and 9 (3.1) were read from real files; 6, 7, 10 and 11 follow the source; of
    other versions only the header up to the flags is read. The kernels must end where the payload does, so
    every cut is a problem.
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
    reading.note_names("kernels", _pocl_kernels(reading, start, count), kernels=True)


def _root_end(reading: Reading, version: int, start: int) -> int:
    if version >= _POCL_WITH_ROOT_SIZE:
        (size,) = reading.unpack("<Q", start, "size of the program files")
        end = start + 8 + size
    else:
        (size,) = reading.unpack("<I", start, "name of the program file")
        content = start + 4 + size
        (size,) = reading.unpack("<I", content, "program file")
        end = content + 4 + size
    reading.require(end, "program files")
    return end


def _pocl_kernels(reading: Reading, start: int, count: int) -> Iterator[str]:
    for index in range(count):
        size, _files, _arguments, length = reading.unpack("<QQII", start, f"header of kernel {index}")
        if 24 + length > size:
            raise BrokenError(f"kernel {index} has {size} bytes and a name of {length}")
        reading.require(start + size, f"content of kernel {index}")
        yield reading.text(start + 24, start + 24 + length)
        start += size
    if start != len(reading.data):
        raise BrokenError(f"the last kernel ends at byte {start} of the payload's {len(reading.data)}")


def read_rusticl(reading: Reading) -> None:
    """Describe a binary of Mesa's rusticl; every cut of version 1 is a problem.

    Behind the magic stand, each as u32, the version (only 1 was seen), the length of the device's name, the
    length of the SPIR-V, and OpenCL's binary type; then come the name and the SPIR-V.
    """
    reading.kind = PayloadKind.RUSTICL
    version, name_length, spirv_length, _type = reading.unpack("<4I", 8, "rusticl header")
    reading.note("rusticl version", version)
    if version != 1:
        return
    reading.require(24 + name_length + spirv_length, "SPIR-V")
    reading.note("device", reading.text(24, 24 + name_length))
    reading.note("SPIR-V bytes", spirv_length)
