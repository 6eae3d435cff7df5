"""Files below a directory that an include through a macro may lead to, by the words of their paths.

Links are followed, as a compiler follows them; a folder inside itself is not. Where a name may hold
``..``, what lies above a directory is looked through as well.
"""

# Paths are bytes, as names in sources are, and pathlib holds text only.
# ruff: noqa: PTH112, PTH113, PTH116, PTH118, PTH208

import os
from collections.abc import Iterator

from gpucache.errors import SourceError
from gpucache.sources.vocabulary import Vocabulary

_NO_HEADERS = (b"/proc", b"/sys", b"/dev")


def reachable_files(root: bytes, words: Vocabulary, *, entries: int) -> Iterator[bytes]:
    """Paths relative to ``root``, depth first, sorted; nothing where there is no such folder.

    Raises SourceError after looking at ``entries`` names, or for a folder it may not list.
    """
    left = entries
    outside = tuple(identity for path in _NO_HEADERS if (identity := _identity(path)))
    pending: list[tuple[bytes, tuple[tuple[int, int], ...]]] = [(b"", outside)]
    while pending:
        below, ancestors = pending.pop()
        try:
            names = sorted(os.listdir(os.path.join(root, below)))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise SourceError(f"cannot be listed: {error.strerror}") from None
        identity = _identity(os.path.join(root, below))
        if identity is None or identity in ancestors:
            continue
        left -= len(names)
        if left < 0:
            raise SourceError(f"holds more than {entries} files and folders")
        folders = [os.path.join(below, b"..")] if words.upward else []
        for name in filter(words.allows, names):
            path = os.path.join(below, name)
            if os.path.isdir(os.path.join(root, path)):
                folders.append(path)
            elif os.path.isfile(os.path.join(root, path)):
                yield path
        pending.extend((folder, (*ancestors, identity)) for folder in reversed(folders))


def _identity(path: bytes) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
