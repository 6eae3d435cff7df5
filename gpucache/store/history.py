"""The events of a program's entries: in the log of a small cache, in one for each further program name, and
one log of removed logs.

A line has ``program``, ``when_ns``, ``what``, ``key``, ``target``, ``source`` and ``why``, and ``limit_s`` if
a time limit ended a build. A removed log is recorded by the digest of its program's name, so that a miss is
not explained as a program that was never built. Losing a line costs an explanation, never a hit, so nothing
here raises OSError. Must not know its readers.
"""

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from itertools import chain, islice

from gpucache.store import layout
from gpucache.store.bounded_log import LINE_CAP, BoundedLog, Record, is_event, log, record_of
from gpucache.store.interface import Event, RemovedRecord
from gpucache.store.root_folder import UNUSABLE, RootFolder

EVENT_CAP = 256
"""The maximum number of events that a history returns: the newest."""
FILE_CAP = 64 << 10
FIRST_CAP = 256 << 10
"""The size of the log from which on further programs have their own: a small cache has one file."""
REMOVED_CAP = 128 << 10
"""The maximum bytes of the log of removed logs."""
PROGRAM_CAP = 4096
"""The number of logs, up to a few hundred more for a while: logs with the oldest last event are removed."""
_SELDOM = "00"
"""Only a new log of a program whose digest begins so leads to a count of all logs."""
_PROGRAMS_A_LINE = 300
_AT_ONCE = 64
"""The most events that go to the first log at once, so that an eviction does not displace others."""
_TEXT_CAP = 500
_LOGS_KEPT = 8
_AFTER_NAME = b',"when_ns"'
_KEY = re.compile(r"[0-9a-f]{64}")


