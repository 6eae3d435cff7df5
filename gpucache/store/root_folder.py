"""The root of a cache and the folders in it: opened without following links, made when first needed.

Owns the root's creation, its modes and its CACHEDIR.TAG. Must not know what entries, histories or locks say.
"""

import os
from pathlib import Path

from gpucache.errors import CacheUnusableError
from gpucache.folders import Folder
from gpucache.store import layout
from gpucache.store.trust import open_root


class RootFolder:
    """One root, with the modes of the folders and files that are made in it.

    A private root has 0700 and 0600. A shared one, which other users read, has 0755 and 0644 and no
    CACHEDIR.TAG, which would make archivers leave it out of images.
    """

    def __init__(self, root: Path, *, shared: bool) -> None:
        self.path = root
        self.shared = shared
        self.folder_mode, self.file_mode = (0o755, 0o644) if shared else (0o700, 0o600)

    def open(self, *parts: str) -> Folder:
        """A folder below the root; raises CacheUnusableError for the root, OSError for the rest."""
        folder = open_root(self.path)
        for name in parts:  # step by step: what opens a folder in one takes longer to import than this
            with folder as outer:
                folder = outer.folder(name)
        return folder

    def make(self, *parts: str) -> Folder:
        """A folder below the root, made if missing; raises CacheUnusableError for the root, else OSError."""
        try:
            if parts:  # a root that holds a folder has been made
                return self.open(*parts)
        except FileNotFoundError:
            pass
        folder = self._make_root()
        for name in parts:
            with folder as outer:
                folder = outer.make(name, self.folder_mode)
        return folder

    def _make_root(self) -> Folder:
        try:
            folder = open_root(self.path)
        except FileNotFoundError:
            self._make_path(self.path)
            folder = open_root(self.path)
        try:
            # Only in an empty folder: the tag makes backups leave out everything in it.
            if not self.shared and not any(True for _ in folder.entries()):
                self._write_tag(folder)
        except BaseException:
            folder.close()
            raise
        return folder

    def _make_path(self, path: Path) -> None:
        if path.is_symlink():
            raise CacheUnusableError(f"the cache root {self.path} is a link to nothing; remove the link")
        if not path.parent.is_dir():
            self._make_path(path.parent)
        try:
            path.mkdir(self.folder_mode)
        except FileExistsError:
            return
        path.chmod(self.folder_mode)

    def _write_tag(self, folder: Folder) -> None:
        try:
            fd = folder.open_for_writing(layout.TAG_NAME, os.O_WRONLY | os.O_EXCL, self.file_mode)
        except FileExistsError:
            return
        try:
            os.write(fd, layout.TAG_TEXT)
        finally:
            os.close(fd)
