"""A program's folder as it lies: every file with what it is by its place and name.

Pure; must not read a file.
"""

import os
import stat
from dataclasses import dataclass
from enum import Enum, auto

from gpucache.caches import files
from gpucache.caches.files import HERE, Files, Identity, allocated_bytes
from gpucache.caches.layout import is_copy
from gpucache.caches.pocl import names
from gpucache.caches.pocl.names import Variant
from gpucache.folders import Folder

_VARIANT_DEPTH = 2
_JIT, _LIBRARY = ".o", ".so"


class Role(Enum):
    """What something in a program's folder is."""

    PROGRAM = auto()
    LOG = auto()
    ACCESSED = auto()
    FOLDER = auto()
    BINARY = auto()
    """A kernel's machine code, as ELF."""
    INTERMEDIATE = auto()
    """Kept by ``POCL_LEAVE_KERNEL_COMPILER_TEMP_FILES=1``, read by nobody."""
    DEVICE = auto()
    """What devices other than the CPU keep of a kernel."""
    TEMPORARY = auto()
    FOREIGN = auto()
    LINK = auto()


@dataclass(frozen=True, slots=True)
class Item:
    """A file, folder or link: its place below the program's folder, what it is, and its status."""

    parts: tuple[str, ...]
    role: Role
    status: os.stat_result

    @property
    def place(self) -> str:
        """Where it lies, as text."""
        return "/".join(self.parts)


@dataclass(frozen=True, slots=True)
class Tree:
    """A program's folder: its status and everything in it, in the order of names."""

    status: os.stat_result
    items: tuple[Item, ...]
    complete: bool

    def of(self, role: Role) -> tuple[Item, ...]:
        """Everything that is this."""
        return tuple(item for item in self.items if item.role is role)

    @property
    def program(self) -> Item | None:
        """The program itself, in the form that PoCL takes first."""
        found = {item.parts[0]: item for item in self.of(Role.PROGRAM)}
        return next((found[name] for name in names.PROGRAMS if name in found), None)

    @property
    def accessed_ns(self) -> int:
        """When PoCL last built it or found it built."""
        marks = self.of(Role.ACCESSED)
        return (marks[0].status if marks else self.status).st_mtime_ns

    @property
    def identity(self) -> tuple[Identity | None, int]:
        """What tells whether PoCL built it anew or found it built since."""
        program = self.program
        return (Identity.of(program.status) if program else None), self.accessed_ns

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels' folders, as they were clipped."""
        return tuple(
            item.parts[0] for item in self.items if item.role is Role.FOLDER and len(item.parts) == 1
        )

    @property
    def variants(self) -> tuple[Variant, ...]:
        """What kernels were compiled for."""
        binaries = (*self.of(Role.BINARY), *self.of(Role.DEVICE))
        found = (
            names.variant_of(*item.parts[:2]) for item in binaries if len(item.parts) == _VARIANT_DEPTH + 1
        )
        return tuple(dict.fromkeys(variant for variant in found if variant))

    @property
    def size_bytes(self) -> int:
        """What its files take on disk."""
        held = (item for item in self.items if not stat.S_ISDIR(item.status.st_mode))
        return sum(allocated_bytes(item.status) for item in held)


def tree_of(item: Files) -> Tree:
    """What the files of a program's folder are; what lies below somebody else's folder is not looked at."""
    folders: set[tuple[str, ...]] = {()}
    items = []
    for name, status in item.seen.items():
        parts = tuple(name.split("/"))
        if name == HERE or parts[:-1] not in folders:
            continue
        # What is mounted there is somebody else's, whatever it is called.
        role = _role(parts, status) if status.st_dev == item.seen[HERE].st_dev else Role.FOREIGN
        items.append(Item(parts, role, status))
        if role is Role.FOLDER:
            folders.add(parts)
    return Tree(item.seen[HERE], tuple(items), item.complete)


def read_tree(folder: Folder) -> Tree:
    """What is in a program's open folder now; raises OSError."""
    return tree_of(files.tree(folder, folder.path, (), ""))


def _role(parts: tuple[str, ...], status: os.stat_result) -> Role:
    if stat.S_ISLNK(status.st_mode):
        return Role.LINK
    if is_copy(parts[-1]):
        return Role.FOREIGN
    if stat.S_ISDIR(status.st_mode):
        return Role.FOLDER if _is_folder(parts) else Role.FOREIGN
    if not stat.S_ISREG(status.st_mode):
        return Role.FOREIGN
    if names.is_temporary(parts[-1]):
        return Role.TEMPORARY
    return _of_file(parts)


def _of_file(parts: tuple[str, ...]) -> Role:
    return (_of_program, _of_kernel, _of_variant)[len(parts) - 1](parts)


def is_named_by_pocl(parts: tuple[str, ...]) -> bool:
    """Whether a place in a program's folder is one that no other name than PoCL's leads to.

    A kernel's folder may be called anything.
    """
    if len(parts) == _VARIANT_DEPTH and names.variant_of(*parts) is not None:
        return True
    return len(parts) <= _VARIANT_DEPTH + 1 and _of_file(parts) is not Role.FOREIGN


def _is_folder(parts: tuple[str, ...]) -> bool:
    if len(parts) == 1:
        return True
    return len(parts) == _VARIANT_DEPTH and names.variant_of(*parts) is not None


def _of_program(parts: tuple[str, ...]) -> Role:
    known = {names.LOG: Role.LOG, names.ACCESSED: Role.ACCESSED}
    return Role.PROGRAM if parts[0] in names.PROGRAMS else known.get(parts[0], Role.FOREIGN)


def _of_kernel(parts: tuple[str, ...]) -> Role:
    return Role.DEVICE if parts[-1].startswith("descriptor.") else Role.FOREIGN


def _of_variant(parts: tuple[str, ...]) -> Role:
    kernel, _, name = parts
    if name in (kernel + _LIBRARY, kernel + _JIT):
        return Role.BINARY
    if name in (names.PARALLEL, f"{kernel}{_LIBRARY}.o"):
        return Role.INTERMEDIATE
    ours = name.startswith((f"{names.PARALLEL}.", f"{kernel}."))
    return Role.DEVICE if ours else Role.FOREIGN
