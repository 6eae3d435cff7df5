"""The caches of the CuTe DSL and of programs that are written in it: a file for each compiled function."""

import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches.binary_format import broken
from gpucache.caches.files import Files, Frame, Parts, Rule
from gpucache.caches.format import Format
from gpucache.caches.layout import Layout, Left, hashed
from gpucache.payload import PayloadKind

_NAME = r"cute_dsl_([0-9a-f]{64})\.mlir"
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_CHECKSUM_BYTES = 4


def _unlike_end(one: Parts) -> bool:
    data = one.item.read(one.name)
    return zlib.crc32(data[:-_CHECKSUM_BYTES]) != int.from_bytes(data[-_CHECKSUM_BYTES:], "little")


_BYTECODE = Frame(
    ".+", "magic:u32 rest:rest", "the CuTe DSL warns, compiles it again and replaces it",
    (
        Rule(FindingKind.MISLABELLED, lambda one: one.numbers["magic"] != 0x52EF4C4D, "is not MLIR bytecode"),
        Rule(FindingKind.CORRUPT, _unlike_end, "has another CRC-32 than its content"),
    ),
)  # fmt: skip


class CuteDsl(Format, of="cute-dsl"):
    """A file of MLIR's bytecode for each function that ``cute.compile`` and ``cute.jit`` compiled.

    Source: CuTe DSL 4.2.1, 4.4.2 and 4.5.0, ``cutlass/base_dsl/cache_helpers.py`` and ``dsl.py``; no file
    written on a GPU was available. ``cute_dsl_<64 hex>.mlir`` is bytecode, and since 4.4 its CRC-32 in 4
    bytes after it; 4.2 wrote none, so its files count as damaged, but no later version reads them. The digits
    are a SHA-256 of the module, the DSL's version, its options and every variable that it reads, and the
    current directory. A file is written to ``tmp.pid_PID_UUID/`` and renamed. An invalid one is compiled
    again and replaced; nothing is ever removed.
    """

    layout = Layout(
        [_NAME], left=[Left(rf"tmp\.pid_(?P<pid>\d+)_{_UUID}/{_NAME}")], own=["pyir_class_facts/"]
    )
    opaque = (
        "its files do not record the inputs of their names; the current directory and every variable "
        "of the DSL's are part of that; CUTE_DSL_LOG_TO_CONSOLE=1 logs the hashes"
    )
    checksums = True

    frames = (_BYTECODE,)

    def look(self, item: Files) -> CacheEntry:
        damage = next(self.judged(item, item.names[0], whole=False), None)
        return self.entry(item)._replace(artifact_kind="mlir", damage=damage)

    def payload(self, item: Files) -> bytes:
        return super().payload(item)[:-_CHECKSUM_BYTES]


_DIGITS = "[0-9a-f]{64}"
_FOLDERS = (f"({_DIGITS})/", rf"({_DIGITS})/([a-z]\w*)/")
_TEMPORARY = rf"\.{_DIGITS}\.[0-9a-f]{{16}}\.tmp\.o"


class FlashAttention(Format, of="flash-attention"):
    """FlashAttention 4: an object file for each kernel of attention that its CuTe sources compiled.

    Source: FlashAttention of September 2026, ``flash_attn/cute/cache_utils.py``; no file written on a GPU was
    available. The first directory is a SHA-256 of its sources, and the versions of Python, CUTLASS and
    TVM-FFI, so older ones stay unused; below it there may be one for a kind of kernel. ``<64 hex>.o`` is a
    SHA-256 of a pickled key of shapes and types, ``<64 hex>.lock`` is held by flock(2) while a process reads
    or writes it, and stays. An object is written to ``.<64 hex>.<16 hex>.tmp.o`` and renamed. One that does
    not load is removed and compiled again.
    """

    layout = Layout(
        [f"{folder}({_DIGITS})\\.{ending}" for ending in ("o", "lock") for folder in _FOLDERS],
        left=[Left(folder + _TEMPORARY, sure=True) for folder in _FOLDERS],
        signs=[_DIGITS],
        key=lambda groups: groups[-1] + hashed(groups[:-1])[:24],
    )
    folders_removed = 2

    def look(self, item: Files) -> CacheEntry:
        whole = item.names[0].endswith(".o")
        problem = None if whole else Problem(FindingKind.ORPHAN, "its object is gone, and the lock stays")
        version = (("sources", item.parts[0][:12]),)
        return self.entry(item)._replace(
            program=item.parts[1] if len(item.parts) > 1 else "",
            artifact_kind=PayloadKind.ELF.value if whole else "",
            damage=problem,
            fields=version,
        )

    def check(self, item: Files) -> Iterator[Problem]:
        name = item.names[0]
        if name.endswith(".o"):
            yield from broken(
                name,
                item.read(name),
                PayloadKind.ELF,
                f"{self.owner} removes it and compiles it again, where it does not load",
            )

    def lock(self, item: Files) -> AbstractContextManager[None]:
        return self.holding(*item.parts, item.names[0].partition(".")[0] + ".lock")


class Quack(FlashAttention, of="quack"):
    """The kernels of QuACK, in objects like FlashAttention's, whose code it gave the form.

    Source: QuACK 0.6.5 (PyPI), ``quack/cache/jit.py``; no file written on a GPU was available. The first
    directory is a SHA-256 of its sources, and the versions of Python, CUTLASS and TVM-FFI.
    """
