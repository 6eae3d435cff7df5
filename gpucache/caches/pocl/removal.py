"""Taking programs and leftovers out of a cache that other processes use without locks.

A program's folder is renamed into the root first, so that PoCL sees it whole or not at all, and deleted
there: its own files one by one, as what somebody else put beside them stays. What is removed is within the
root: no link is followed. Every function raises OSError.
"""

import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gpucache.caches import files
from gpucache.caches.files import Identity
from gpucache.caches.pocl import names
from gpucache.caches.pocl.program import stays
from gpucache.caches.pocl.tree import Item, Tree, read_tree
from gpucache.errors import FormatError
from gpucache.folders import Folder

_TEMPORARY_BYTES = 64 << 10
_TEMPORARY_MODE = 0o600
_FUNCTION = re.compile(rb"\bvoid\s+\w+\s*\(")
"""How the heads of kernels go on, as they return nothing, whatever word stands in front."""
_MADE = (
    b"\x7fELF", b"BC\xc0\xde", b"\xde\xc0\x17\x0b", b"\x03\x02\x23\x07", b"ML\xefR", b"#define __llvm__ 1\n",
)  # fmt: skip
"""How machine code, LLVM bitcode with and without a wrapper, SPIR-V, MLIR and Clang's macros, which stand in
front of a preprocessed source, begin."""


def is_own_temporary(top: Folder, name: str) -> bool:
    """Whether a file or folder in the root, called as PoCL calls temporary ones, holds what those hold.

    Names end in six letters, and so do those of people: an empty file, one that begins as a compiled or a
    preprocessed one, a kernel's source, and a folder in which all is PoCL's are. A source may take the word
    for a kernel from a header; then it has a function's head, and the mode that PoCL gives a temporary file.
    Raises OSError.
    """
    status = top.lstat(name)
    if stat.S_ISDIR(status.st_mode):
        with top.folder(name) as folder:
            return not stays(read_tree(folder))
    if not stat.S_ISREG(status.st_mode):
        return False
    try:
        start = files.read_part(top, name, 0, _TEMPORARY_BYTES)
    except FormatError:
        return False
    if not start or start.startswith(_MADE):
        return True
    private = stat.S_IMODE(status.st_mode) == _TEMPORARY_MODE
    return name.endswith(".cl") and (b"kernel" in start or (private and bool(_FUNCTION.search(start))))


def remove_program(root: Path, pair: str, rest: str) -> str:
    """Remove a program's folder; why it stays, as a clause, where it holds what is none of PoCL's.

    What cannot be deleted after the rename is left as temporary.
    """
    new_name = names.removed_name()
    with files.open_folder(root) as top, top.folder(pair) as group:
        if not stat.S_ISDIR(group.lstat(rest).st_mode):
            raise NotADirectoryError(f"{root / pair / rest} is not a folder")
        group.move(rest, top, new_name)
        why = _delete(top, new_name)
        if why:  # it came between the look and the rename
            top.move(new_name, group, rest)
        return why


def remove_place(root: Path, parts: Sequence[str]) -> bool:
    """Remove a program's folder, or a temporary file or folder directly in the root; whether it went."""
    if len(parts) == 2:
        return not remove_program(root, parts[0], parts[1])
    with files.open_folder(root) as top:
        if not is_own_temporary(top, parts[0]):
            return False
        if stat.S_ISDIR(top.lstat(parts[0]).st_mode):
            return not _delete(top, parts[0])
        top.unlink(parts[0])
        return True


def remove_item(root: Path, program: Sequence[str], item: Item) -> bool:
    """Remove one file or link of a program; False where it is another one by now."""
    with files.open_folder(root, *program, *item.parts[:-1]) as folder:
        if Identity.of(folder.lstat(item.parts[-1])) != Identity.of(item.status):
            return False
        folder.unlink(item.parts[-1])
    return True


def remove_empty(root: Path, pair: str) -> bool:
    """Remove the folder that programs of two letters lie in; False where there still are some."""
    try:
        with files.open_folder(root) as top:
            top.rmdir(pair)
    except OSError:
        return False
    return True


def _delete(above: Folder, name: str) -> str:
    """Delete a folder of PoCL's, best effort; why it stays whole where it holds what is none of PoCL's."""
    with above.folder(name) as folder:
        tree = read_tree(folder)
        why = stays(tree)
        if why:
            return why
        with suppress(OSError):
            _empty(folder, tree)
    with suppress(OSError):
        above.rmdir(name)
    return ""


def _empty(folder: Folder, tree: Tree) -> None:
    """Delete what was listed; folders after what is in them, as they come first in a tree."""
    for item in reversed(tree.items):
        place = folder
        for part in item.parts[:-1]:
            inner = place.folder(part)
            if place is not folder:
                place.close()
            place = inner
        try:
            if stat.S_ISDIR(item.status.st_mode):
                place.rmdir(item.parts[-1])
            else:
                place.unlink(item.parts[-1])
        finally:
            if place is not folder:
                place.close()
