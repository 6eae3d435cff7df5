"""Source-like files below a directory, for includes through macros that no text can follow.

Source-like are the suffixes below and names without any suffix (``<cuda/std/version>``). Folders whose
name begins with a dot are skipped. Links are followed, as a compiler follows them; a folder inside
itself is not.
"""

# Paths are bytes, as names in sources are, and pathlib holds text only.
# ruff: noqa: PTH112, PTH113, PTH116, PTH118, PTH122, PTH208

import os
from collections.abc import Iterator

from gpucache.errors import SourceError

SUFFIXES = frozenset(
    [b"", *b".h .hpp .hh .hxx .cuh .cl .clh .inc .inl .ipp .tpp .cu .c .cc .cpp .def".split()]
)


def source_like_files(root: bytes, *, entries: int) -> Iterator[bytes]:
    """Paths relative to ``root``, depth first, sorted; nothing where there is no such folder.

    Raises SourceError after looking at ``entries`` files and folders, or for a folder it may not list.
    """
    left = entries
    pending: list[tuple[bytes, tuple[tuple[int, int], ...]]] = [(b"", ())]
    while pending:
        below, ancestors = pending.pop()
        try:
            status = os.stat(os.path.join(root, below))
            names = sorted(os.listdir(os.path.join(root, below)))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise SourceError(f"cannot be listed: {error.strerror}") from None
        identity = (status.st_dev, status.st_ino)
        if identity in ancestors:
            continue
        left -= len(names)
        if left < 0:
            raise SourceError(f"holds more than {entries} files and folders")
        folders = []
        for name in names:
            path = os.path.join(below, name)
            if os.path.isdir(os.path.join(root, path)):
                if not name.startswith(b"."):
                    folders.append((path, (*ancestors, identity)))
            elif os.path.splitext(name)[1] in SUFFIXES and os.path.isfile(os.path.join(root, path)):
                yield path
        pending.extend(reversed(folders))
