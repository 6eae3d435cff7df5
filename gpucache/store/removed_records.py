"""Which programs' histories were removed, when and why, so that nobody says that they were never built.

One JSON line for some hundred programs, in two generations of 64 KiB. When the older one goes, a line says
until when any may have been removed. Losing a line costs an explanation, so nothing here raises OSError. Must
not know when a history is removed.
"""

from collections.abc import Sequence
from contextlib import suppress

from gpucache.errors import CacheUnusableError
from gpucache.folders import Folder
from gpucache.store import layout, lines
from gpucache.store.interface import RemovedRecord
from gpucache.store.root_folder import RootFolder

GENERATION_CAP = 64 << 10
"""Bytes above which a generation replaces the older one."""
_PROGRAMS_A_LINE = 300
_UNUSABLE = (OSError, CacheUnusableError)


class RemovedRecords:
    """The programs of one root whose histories were removed."""

    def __init__(self, root: RootFolder) -> None:
        self._root = root

    def note(self, histories: Sequence[str], when_ns: int, why: str) -> None:
        """Keep that the histories of these file names are removed; ``why`` is the rule of an eviction
        that took all entries along, and empty where there were too many histories."""
        digests = [layout.program_digest(name) for name in histories]
        with suppress(*_UNUSABLE), self._root.make(layout.VERSION_FOLDER) as folder:
            for start in range(0, len(digests), _PROGRAMS_A_LINE):
                some = digests[start : start + _PROGRAMS_A_LINE]
                self._append(folder, {"when_ns": when_ns, "why": why, "programs": some})

    def of(self, program: str) -> RemovedRecord | None:
        """When a program's history was last removed, as far as that is known; None if it never was."""
        digest = layout.program_digest(layout.history_name(program))
        found = None
        with suppress(*_UNUSABLE), self._root.open(layout.VERSION_FOLDER) as folder:
            for name in (layout.REMOVED_OLDER_NAME, layout.REMOVED_NAME):
                with suppress(OSError):
                    for line in lines.last(folder, name, GENERATION_CAP + lines.LINE_CAP):
                        record = _record(line, digest)
                        if record is not None and (record.named or found is None):
                            found = record
        return found

    def _append(self, folder: Folder, record: dict[str, object]) -> None:
        line = lines.line_of(record)
        size = lines.append(folder, layout.REMOVED_NAME, line, self._root.file_mode)
        if size <= GENERATION_CAP:
            return
        with suppress(FileNotFoundError):
            folder.lstat(layout.REMOVED_OLDER_NAME)
            unnamed = lines.line_of({"when_ns": record["when_ns"], "why": "", "programs": None})
            lines.append(folder, layout.REMOVED_NAME, unnamed, self._root.file_mode)
        folder.move(layout.REMOVED_NAME, folder, layout.REMOVED_OLDER_NAME)


def _record(line: dict[str, object], digest: str) -> RemovedRecord | None:
    """What a line says of a program; None if nothing."""
    when_ns, why, programs = line.get("when_ns"), line.get("why"), line.get("programs")
    if not isinstance(when_ns, int) or not isinstance(why, str):
        return None
    if programs is None:
        return RemovedRecord(when_ns, why, named=False)
    named = isinstance(programs, list) and digest in programs
    return RemovedRecord(when_ns, why) if named else None
