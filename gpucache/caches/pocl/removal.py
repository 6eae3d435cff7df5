"""Taking programs and leftovers out of a cache that other processes use without locks.

A program's folder is renamed into the root first, so that PoCL sees it whole or not at all, and deleted
there: its own files one by one, as what somebody else put beside them stays. What is removed is within the
root: no link is followed. Every function raises OSError.
"""

import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gpucache.caches import files
from gpucache.caches.files import Identity
from gpucache.caches.pocl import entries, names
from gpucache.caches.pocl.tree import Item, Tree, tree_of
from gpucache.folders import Folder


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
        if not entries.is_own_temporary(top, parts[0]):
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
        tree = tree_of(folder)
        why = entries.stays(tree)
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
