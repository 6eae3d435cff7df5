"""Taking programs and leftovers out of a cache that other processes use without locks.

A program's folder is renamed into the root first, so that PoCL sees it whole or not at all, and deleted
there. What is removed is within the root: no link is followed. Every function raises OSError.
"""

import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

from gpucache.caches import files
from gpucache.caches.files import Identity
from gpucache.caches.pocl import names
from gpucache.caches.pocl.tree import Item


def remove_program(root: Path, pair: str, rest: str) -> None:
    """Remove a program's folder; what cannot be deleted after the rename is left as temporary."""
    new_name = names.removed_name()
    with files.open_folder(root) as top, top.folder(pair) as group:
        if not stat.S_ISDIR(group.lstat(rest).st_mode):
            raise NotADirectoryError(f"{root / pair / rest} is not a folder")
        group.move(rest, top, new_name)
    shutil.rmtree(root / new_name, ignore_errors=True)


def remove_place(root: Path, parts: Sequence[str]) -> None:
    """Remove a temporary file or folder directly in the root, or a program's folder."""
    if len(parts) == 2:
        remove_program(root, parts[0], parts[1])
        return
    with files.open_folder(root) as top:
        if not stat.S_ISDIR(top.lstat(parts[0]).st_mode):
            top.unlink(parts[0])
            return
    shutil.rmtree(root / parts[0])


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
        (root / pair).rmdir()  # takes no link, and nothing that holds something
    except OSError:
        return False
    return True
