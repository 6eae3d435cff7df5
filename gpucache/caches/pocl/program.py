"""A program in PoCL's cache: the files of its folder by role, and what its bitcode says. Changes nothing."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpucache.answers.entries import FindingKind, Problem
from gpucache.caches.files import Files
from gpucache.caches.pocl import names
from gpucache.caches.pocl.tree import Item, Role, Tree, tree_of
from gpucache.errors import FormatError
from gpucache.payload import bitcode
from gpucache.payload.bitcode import Module
from gpucache.payload.reading import CutError
from gpucache.units import printable

READ_LIMIT_BYTES = 256 << 20
KINDS = {"program.bc": "llvm-bitcode", "program.spv": "spir-v", "program.mlir": "mlir"}
SHOWN = 32
"""Kernels and variants of one program that are listed."""
UNNAMED = "a program without kernels"
_LLVM = "LLVM"


@dataclass(frozen=True, slots=True)
class Program:
    """A program's folder, and its bitcode where that reads."""

    files: Files
    tree: Tree
    module: Module | None = None
    """None for what is no bitcode, or cannot be read now."""
    broken: Problem | None = None
    """Why the program cannot be read by anybody."""

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the program's kernels: those in its bitcode, else those that were compiled."""
        found = (self.module and self.module.kernels) or map(names.short, self.tree.kernels)
        return tuple(printable(name) for name in found)

    @property
    def title(self) -> str:
        """What people know it by."""
        kernels = self.kernels
        if len(kernels) < 2:
            return kernels[0] if kernels else UNNAMED
        return f"{kernels[0]} and {len(kernels) - 1} more"

    @property
    def triple(self) -> str:
        """What it is compiled for; empty where it does not say."""
        return self.module.triple if self.module else ""

    @property
    def llvm(self) -> str:
        """The LLVM that made it, such as ``15.0.6``; empty where it is not known."""
        return self.module.producer.removeprefix(_LLVM) if self.module else ""

    def fields(self) -> Iterator[tuple[str, str]]:
        """What is known of what it was made from, by label."""
        for kernel in self.kernels[:SHOWN]:
            yield "kernel", kernel
        for variant in self.tree.variants[:SHOWN]:
            yield "work-group variant", f"{printable(names.short(variant.kernel))} {variant.words}"
        told = ((_LLVM, self.llvm), ("target triple", self.triple))
        yield from ((label, value) for label, value in told if value)

    def read(self, item: Item) -> bytes:
        """A file of it; raises OSError, FormatError."""
        return self.files.read(item.place, READ_LIMIT_BYTES)


def read_program(item: Files) -> Program:
    """A program as its files were seen, with what its bitcode says now."""
    tree = tree_of(item)
    main = tree.program
    if main is None:
        return Program(item, tree)
    if main.status.st_size == 0:
        return Program(item, tree, broken=Problem(FindingKind.TRUNCATED, f"{main.place} is empty"))
    if main.place != names.PROGRAMS[0] or main.status.st_size > READ_LIMIT_BYTES:
        return Program(item, tree)
    try:
        return Program(item, tree, bitcode.read_module(item.read(main.place, READ_LIMIT_BYTES)))
    except CutError as error:
        broken = Problem(FindingKind.TRUNCATED, f"{main.place} is cut: {error}")
    except FormatError as error:
        broken = Problem(FindingKind.CORRUPT, f"{main.place} is damaged: {error}")
    except OSError:
        return Program(item, tree)
    return Program(item, tree, broken=broken)


def stays(tree: Tree) -> str:
    """Why a program's folder is not removed, as a clause; empty where all in it is of PoCL's making."""
    strange = (*tree.of(Role.FOREIGN), *tree.of(Role.LINK))
    if strange:
        return f"its folder holds {printable(strange[0].place)}, none of PoCL's; move that elsewhere"
    return "" if tree.complete else "its folder holds more than was looked at; remove it yourself"
