"""Names in a cache of libsycl: its folders, the files of an entry, and the keys shown for them.

Source: libsycl, ``persistent_device_code_cache.cpp`` (``getCacheItemPath``,
``getCompiledKernelItemPath``, ``getDeviceCodeIRPath``, ``LockCacheItem``)::

    <device>/<images>/<spec constants>/<build options>/<n>.bin .src _access_time.txt
    ext_kernel_compiler/<device>/<build options>/<source>/<n>.bin _access_time.txt
    ext_kernel_compiler/<Base64 of a 256-bit hash, / as ->/ir.bin ir_access_time.txt

The first two are named by unsigned 64-bit hashes in decimal, ``std::hash<std::string>`` of libstdc++ on
64-bit machines (``hash_bytes.cc``: MurmurHash64A with a seed of its own); the hashes of other standard
libraries are not known here. ``<n>.lock`` beside an entry, and ``.lock`` behind any other name, is a lock.
Pure; must not know what the files hold.
"""

import hashlib
import re
import struct
from dataclasses import dataclass
from enum import StrEnum

BINARY = ".bin"
SOURCE = ".src"
LOCK = ".lock"
ACCESS = "_access_time.txt"
ACCESS_LOCK = ACCESS + LOCK
KERNELS = "ext_kernel_compiler"
SIZE_FILE = "cache_size.txt"
SIZE_LOCK = SIZE_FILE + LOCK
EVICTION = "_eviction_in_progress"
IR_STEM = "ir"
LEVELS = 4
"""Folders between the root and the entries of a program."""

_SHORT_DIGITS = 15
"""One hash in 20,000 has fewer digits, and other programs' numbers have."""
_FILE = re.compile(r"(0|[1-9][0-9]{0,9}|ir)(\.bin|\.src|\.lock|_access_time\.txt|_access_time\.txt\.lock)")
_HASH = re.compile(r"0|[1-9][0-9]{0,19}")
_IR_KEY = re.compile(r"[A-Za-z0-9+\-]{43}=")
_SEED = 0xC70F6907
_MULTIPLIER = 0xC6A4A7935BD1E995
_MASK = (1 << 64) - 1
_BLOCK = 8


class Family(StrEnum):
    """What a folder of entries holds."""

    PROGRAM = "program"
    KERNEL = "kernel_compiler binary"
    IR = "kernel_compiler IR"


@dataclass(frozen=True, slots=True)
class Group:
    """A folder of entries with equal hashes, by the names of the folders that lead to it."""

    family: Family
    parts: tuple[str, ...]

    @property
    def hex(self) -> str:
        """SHA-256 of all the hashes as hex, so that its first digits tell entries apart by any of them."""
        return hashlib.sha256("/".join(self.parts).encode()).hexdigest()

    def key(self, stem: str) -> str:
        """The key of an entry in it."""
        return f"{self.hex}-{stem}"


def is_hash(name: str) -> bool:
    """Whether a folder's name is a hash."""
    return _HASH.fullmatch(name) is not None and int(name) < 1 << 64


def is_ir_key(name: str) -> bool:
    """Whether a folder's name is the key of cached IR."""
    return _IR_KEY.fullmatch(name) is not None


def split_file(name: str) -> tuple[str, str] | None:
    """Stem and suffix of a file that belongs to an entry; None for a foreign name."""
    found = _FILE.fullmatch(name)
    return (found[1], found[2]) if found else None


def group_of(parts: tuple[str, ...]) -> Group | None:
    """The group that folders lead to; None where they lead to none."""
    if len(parts) == LEVELS and _are_hashes(parts):
        return Group(Family.PROGRAM, parts)
    if not parts or parts[0] != KERNELS:
        return None
    if len(parts) == LEVELS and _are_hashes(parts[1:]):
        return Group(Family.KERNEL, parts)
    if len(parts) == 2 and is_ir_key(parts[1]):
        return Group(Family.IR, parts)
    return None


def _are_hashes(parts: tuple[str, ...]) -> bool:
    """Whether numbers are hashes, all of them: by chance one of them may be short, and hardly ever two."""
    return all(map(is_hash, parts)) and sum(len(part) < _SHORT_DIGITS for part in parts) <= 1


def leads_on(parts: tuple[str, ...]) -> bool:
    """Whether folders of these names lie on the way to a group."""
    if not parts or parts == (KERNELS,):
        return True
    return len(parts) < LEVELS and all(map(is_hash, parts[1:] if parts[0] == KERNELS else parts))


def is_made(parts: tuple[str, ...]) -> bool:
    """Whether libsycl gives a folder on the way to a group, or a file of an entry, such a name."""
    if not parts:
        return False
    if group_of(parts[:-1]) is not None:
        return split_file(parts[-1]) is not None
    return leads_on(parts) or group_of(parts) is not None


def order(stem: str) -> int:
    """Where an entry comes among those of its group, as programs look at them."""
    return int(stem) if stem != IR_STEM else 0


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
