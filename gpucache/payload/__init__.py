"""What a compiled binary is, told from its bytes alone.

Pure: nothing is executed, loaded or read from disk, whatever the bytes say. :func:`describe` never
raises; every length in the bytes is held against their number before it is used, and what is kept
of them is bounded. A module per family of formats; each reader names the source of its format.

Must not know stores, compilers or devices. What an entry claims of its payload is held against the
payload by :func:`fits`, from the two texts alone.
"""

from gpucache.payload import amd, bitcode, elf, nvidia, opencl, ptx, spirv
from gpucache.payload.claims import fits, holds_no_kernel
from gpucache.payload.reading import BrokenError, PayloadInfo, PayloadKind, Reading

__all__ = ["PayloadInfo", "PayloadKind", "describe", "fits", "holds_no_kernel"]

_READERS = (
    (b"\x7fELF", elf.read_elf),
    (b"\x50\xed\x55\xba", nvidia.read_fatbin),
    (b"\xed\x43\x4e\x7f", nvidia.read_ltoir),
    (b"poclbin\0", opencl.read_poclbin),
    (b"rusticl\0", opencl.read_rusticl),
    (b"\x03\x02\x23\x07", spirv.read_spirv),
    (b"\x07\x23\x02\x03", spirv.read_spirv),
    (b"BC\xc0\xde", bitcode.read_bitcode),
    (b"\xde\xc0\x17\x0b", bitcode.read_bitcode),
    (amd.BUNDLE, amd.read_bundle),
    (amd.COMPRESSED_BUNDLE, amd.read_bundle),
)


def describe(data: bytes) -> PayloadInfo:
    """What some bytes are, by their magic number, or by their first directive for PTX.

    Fewer bytes than a magic number has are ``unknown``. From there on what was cut off is a
    ``problem`` wherever the format itself says how long it is; see the readers for what that covers.
    """
    reading = Reading(data)
    read = next((reader for magic, reader in _READERS if data.startswith(magic)), _read_other)
    try:
        read(reading)
    except BrokenError as broken:
        return reading.info(str(broken))
    return reading.info()


def _read_other(reading: Reading) -> None:
    if ptx.read(reading):
        return
    if not reading.data:
        raise BrokenError("the payload is empty")
    reading.note("starts with", reading.data[:16].hex(" "))
