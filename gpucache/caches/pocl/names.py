"""The names in PoCL's cache and what they tell. Pure.

Source: PoCL, lib/CL/pocl_cache.c (``build_program_compute_hash``, ``pocl_cache_kernel_cachedir_path``,
``pocl_hash_clipped_name``) and lib/CL/pocl_file_util.c (``pocl_mk_tempname``, ``pocl_mk_tempdir``).
"""

import hashlib
import re
import secrets
from dataclasses import dataclass

PROGRAMS = ("program.bc", "program.spv", "program.mlir")
"""What a program is kept as: LLVM bitcode, by newer ones SPIR-V or MLIR; the first that is there counts."""
ACCESSED = "last_accessed"
LOG = "build.log"
PARALLEL = "parallel.bc"
_PAIR = re.compile(r"[A-P]{2}")
_REST = re.compile(r"[A-P]{37,38}")
_VARIANT = re.compile(r"([0-9]{1,20})-([0-9]{1,20})-([0-9]{1,20})(-goffs0)?(-smallgrid)?")
_CLIPPED = re.compile(r"(?s)(.+)[. ]([A-P]{40})")
_TEMPORARY = re.compile(r"(?s).+_[A-Za-z0-9]{6}\.temp")
_SYMBOL = re.compile(r"(?s)_?pocl_kernel_(.+)_workgroup")
_LOST = "?"
_OURS = "tempdir_gpucache_"
_IN_ROOT = re.compile(
    r"(tempfile|tempdir|_UNCACHED)_[A-Za-z0-9]{6}(?:\.[a-z.]{1,16}|\.preproc-[0-9a-f]{8}\.cl\.tmp)?"
    "|tempdir_gpucache_[0-9a-f]+"
)


@dataclass(frozen=True, slots=True)
class Variant:
    """A kernel compiled for one local size, and for some launches alone."""

    kernel: str
    local_size: str
    """Such as ``64x1x1``; empty for the generic one, which takes every local size."""
    zero_offset: bool
    small_grid: bool

    @property
    def words(self) -> str:
        """What launches it is for."""
        limits = [
            *(["global offset 0"] if self.zero_offset else []),
            *(["small grids"] if self.small_grid else []),
        ]
        size = self.local_size or "any local size"
        return f"{size} ({', '.join(limits)} only)" if limits else size


def is_pair(name: str) -> bool:
    """Whether a name is the first part of a program's folder."""
    return _PAIR.fullmatch(name) is not None


def is_rest(name: str) -> bool:
    """Whether a name is the second part of a program's folder."""
    return _REST.fullmatch(name) is not None


def key_of(pair: str, rest: str) -> str:
    """A program's SHA-1 as hex, from the names of its folders.

    PoCL writes each byte as two letters, the low half first, and then puts the ``/`` over the third
    letter. So the fourth hex digit is on no disk; the key is the other 39, in their order.
    """
    letters = pair + (_LOST if len(rest) == 37 else "") + rest
    swapped = (letters[index ^ 1] for index in range(len(letters)))
    return "".join(f"{ord(letter) - ord('A'):x}" for letter in swapped if letter != _LOST)


def letters_of(digest: bytes) -> str:
    """A digest as PoCL writes it."""
    return "".join(chr(half + ord("A")) for byte in digest for half in (byte & 15, byte >> 4))


def variant_of(kernel: str, name: str) -> Variant | None:
    """What a folder below a kernel's is for; None for another name."""
    match = _VARIANT.fullmatch(name)
    if match is None:
        return None
    sizes = [str(int(text)) for text in match.group(1, 2, 3)]
    size = "" if sizes == ["0", "0", "0"] else "x".join(sizes)
    return Variant(kernel, size, match[4] is not None, match[5] is not None)


def is_called(folder: str, kernel: str) -> bool:
    """Whether a kernel's folder is this one: its name, or where that is long its beginning and its SHA-1."""
    if folder == kernel:
        return True
    clipped = _CLIPPED.fullmatch(folder)
    if clipped is None or not kernel.startswith(clipped[1]):
        return False
    raw = kernel.encode("utf-8", "surrogateescape")
    return letters_of(hashlib.sha1(raw, usedforsecurity=False).digest()) == clipped[2]


def short(folder: str) -> str:
    """A kernel's name for people, from that of its folder: where it was clipped, without the digest."""
    clipped = _CLIPPED.fullmatch(folder)
    return f"{clipped[1]}…" if clipped else folder


def kernel_of(symbol: str) -> str | None:
    """The kernel that a work-group function belongs to; None for another symbol."""
    match = _SYMBOL.fullmatch(symbol)
    return match[1] if match else None


def is_temporary(name: str) -> bool:
    """Whether a file in a program's folder is one that is being written, or was when its writer died."""
    return _TEMPORARY.fullmatch(name) is not None


def temporary_group(name: str) -> str | None:
    """Which temporary files or folders directly in the root a name belongs to; None for none of them.

    ``tempfile_XXXXXX`` with or without a suffix (each start of PoCL leaves an empty one), ``tempdir_XXXXXX``,
    and ``_UNCACHED_XXXXXX`` for programs that are built while the cache is off.
    """
    match = _IN_ROOT.fullmatch(name)
    return (match[1] or "tempdir") if match else None


def removed_name() -> str:
    """A new name in the root for a program that is being removed; counts as temporary."""
    return f"{_OURS}{secrets.token_hex(8)}"
