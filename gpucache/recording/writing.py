"""Writing a recording: one file for this process, and blobs that all processes share.

A line is one write in append mode, so a process that is killed loses at most the line it was writing. A
failed write costs a line, never a program. Threads may write at the same time.
"""

import errno
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from gpucache.errors import UsageError
from gpucache.host import os_errors
from gpucache.recording.builds import RecordedBuild, Seen
from gpucache.recording.lines import DamagedLineError, build_line, read_line, seen_line

BLOBS = "blobs"
_PRIVATE_FOLDER, _PRIVATE_FILE = 0o700, 0o600


class Writer:
    """The part of a recording that this process writes. ``sources`` says whether blobs are kept."""

    def __init__(self, folder: Path, *, sources: bool = True) -> None:
        """Raises UsageError if the directory cannot be used, or others may read it."""
        self._folder = folder
        self.keeps_sources = sources
        """Whether anything is written but names and digests."""
        self._name = f"{time.time_ns()}-{os.getpid()}-{token_hex(4)}.jsonl"
        self._lock = threading.Lock()
        self._written: dict[str, Seen] = {}
        self._torn = False
        try:
            folder.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
            if os.name == "posix" and folder.stat().st_mode & 0o077:
                raise UsageError(
                    f"a recording contains sources, and others may enter {str(folder)!r}; "
                    f"run chmod 700 on it, or name a new directory with -o"
                )
            if sources:
                (folder / BLOBS).mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
        except OSError as error:
            otherwise = "name another directory with -o"
            raise os_errors.unwritable(repr(str(folder)), error, otherwise, "made a recording") from None

    @property
    def builds(self) -> int:
        """How many builds this process wrote, each once."""
        return len(self._written)

    def build(self, build: RecordedBuild, seen: Seen, contents: Mapping[str, bytes]) -> str:
        """Write a build and its files by their digests; return why not, or nothing if it is written."""
        with self._lock:
            is_known = build.digest in self._written
            line = b"" if is_known else build_line(build, seen)
            try:
                if line:
                    read_line(line)  # a file that could not be read is not written
                blobs = (*(() if is_known else build.blobs()), *seen.blobs())
                for digest in dict.fromkeys(blobs) if self.keeps_sources else ():
                    if digest in contents:
                        self._keep(digest, contents[digest])
                if is_known:
                    return self._add(build.digest, seen)
                self._append(line)
            except DamagedLineError as error:
                return f"it is larger than a recording keeps: {error}"
            except OSError as error:
                return _unwritten(error)
            self._written[build.digest] = seen
            return ""

    def seen(self, digest: str, seen: Seen) -> None:
        """Write the observations of a build that this process wrote."""
        with self._lock:
            if digest in self._written:
                self._add(digest, seen)

    def _add(self, digest: str, seen: Seen) -> str:
        before = self._written[digest]
        now = before.union(seen)
        if now != before:
            try:
                self._append(seen_line(digest, seen))
            except OSError as error:
                return _unwritten(error)
            self._written[digest] = now
        return ""

    def _append(self, line: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._folder / self._name, flags, _PRIVATE_FILE)
        try:
            # Half a line, as on a full disk, costs the line that follows nothing.
            written = os.write(descriptor, b"\n" + line if self._torn else line)
            self._torn = written < len(line)
            if self._torn:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)

    def _keep(self, digest: str, content: bytes) -> None:
        blob = self._folder / BLOBS / digest
        with suppress(OSError):
            if blob.stat().st_size == len(content):
                return
        new = blob.with_name(f".{digest[:16]}-{self._name}")
        try:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _PRIVATE_FILE)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            new.replace(blob)
        finally:
            new.unlink(missing_ok=True)


def _unwritten(error: OSError) -> str:
    return os_errors.unwritable("the recording", error, "name another directory with -o").message
