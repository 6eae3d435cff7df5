"""AMD's formats: code objects, and the offload bundles that HIP's compiler packs them into.

Sources: LLVM's "User Guide for AMDGPU Backend" (``EF_AMDGPU_MACH``) and Clang's "Clang Offload Bundler".
"""

import re
from collections.abc import Iterator

from gpucache.payload.reading import BrokenError, PayloadKind, Reading
from gpucache.units import printable

_MAGIC_BYTES = 24
_COMPRESSED = b"CCOB"
_OBJECT_LIMIT = 256
_IDENTIFIER_LIMIT = 256
_GFX = re.compile(r"gfx[0-9a-f]{3,8}")
_NOTE = re.compile(rb"amdgcn-amd-amdhsa-[\w.]{0,32}-(gfx[0-9a-f]{3,8})")
# fmt: off
_MACHINES = {
    0x20: "600", 0x21: "601", 0x22: "700", 0x23: "701", 0x24: "702", 0x25: "703", 0x26: "704", 0x28: "801",
    0x29: "802", 0x2A: "803", 0x2B: "810", 0x2C: "900", 0x2D: "902", 0x2E: "904", 0x2F: "906", 0x30: "908",
    0x31: "909", 0x32: "90c", 0x33: "1010", 0x34: "1011", 0x35: "1012", 0x36: "1030", 0x37: "1031",
    0x38: "1032", 0x39: "1033", 0x3A: "602", 0x3B: "705", 0x3C: "805", 0x3D: "1035", 0x3E: "1034",
    0x3F: "90a", 0x40: "940", 0x41: "1100", 0x42: "1013", 0x43: "1150", 0x44: "1103", 0x45: "1036",
    0x46: "1101", 0x47: "1102", 0x48: "1200", 0x49: "1250", 0x4A: "1151", 0x4B: "941", 0x4C: "942",
    0x4E: "1201", 0x4F: "950", 0x55: "1152", 0x58: "1153", 0x5A: "1251",
}
# fmt: on


def architecture(data: bytes, flags: int) -> str | None:
    """The architecture of a code object, such as ``gfx90a``; None if it does not say.

    A loader goes by the ELF header's ``e_flags``, the lowest byte of which numbers the processor. If that
    is not the number of a single processor, the target in the notes is used.
    """
    if machine := _MACHINES.get(flags & 0xFF):
        return f"gfx{machine}"
    found = _NOTE.search(data)
    return found[1].decode() if found else None


def read_bundle(reading: Reading) -> None:
    """Describe an offload bundle; of a compressed bundle only the magic is read.

    A bundle is little-endian. The magic text of 24 bytes precedes the number of code objects as u64 and,
    for each of them u64 offset, u64 size, u64 length of its identifier, and the identifier, such as
    ``hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-``. Raises BrokenError if the list or a code object exceeds the
    payload.
    """
    reading.kind = PayloadKind.OFFLOAD_BUNDLE
    if reading.data.startswith(_COMPRESSED):
        return
    found: dict[str, None] = {}
    try:
        for identifier, end in _objects(reading):
            found |= dict.fromkeys(_GFX.findall(identifier))
            reading.require(end, f"code object {identifier}")
    finally:
        if len(found) == 1:
            (reading.architecture,) = found
        elif found:
            reading.note("architectures", ", ".join(found))


def _objects(reading: Reading) -> Iterator[tuple[str, int]]:
    """The identifier and end of each code object."""
    part = "list of code objects"
    place = _MAGIC_BYTES + 8
    (count,) = reading.unpack("<Q", _MAGIC_BYTES, part)
    for _ in range(min(count, _OBJECT_LIMIT)):
        offset, size, length = reading.unpack("<QQQ", place, part)
        reading.require(place + 24 + length, part)
        if length > _IDENTIFIER_LIMIT:
            raise BrokenError(f"the identifier of a code object has {length} bytes, more than clang writes")
        place += 24 + length
        yield printable(reading.data[place - length : place]), offset + size
