"""What happened to a program's entries: one bounded file of JSON lines per program name.

A line has ``program``, ``when_ns``, ``what``, ``key``, ``target``, ``source`` and ``why``, and ``limit_s`` if
a time limit ended a build. A file of more than 64 KiB is rewritten with its newest events. Losing a history
costs an explanation, never a hit, so nothing here raises OSError. Must not know what reads it.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from gpucache.errors import CacheUnusableError
from gpucache.folders import Folder
from gpucache.store import layout, lines
from gpucache.store.cleanup import bound_histories
from gpucache.store.interface import Event
from gpucache.store.root_folder import RootFolder

EVENT_CAP = 256
"""How many events a history returns at most: the newest."""
FILE_CAP = 64 << 10
"""Bytes above which a history is rewritten, to at most half of it."""
PROGRAM_CAP = 4096
"""How many histories are kept at most: those with the newest last event."""
_TEXT_CAP = 500
_UNUSABLE = (OSError, CacheUnusableError)

_KEY = re.compile(r"[0-9a-f]{64}")


class History:
    """The histories of all programs below one root."""

    def __init__(self, root: RootFolder) -> None:
        self._root = root

    def record(self, program: str, event: Event) -> None:
        """Append an event; texts longer than 500 characters are cut."""
        self.record_all([(program, [event])])

    def record_all(self, events: Iterable[tuple[str, Iterable[Event]]]) -> None:
        """Append the events of several programs, each program's at once."""
        made = False
        with suppress(*_UNUSABLE), self._root.make(*layout.PROGRAMS) as programs:
            for program, own in events:
                with suppress(*_UNUSABLE):
                    made |= self._append(programs, program, own)
        if made:
            bound_histories(self._root, PROGRAM_CAP)

    def _append(self, programs: Folder, program: str, events: Iterable[Event]) -> bool:
        """Append the events of one program; whether its history was made."""
        made = False
        for some in _pieces(_line(program, event) for event in events):
            size = lines.append(programs, layout.history_name(program), some, self._root.file_mode)
            made |= size == len(some)
            if size > FILE_CAP:
                self._shrink(program, programs)
        return made

    def events(self, program: str) -> list[Event]:
        """The newest events, oldest first."""
        try:
            with self._root.open(*layout.PROGRAMS) as programs:
                return _events(programs, program)
        except _UNUSABLE:
            return []

    def programs(self) -> list[str]:
        """The names of the programs that have a history, sorted."""
        names: set[str] = set()
        with suppress(*_UNUSABLE), self._root.open(*layout.PROGRAMS) as programs:
            for found in programs.entries():
                with suppress(OSError):
                    records = lines.last(programs, found.name, 2 * lines.LINE_CAP)
                    names |= {str(record["program"]) for record in records[-1:] if "program" in record}
        return sorted(names)

    def _shrink(self, program: str, programs: Folder) -> None:
        """Rewrite the file with its newest events; one that another process appends meanwhile may be lost."""
        kept: list[bytes] = []
        size = 0
        for event in reversed(_events(programs, program)):
            line = _line(program, event)
            size += len(line)
            if size > FILE_CAP // 2:
                break
            kept.append(line)
        name = f"{os.getpid()}-{os.urandom(8).hex()}.history"
        with self._root.make(*layout.TMP) as tmp:
            try:
                lines.append(tmp, name, b"".join(reversed(kept)), self._root.file_mode)
                tmp.move(name, programs, layout.history_name(program))
            except BaseException:
                with suppress(OSError):
                    tmp.unlink(name)
                raise


def _pieces(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines joined as far as they fit into a history before it is rewritten."""
    joined = b""
    for line in lines:
        if len(joined) + len(line) > FILE_CAP // 2:
            yield joined
            joined = b""
        joined += line
    if joined:
        yield joined


def _line(program: str, event: Event) -> bytes:
    # The longest text comes last, as a field that does not fit into the line is left out.
    record: dict[str, object] = {"program": program, "when_ns": event.when_ns}
    if event.limit_s:
        record["limit_s"] = event.limit_s
    for name in ("what", "key", "target", "source", "why"):
        record[name] = str(getattr(event, name))[:_TEXT_CAP]
    if event.options is not None and sum(map(len, event.options)) <= _TEXT_CAP:
        record["options"] = event.options
    return lines.line_of(record)


def _events(programs: Folder, program: str) -> list[Event]:
    records = lines.last(programs, layout.history_name(program), FILE_CAP + lines.LINE_CAP)
    events = (_event(record, program) for record in records if record.get("program") == program)
    return [event for event in events if event is not None][-EVENT_CAP:]


def _event(record: dict[str, object], program: str) -> Event | None:
    when_ns, limit_s, options = record.get("when_ns"), record.get("limit_s", 0.0), record.get("options")
    texts = [record.get(name, "") for name in ("what", "key", "target", "why", "source")]
    if {*map(type, texts)} != {str} or not isinstance(when_ns, int) or not isinstance(limit_s, int | float):
        return None
    what, key, target, why, source = map(str, texts)
    if key and not _KEY.fullmatch(key):
        return None
    told = None
    if isinstance(options, list) and all(isinstance(option, str) for option in options):
        told = tuple(options)
    return Event(when_ns, what, key, target, why, source, told, limit_s, program)
