"""How an entry is put in place: written to ``tmp/``, synced and renamed, so that nobody sees half of it.

Must not know what an entry says, nor who wants it.
"""

import os
from contextlib import suppress

from gpucache.folders import Folder
from gpucache.model import Entry
from gpucache.store import layout
from gpucache.store.format import encode
from gpucache.store.root_folder import RootFolder


def publish(root: RootFolder, entry: Entry) -> int:
    """Put an entry in place and return its size in bytes; raises OSError, CacheUnusableError.

    A failure leaves nothing in ``tmp/``; a writer that is killed leaves one file there.
    """
    data = encode(entry)
    name = layout.entry_name(entry.key)
    partial = f"{os.getpid()}-{os.urandom(8).hex()}-{name}"
    with root.make(*layout.entry_folder(entry.key)) as folder, root.make(*layout.TMP) as tmp:
        try:
            _write(tmp, partial, data, entry.head.created_ns, root.file_mode)
            tmp.move(partial, folder, name)
        except BaseException:
            with suppress(OSError):
                tmp.unlink(partial)
            raise
        folder.sync()
    return len(data)


def _write(tmp: Folder, name: str, data: bytes, created_ns: int, mode: int) -> None:
    fd = tmp.open_for_writing(name, os.O_WRONLY | os.O_EXCL, mode)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        # The mtime is the last use, which for a new entry is its creation.
        if os.utime in os.supports_fd:
            os.utime(fd, ns=(created_ns, created_ns))
        os.fsync(fd)
    finally:
        os.close(fd)
