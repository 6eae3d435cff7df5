"""A program of PoCL's cache as an entry of any cache."""

import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpucache.caches import files
from gpucache.caches.files import Identity
from gpucache.caches.pocl import names
from gpucache.caches.pocl.tree import Item, Role, Tree, read_tree, tree_of
from gpucache.errors import FormatError
from gpucache.folders import Folder
from gpucache.outcomes import CacheEntry, FindingKind, Problem
from gpucache.payload import bitcode
from gpucache.payload.bitcode import Module
from gpucache.payload.reading import CutError, printable

NAME = "pocl"
READ_LIMIT_BYTES = 256 << 20
_LLVM = "LLVM"
_KINDS = {"program.bc": "llvm-bitcode", "program.spv": "spir-v", "program.mlir": "mlir"}
_SHOWN = 32
"""Kernels and variants of one program that are listed."""
_TEMPORARY_BYTES = 64 << 10
_COMPILED = (b"\x7fELF", b"BC\xc0\xde", b"\xde\xc0\x17\x0b", b"\x03\x02\x23\x07", b"ML\xefR")
"""How machine code, LLVM bitcode with and without a wrapper, SPIR-V and MLIR begin."""
UNNAMED = "a program without kernels"


@dataclass(frozen=True, slots=True)
class Seen:
    """Where a program was, and what tells whether it changed since."""

    pair: str
    rest: str
    program: Identity
    accessed_ns: int


@dataclass(frozen=True, slots=True)
class Broken:
    """Why a program cannot be read."""

    kind: FindingKind
    detail: str


def programs(root: Path) -> Iterator[tuple[str, str]]:
    """The names of all programs' folders, in order; raises OSError where the root cannot be read."""
    with files.open_folder(root) as top:
        pairs = sorted(found.name for found in top.entries() if names.is_pair(found.name))
    for pair in pairs:
        try:
            with files.open_folder(root, pair) as folder:
                rests = sorted(found.name for found in folder.entries() if names.is_rest(found.name))
        except OSError:  # no folder, a link, or removed meanwhile; told by the leftovers
            continue
        yield from ((pair, rest) for rest in rests)


def look_at(root: Path, pair: str, rest: str) -> CacheEntry | None:
    """The entry of a program's folder; None where there is no program in it."""
    try:
        tree = read_tree(root, pair, rest)
    except OSError:
        return None
    program = tree.program
    if program is None:
        return None
    read = read_module(root, pair, rest, program)
    module = read if isinstance(read, Module) else None
    kernels = kernels_of(tree, module)
    return CacheEntry(
        cache=NAME,
        key=names.key_of(pair, rest),
        path=str(root / pair / rest),
        size_bytes=tree.size_bytes,
        created_ns=program.status.st_mtime_ns,
        last_used_ns=tree.accessed_ns,
        program=title(kernels),
        target=f"{NAME}:{module.triple}" if module and module.triple else NAME,
        artifact_kind=_KINDS[program.parts[0]],
        variant=_variant(tree),
        unique=True,  # neither source nor options are stored, so none is another's version
        fields=tuple(fields(tree, module, kernels)),
        damage=Problem(read.kind, read.detail) if isinstance(read, Broken) else None,
        stays=stays(tree),
        handle=Seen(pair, rest, Identity.of(program.status), tree.accessed_ns),
    )


def stays(tree: Tree) -> str:
    """Why a program's folder is not removed, as a clause; empty where all in it is of PoCL's making."""
    strange = (*tree.of(Role.FOREIGN), *tree.of(Role.LINK))
    if strange:
        return f"its folder holds {shown(strange[0].place)}, none of PoCL's; move that elsewhere"
    return "" if tree.complete else "its folder holds more than was looked at; remove it yourself"


def is_own_temporary(top: Folder, name: str) -> bool:
    """Whether a file or folder in the root, called as PoCL calls temporary ones, holds what those hold.

    Names end in six letters, and so do those of people: an empty file, one that begins as a compiled one, a
    kernel's source, and a folder in which all is PoCL's are. Raises OSError.
    """
    status = top.lstat(name)
    if stat.S_ISDIR(status.st_mode):
        with top.folder(name) as folder:
            return not stays(tree_of(folder))
    if not stat.S_ISREG(status.st_mode):
        return False
    try:
        start = files.read_part(top, name, 0, _TEMPORARY_BYTES)
    except FormatError:
        return False
    return not start or start.startswith(_COMPILED) or (name.endswith(".cl") and b"kernel" in start)


def read_module(root: Path, pair: str, rest: str, program: Item) -> Module | Broken | None:
    """What a program says of itself; None for what is no bitcode, or cannot be read now."""
    if program.status.st_size == 0:
        return Broken(FindingKind.TRUNCATED, f"{program.place} is empty")
    if program.parts[0] != names.PROGRAMS[0] or program.status.st_size > READ_LIMIT_BYTES:
        return None
    try:
        return bitcode.read_module(read(root, (pair, rest, *program.parts)))
    except CutError as error:
        return Broken(FindingKind.TRUNCATED, f"{program.place} is cut: {error}")
    except FormatError as error:
        return Broken(FindingKind.CORRUPT, f"{program.place} is damaged: {error}")
    except OSError:
        return None


def read(root: Path, parts: Sequence[str]) -> bytes:
    """A file of the cache; raises OSError, FormatError."""
    with files.open_folder(root, *parts[:-1]) as folder:
        return files.read(folder, parts[-1], READ_LIMIT_BYTES)


def kernels_of(tree: Tree, module: Module | None) -> tuple[str, ...]:
    """Names of the program's kernels: those in its bitcode, else those that were compiled."""
    found = module.kernels if module and module.kernels else map(names.short, tree.kernels)
    return tuple(shown(name) for name in found)


def title(kernels: Sequence[str]) -> str:
    """What people know a program by."""
    if len(kernels) < 2:
        return kernels[0] if kernels else UNNAMED
    return f"{kernels[0]} and {len(kernels) - 1} more"


def fields(tree: Tree, module: Module | None, kernels: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What is known of what a program was made from, by label."""
    for kernel in kernels[:_SHOWN]:
        yield "kernel", kernel
    for variant in tree.variants[:_SHOWN]:
        yield "work-group variant", f"{shown(names.short(variant.kernel))} {variant.words}"
    if module is not None:
        told = ((_LLVM, module.producer.removeprefix(_LLVM)), ("target triple", module.triple))
        yield from ((label, value) for label, value in told if value)


def llvm_of(entry: CacheEntry) -> str:
    """The LLVM that made an entry, such as ``15.0.6``; empty where it is not known."""
    return next((value for label, value in entry.fields if label == _LLVM), "")


def shown(name: str) -> str:
    """A name from the disk or from bitcode as text that is safe to show."""
    return printable(name.encode("utf-8", "surrogatepass"))


def _variant(tree: Tree) -> str:
    sizes = dict.fromkeys(one.local_size or "any" for one in tree.variants)
    return f"local size {', '.join(list(sizes)[:_SHOWN])}" if sizes else ""
