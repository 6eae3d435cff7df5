"""Entries that were read whole and found sound, by the stamps of their files: push and pull read them once.

A stamp represents a content only if the file was older than two seconds, on a file system as
``host.file_stamps`` says. Losing them costs reading entries again. Must not know the content of files.
"""

import os
import time
from collections.abc import Mapping
from itertools import islice
from typing import Protocol

Seen = Mapping[str, os.stat_result]
"""The statuses of all files of an entry by their names, links not followed."""
_MOST = 60_000
_STAMP_BYTES, _DIGEST_BYTES = 16, 32
_YOUNG_NS = 2 * 10**9
_NO_DIGEST = bytes(_DIGEST_BYTES)


class Memory(Protocol):
    """The memos that keep them between processes; losing one is no error."""

    def recall(self, name: str, *, use: bool) -> bytes | None: ...

    def remember(self, name: str, data: bytes) -> None: ...


class Sound:
    """The sound entries of one cache, with the digests of their records if they are known."""

    def __init__(self, memory: Memory | None = None, root: str = "") -> None:
        self._memory, self._root = memory, root
        self._name = _digest(f"sound entries\0{root}").hex() * 2 if memory else ""
        data = (memory and memory.recall(self._name, use=True)) or b""
        each = _STAMP_BYTES + _DIGEST_BYTES
        pieces = (data[start : start + each] for start in range(0, len(data), each))
        self._known = {one[:_STAMP_BYTES]: one[_STAMP_BYTES:] for one in pieces}
        self._now: dict[bytes, bytes] = {}

    def digest(self, key: str, seen: Seen) -> str | None:
        """The digest of an entry in hex, empty if it is not known; None if it has to be read."""
        stamp = _stamp(key, seen)
        found = self._now.get(stamp) or self._known.get(stamp)
        if found is None:
            return None
        self._now[stamp] = found
        return "" if found == _NO_DIGEST else found.hex()

    def note(self, key: str, seen: Seen, digest: str = "") -> None:
        """Remember an entry that was read and found sound since it was seen so."""
        from gpucache.host.file_stamps import shows_changes

        until_ns = time.time_ns() - _YOUNG_NS
        old = (max(one.st_mtime_ns, one.st_ctime_ns) < until_ns for one in seen.values())
        local = (shows_changes(self._root, one) for one in seen.values())
        if self._memory and seen and all(old) and all(local):
            self._now[_stamp(key, seen)] = bytes.fromhex(digest) or _NO_DIGEST

    def keep(self) -> None:
        """Write them, those of this process first."""
        if self._memory and self._now.items() - self._known.items():
            every = self._now | {stamp: one for stamp, one in self._known.items() if stamp not in self._now}
            self._memory.remember(self._name, b"".join(map(b"".join, islice(every.items(), _MOST))))


def _stamp(key: str, seen: Seen) -> bytes:
    from gpucache.host.file_stamps import stamp_of

    return _digest(f"{key}\0{sorted((name, stamp_of(status)) for name, status in seen.items())}")


def _digest(text: str) -> bytes:
    import xxhash  # most verbs on a cache do without it

    return xxhash.xxh3_128_digest(text.encode("utf-8", "surrogatepass"))
