"""The journal of misses: one JSON line each, in two generations of 1 MiB.

Lines are appended to ``journal/misses.jsonl``. When that is larger than its cap, it replaces
``journal/misses.1.jsonl``. Losing a line is no error, so nothing here raises OSError. Must not know what a
record says.
"""

from collections.abc import Mapping
from contextlib import suppress

from gpucache.errors import CacheUnusableError
from gpucache.store import layout, lines
from gpucache.store.root_folder import RootFolder

GENERATION_CAP = 1 << 20
"""Bytes above which the journal is rotated."""
NAME = "misses.jsonl"
OLDER_NAME = "misses.1.jsonl"
_UNUSABLE = (OSError, CacheUnusableError)


class Journal:
    """The journal below one root."""

    def __init__(self, root: RootFolder) -> None:
        self._root = root

    def record(self, record: Mapping[str, object]) -> None:
        """Append one line of at most 4 KiB."""
        line = lines.line_of(record)
        with suppress(*_UNUSABLE), self._root.make(*layout.JOURNAL) as folder:
            size = lines.append(folder, NAME, line, self._root.file_mode)
            # Looked at again by its name: another process may have rotated it already.
            if size > GENERATION_CAP and folder.lstat(NAME).st_size > GENERATION_CAP:
                folder.move(NAME, folder, OLDER_NAME)

    def tail(self, count: int) -> list[dict[str, object]]:
        """The last ``count`` records, newest first."""
        limit_bytes = min(count * lines.LINE_CAP, GENERATION_CAP + lines.LINE_CAP)
        records: list[dict[str, object]] = []
        with suppress(*_UNUSABLE), self._root.open(*layout.JOURNAL) as folder:
            for name in (NAME, OLDER_NAME):
                if len(records) < count:
                    with suppress(OSError):
                        records += reversed(lines.last(folder, name, limit_bytes))
        return records[:count]
