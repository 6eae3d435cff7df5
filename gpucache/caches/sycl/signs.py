"""Whether a folder is a cache of libsycl, by the names in it: all is numbers, as dates and other hashes are.

Must not read entries.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from gpucache.caches.sycl import naming
from gpucache.caches.sycl.locations import FOLDER, REMEDY
from gpucache.folders import Folder

ROOT_FILES = frozenset({naming.SIZE_FILE, naming.SIZE_LOCK, naming.EVICTION, naming.EVICTION + naming.LOCK})
_TELLING = frozenset({naming.KERNELS, naming.SIZE_FILE})
_SURE = ROOT_FILES | {naming.KERNELS}
_LIKELY_DIGITS = 15
"""From this length on a number is taken for a hash: one hash in 20,000 is shorter, and dates are."""
_LOOKED_AT = 32
"""How many names of a folder are looked at before it counts as none of ours."""
_WAYS_TRIED = 4


def recognises(path: Path) -> bool:
    """Whether a folder holds entries under hashes, or is an empty one of the cache's name. Raises nothing."""
    with suppress(OSError, ValueError):
        if not path.is_dir():
            return False
        first = _names(path)
        if not first:
            return path.name == FOLDER
        return not _TELLING.isdisjoint(first) or _leads_to_entries(path, 0, first, sure=False)
    return False


def foreign(root: Path) -> str:
    """Why a folder is none of libsycl's: it holds other things alone. Raises nothing."""
    with suppress(OSError, ValueError), Folder.at(root) as folder:
        ours = any(_is_ours(folder, item) for item in folder.entries())
        if not ours and _names(root) and not recognises(root):
            return (
                f"this is not a cache of libsycl: {root} has other files and no folder that libsycl "
                f"makes; {REMEDY}"
            )
    return ""


def _is_ours(folder: Folder, item: os.DirEntry[str]) -> bool:
    if item.name in _SURE:
        return True
    if not naming.is_hash(item.name) or not item.is_dir(follow_symlinks=False):
        return False
    if _is_long(item.name):
        return True
    with suppress(OSError), folder.folder(item.name) as inner:
        names = [one.name for one in islice(inner.entries(), _LOOKED_AT)]
        return bool(names) and all(map(naming.is_hash, names)) and any(map(_is_long, names))
    return False


def _is_long(name: str) -> bool:
    return len(name) >= _LIKELY_DIGITS


def _names(path: Path) -> list[str]:
    """The first names in a folder; none where it cannot be read."""
    try:
        with os.scandir(path) as found:
            return [item.name for item in islice(found, _LOOKED_AT)]
    except OSError:
        return []


def _leads_to_entries(path: Path, depth: int, names: Sequence[str], *, sure: bool) -> bool:
    """Whether numbered folders lead to numbered files, one of the numbers at least as long as hashes are."""
    if depth == naming.LEVELS:
        return sure and any(naming.split_file(name) for name in names)
    inner = (path / name for name in islice(filter(naming.is_hash, names), _WAYS_TRIED))
    return any(
        _leads_to_entries(one, depth + 1, _names(one), sure=sure or _is_long(one.name))
        for one in inner
        if one.is_dir() and not one.is_symlink()
    )
