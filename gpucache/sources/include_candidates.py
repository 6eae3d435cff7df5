"""Files below a directory that an include through a macro may mean.

If the possible names are known, these are the files that match one; else all files whose names can be made of
the macro's words. Links are followed, as a compiler follows them, but not into a folder that contains the
link. If a name may hold ``..``, the folders above the directory are searched as well.
"""

# Paths are bytes, as names in sources are, and pathlib holds text only.
# ruff: noqa: PTH118

import os
import re
from collections.abc import Iterable, Iterator

from gpucache.errors import SourceError
from gpucache.sources.disk import Disk, Look
from gpucache.sources.expansion import Pattern
from gpucache.sources.macro_words import MacroWords

_FIXED = {b"": b"", rb"\.": b"", rb"\.[ \t]*\.": b".."}
"""Parts of a path that name no file: the patterns of ``.`` and ``..``, and nothing between two slashes."""
_NO_HEADERS = (b"/proc", b"/sys", b"/dev")


def reachable_files(disk: Disk, root: bytes, words: MacroWords, *, entries: int) -> Iterator[bytes]:
    """Paths of files made of some words, relative to ``root``, depth first, sorted.

    Raises SourceError after looking at ``entries`` names, or for a folder that may not be listed.
    """
    left = entries
    outside = tuple(map(disk.look, _NO_HEADERS))
    pending: list[tuple[bytes, tuple[Look, ...]]] = [(b"", outside)]
    while pending:
        below, ancestors = pending.pop()
        names = _listed(disk, os.path.join(root, below))
        folder = disk.look(os.path.join(root, below))
        if folder.kind != "folder" or folder in ancestors:
            continue
        left -= len(names)
        if left < 0:
            raise SourceError(f"holds more than {entries} files and folders")
        folders = [os.path.join(below, b"..")] if words.upward else []
        for name in filter(words.allows, names):
            path = os.path.join(below, name)
            kind = disk.look(os.path.join(root, path)).kind
            if kind == "folder":
                folders.append(path)
            elif kind == "file":
                yield path
        pending.extend((deeper, (*ancestors, folder)) for deeper in reversed(folders))


def matching_files(disk: Disk, root: bytes, patterns: Iterable[Pattern], *, entries: int) -> Iterator[bytes]:
    """Paths of files that match a pattern, relative to ``root``, each once; raises as ``reachable_files``."""
    left = entries
    pending: dict[bytes, set[Pattern]] = {b"": {*patterns}}
    while pending:
        below, wanted = pending.popitem()
        steps: dict[bytes, set[Pattern]] = {}
        for pattern in wanted:
            steps.setdefault(pattern[0], set()).add(pattern[1:])
        names: list[bytes] = []
        if not steps.keys() <= _FIXED.keys():
            names = _listed(disk, os.path.join(root, below))
            left -= len(names)
            if left < 0:
                raise SourceError(f"holds more than {entries} files and folders")
        for step, others in steps.items():
            for name in [_FIXED[step]] if step in _FIXED else filter(re.compile(step).fullmatch, names):
                path = os.path.join(below, name) if name else below
                if () in others and disk.look(os.path.join(root, path)).kind == "file":
                    yield path
                if deeper := others - {()}:
                    pending.setdefault(path, set()).update(deeper)


def _listed(disk: Disk, folder: bytes) -> list[bytes]:
    try:
        return disk.names(folder)
    except OSError as error:
        raise SourceError(f"cannot be listed: {error.strerror}") from None
