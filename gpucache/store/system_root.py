"""Why a root that another user filled (``GPUCACHE_SYSTEM_DIRS``) cannot be read, and the remedy.

Checks the root, the directories below it and one entry, as a copied tree rarely has the same mode
everywhere. Must not know the content of the entries.
"""

import errno
import os
import stat
from contextlib import ExitStack
from pathlib import Path

from gpucache.folders import Folder
from gpucache.store import layout
from gpucache.store.interface import RefusedRoot
from gpucache.store.trust import UntrustedFileError, distrust, open_trusted, owner_is_trusted

_CORRECT = "correct GPUCACHE_SYSTEM_DIRS"


def refused_root(path: Path) -> RefusedRoot | None:
    """Why a system root cannot be read; None if it can. Raises nothing."""
    at = path
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(Folder.at(path))
            problem = _distrusted(path, os.lstat(path), folder.status())
            if problem is not None:
                return problem
            for name in layout.ENTRIES:
                at = at / name
                folder = stack.enter_context(folder.folder(name))
            group = next(
                (found.name for found in folder.entries() if found.is_dir(follow_symlinks=False)), ""
            )
            if group:
                at = at / group
                folder = stack.enter_context(folder.folder(group))
                _read_one(folder)
        except FileNotFoundError:
            # A root without these directories is an empty cache.
            return RefusedRoot(path, "it does not exist", _CORRECT) if at == path else None
        except NotADirectoryError:
            return RefusedRoot(path, f"{'it' if at == path else at} is not a directory", _CORRECT)
        except UntrustedFileError as error:
            return RefusedRoot(
                path, f"{at} contains an entry that is not trusted: {error.strerror}", _give(path)
            )
        except OSError as error:
            return _unreadable(path, at, error)
    return None


def _read_one(folder: Folder) -> None:
    for found in folder.entries():
        if found.name.endswith(layout.ENTRY_SUFFIX):
            with open_trusted(folder, found.name):
                return


def _distrusted(path: Path, link: os.stat_result, status: os.stat_result) -> RefusedRoot | None:
    if stat.S_ISLNK(link.st_mode) and not owner_is_trusted(link):
        return RefusedRoot(path, f"it is a link of uid {link.st_uid}", f"run 'chown -h root {path}'")
    reason = distrust(status)
    if reason is None:
        return None
    return RefusedRoot(
        path, reason, f"run 'chmod -R go-w {path}'" if owner_is_trusted(status) else _give(path)
    )


def _give(path: Path) -> str:
    return f"only files of root and your own are trusted: run 'chown -R root {path}' if you trust its files"


def _unreadable(path: Path, at: Path, error: OSError) -> RefusedRoot:
    """Why a path could not be opened, with a remedy that depends on its owner and mode."""
    if error.errno not in (errno.EACCES, errno.EPERM):
        return RefusedRoot(path, f"{at} cannot be read ({error.strerror or error})", _CORRECT)
    try:
        status = os.lstat(at)
    except OSError:
        return RefusedRoot(
            path,
            "this user may not pass through a directory above it",
            "run 'chmod o+x' on the directories above it",
        )
    mode, owner = stat.S_IMODE(status.st_mode), status.st_uid
    return RefusedRoot(
        path,
        f"{'it' if at == path else at} is closed to this user (mode {mode:04o}, of uid {owner})",
        f"fill it with 'gpucache warm --shared', or run 'chmod -R go+rX {path}'",
    )