class History:
    """The histories of all programs below one root."""

    def __init__(self, root: RootFolder) -> None:
        self._root = root
        self._log = lru_cache(_LOGS_KEPT)(self._log_of)
        self._read: set[str] = set()
        self._led: set[tuple[str, str]] = set()
        """Of the programs that were read the aliases, each with what to look under."""

    def record(self, program: str, event: Event) -> None:
        """Append an event; texts longer than 500 characters are cut."""
        self.record_all([(program, [event])])

    def is_led(self, alias: str, program: str) -> bool:
        """Whether it is recorded under an alias that one is to look under this program."""
        if alias not in self._read:
            self.events(alias)
        known = (alias, program) in self._led
        self._led.add((alias, program))
        return known

    def record_all(self, events: Iterable[tuple[str, Iterable[Event]]]) -> None:
        """Append the events of several programs, all events of one program at once."""
        bound = False
        for program, own in events:
            lines = (_line(program, event) for event in own)
            if self._is_together(program):
                self._first.append(islice(lines, _AT_ONCE))
            if (line := next(lines, None)) is not None and self._log(program).append(chain([line], lines)):
                # Listing all of them takes time in proportion to their number: one new log in 256 does.
                bound |= layout.program_digest(layout.history_name(program)).startswith(_SELDOM)
        if bound:
            self._bound()

    def events(self, *programs: str) -> list[Event]:
        """The events of some programs, one program after the other, each in its order."""
        events, shared = list[Event](), list(map(_by_program, (self._old, self._first)))
        for program in programs:
            name = b'{"program":%s' % json.dumps(program).encode("ascii")
            logs = (*shared, _by_program(self._log(program)))
            lines = [line for lines in logs for line in lines.get(name, ())]
            events += [event for event in map(_event, lines[-EVENT_CAP:]) if event is not None]
        self._led |= {(event.program, event.why) for event in events if event.what == "named"}
        self._read.update(programs)
        return events

    def programs(self) -> list[str]:
        """The names of the programs that have a history, sorted."""
        names = (name for name in self._names() if name != layout.FIRST_HISTORY)
        logs = (BoundedLog(self._root, layout.PROGRAMS, name, FILE_CAP) for name in names)
        last = [record for log in logs for record in log.records(2 * LINE_CAP)[-1:]]
        return sorted(
            {*self._together(), *(str(record["program"]) for record in last if "program" in record)}
        )

    def note_removed(self, histories: Sequence[str], when_ns: int, why: str) -> None:
        """Record that the logs with these file names are removed.

        ``why`` is the rule of an eviction of all entries, or empty if there were too many logs.
        """
        names = dict.fromkeys(histories)
        if layout.FIRST_HISTORY in names:
            names |= dict.fromkeys(map(layout.history_name, self._together()))
        digests = [layout.program_digest(name) for name in names]
        self._removed().append(
            {"when_ns": when_ns, "why": why, "programs": digests[start : start + _PROGRAMS_A_LINE]}
            for start in range(0, len(digests), _PROGRAMS_A_LINE)
        )

    def note_all(self, why: str) -> None:
        """Record for all programs with a history that a rule removes their entries."""
        self.note_removed([*map(layout.history_name, self._together()), *self._names()], time.time_ns(), why)

    def removed(self, program: str) -> RemovedRecord | None:
        """When a program's history was last removed, as far as is known; None if it never was."""
        digest = layout.program_digest(layout.history_name(program))
        found = None
        for line in self._removed().records():
            record = _removed_record(line, digest)
            if record is not None and (record.named or found is None):
                found = record
        return found

    @cached_property
    def _first(self) -> BoundedLog:
        return log(self._root)

    @cached_property
    def _old(self) -> BoundedLog:
        return BoundedLog(self._root, layout.PROGRAMS, layout.FIRST_HISTORY, 8 * FILE_CAP)

    def _together(self) -> Iterable[str]:
        """The programs whose events are in the logs of all."""
        records = (*self._old.records(), *self._first.records())
        return dict.fromkeys(str(one["program"]) for one in records if is_event(one) and "program" in one)

    def _is_together(self, program: str) -> bool:
        """Whether events go to the log of all: it is not full, and the program has none of its own."""
        with suppress(*UNUSABLE), self._root.open(*layout.PROGRAMS) as programs:
            programs.lstat(layout.history_name(program))
            return False
        size = 0
        with suppress(*UNUSABLE), self._root.open(*layout.LOG) as folder:
            size = folder.lstat(layout.LOG_NAME).st_size
        return size < FIRST_CAP

    def _log_of(self, program: str) -> BoundedLog:
        return BoundedLog(self._root, layout.PROGRAMS, layout.history_name(program), FILE_CAP)

    def _removed(self) -> BoundedLog:
        place, name = (layout.VERSION_FOLDER,), layout.REMOVED_NAME
        return BoundedLog(self._root, place, name, REMOVED_CAP, lambda gone: [{**gone[-1], "programs": None}])

    def _names(self) -> list[str]:
        with suppress(*UNUSABLE), self._root.open(*layout.PROGRAMS) as programs:
            names = [found.name for found in programs.entries()]
            return [name for name in names if layout.is_beside(layout.PROGRAMS, name)]
        return []

    def _bound(self) -> None:
        """Remove the logs with the oldest last event if there are too many."""
        names = self._names()
        if len(names) <= PROGRAM_CAP:
            return
        with suppress(*UNUSABLE), self._root.open(*layout.PROGRAMS) as programs:
            going = sorted(names, key=lambda name: programs.lstat(name).st_mtime_ns)
            going = going[: len(names) - PROGRAM_CAP * 9 // 10]
            self.note_removed(going, time.time_ns(), "")
            for name in going:
                with suppress(OSError):
                    programs.unlink(name)


def _by_program(log: BoundedLog) -> Mapping[bytes, Sequence[bytes]]:
    """The lines of a log by the text before their second field."""
    with suppress(*UNUSABLE):
        return log.by_beginning(_AFTER_NAME)
    return {}


def _line(program: str, event: Event) -> Record:
    # The longest text is last, because fields that do not fit into the line are left out.
    record: Record = {"program": program, "when_ns": event.when_ns}
    if event.limit_s:
        record["limit_s"] = event.limit_s
    for name in ("what", "key", "target", "source", "why"):
        record[name] = str(getattr(event, name))[:_TEXT_CAP]
    if event.options is not None and sum(map(len, event.options)) <= _TEXT_CAP:
        record["options"] = event.options
    return record


@lru_cache(maxsize=1024)
def _event(line: bytes) -> Event | None:
    """The event of a line, which is read again at each miss."""
    record = record_of(line) or {}
    when_ns, limit_s, options = record.get("when_ns"), record.get("limit_s", 0.0), record.get("options")
    texts = [record.get(name, "") for name in ("what", "key", "target", "why", "source", "program")]
    if {*map(type, texts)} != {str} or not isinstance(when_ns, int) or not isinstance(limit_s, int | float):
        return None
    what, key, target, why, source, program = map(str, texts)
    if key and not _KEY.fullmatch(key):
        return None
    told = None
    if isinstance(options, list) and all(isinstance(option, str) for option in options):
        told = tuple(options)
    return Event(when_ns, what, key, target, why, source, told, limit_s, program)


def _removed_record(line: Record, digest: str) -> RemovedRecord | None:
    when_ns, why, programs = line.get("when_ns"), line.get("why"), line.get("programs")
    if not isinstance(when_ns, int) or not isinstance(why, str):
        return None
    if programs is None:
        return RemovedRecord(when_ns, "", named=False)
    return RemovedRecord(when_ns, why) if isinstance(programs, list) and digest in programs else None
