"""The results of inspect: caches, their entries, one entry whole, new writes to them, the last misses."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import Annotated, NamedTuple

from gpucache.answers.console import (
    SIZE,
    Block,
    Cell,
    Column,
    Grid,
    Line,
    Pairs,
    digest,
    named,
    one_line,
    plain,
)
from gpucache.answers.entries import CacheEntry, EntryReport, Location, Problem
from gpucache.answers.stats import number
from gpucache.json_keys import Instant, json_keys
from gpucache.model import Checks, KeyField
from gpucache.units import (
    format_age,
    format_count,
    format_duration,
    format_instant,
    format_size,
    printable,
    with_ages,
)

ROWS_IN_A_TABLE = 2000
"""The most rows of one table: a table is drawn whole and takes some KiB and milliseconds for each row."""
EVICT_STALE = "gpucache evict --stale --cache all --dry-run"
Record = Mapping[str, object]
"""One line of the journal."""
_MOST_ADVICE = 8
_BAR_WIDTH = 20
_MOST_WRONG = 6
_MOST_INCLUDES = 12
_MOST_CHECKS = 24


class AdviceKind(StrEnum):
    """The problems that the keys of a program can have."""

    IDENTICAL = "identical"
    RESTLESS = "restless"
    GROWTH = "growth"
    UNREAD = "unread"


@json_keys("kind program target detail fields entries")
class Advice(NamedTuple):
    """A problem of the keys of a program."""

    kind: Annotated[AdviceKind, "The problem."]
    program: str
    target: str
    detail: Annotated[str, "A sentence."]
    fields: Annotated[tuple[str, ...], "The key fields it is about."] = ()
    keys: tuple[str, ...] = ()

    @property
    def entries(self) -> int:
        """How many entries it is about."""
        return len(self.keys)


@json_keys("entry.* root when_ns writers before_bytes")
class Written(NamedTuple):
    """An entry that was just written; with --watch each is a line of its own."""

    entry: CacheEntry
    root: Annotated[str, "The place of its cache."]
    when_ns: Annotated[Instant, "When that was seen, in UTC."]
    writers: Annotated[tuple[tuple[str, str], ...], "Commands that were writing it, by process."] = ()
    before_bytes: Annotated[int | None, "The size of an entry that grew, before; null if it is new."] = None


class Compiling(NamedTuple):
    """A process that has the lock under which others wait for its compile."""

    cache: Annotated[str, "The name of its cache."]
    root: Annotated[str, "The place of that."]
    lock: Annotated[str, "The locked file."]
    process: Annotated[str, "Its number."]
    command: Annotated[str, "Its command line."]
    when_ns: Annotated[Instant, "When that was seen, in UTC."]
    held_ns: Annotated[int, "How long it has had the lock at least."]


class Stale(NamedTuple):
    """The entries of a cache that ``evict --stale`` removes."""

    entries: Annotated[int, "Entries that evict --stale removes; null if that was not queried."] = 0
    size_bytes: Annotated[int, "Their bytes."] = 0
    why: Annotated[tuple[str, ...], "Why no program does, a clause each."] = ()


@json_keys(
    "cache=location.cache root=location.root decided_by=location.decided_by enabled=location.enabled "
    "limit_bytes=location.limit_bytes problems=location.problems entries size_bytes files programs damaged "
    "role=location.role findings stale_entries=stale.entries stale_bytes=stale.size_bytes stale_why "
    "beside_bytes"
)
class CacheState(NamedTuple):
    """A cache and its place."""

    location: Location
    entries: Annotated[int, "Entries in it."]
    size_bytes: Annotated[int, "Bytes on disk."]
    files: Annotated[int, "Files of entries."]
    programs: Annotated[int, "Programs that the entries are of."]
    damaged: Annotated[int, "Entries that cannot be read."]
    oldest_used_ns: int | None = None
    found: Annotated[tuple[Problem, ...], "The problems that a scan sees, and facts worth knowing."] = ()
    stale: Annotated[Stale | None, "None where that was not asked."] = None
    beside_bytes: Annotated[int, "Of our own cache: the size of records and leftovers."] = 0

    @property
    def findings(self) -> tuple[str, ...]:
        """The problems that a scan sees, and facts worth knowing, a sentence each."""
        return tuple(one.detail for one in self.found)

    @property
    def stale_why(self) -> tuple[str, ...]:
        """Why no program does, a clause each."""
        return self.stale.why if self.stale else ()


def state(one: CacheState) -> Iterator[Block]:
    place = one.location
    limit = _limit(place, " of {}", ", no limit")
    rows = [
        ("cache", f"{place.root} (decided by {place.decided_by})"),
        ("size", f"{format_size(one.size_bytes)}{limit}, in {format_count(one.files, 'file')}"),
    ]
    if one.beside_bytes:
        rows.append(("records", f"{format_size(one.beside_bytes)}, not counted in the size"))
    programs = format_count(one.programs, "program")
    rows.append(("entries", f"{one.entries} of {programs}, {one.damaged} unreadable"))
    yield Pairs(rows)
    yield from _findings([one], named=False)


def foreign_state(
    one: CacheState, redirect: Sequence[tuple[str, str]], tracing: Mapping[str, str], lacking: str
) -> Iterator[Block]:
    """A third-party cache: its path, its contents, how to redirect and to trace it."""
    place = one.location
    used = "" if place.enabled else "; not used by programs of this machine"
    limit = _limit(place, " of {}", ", no limit")
    rows = [
        ("cache", f"{one.location.name}: {place.root} (decided by {place.decided_by}{used})"),
        ("size", f"{format_size(one.size_bytes)}{limit}"),
        ("entries", f"{one.entries} of {format_count(one.programs, 'program')}, {one.damaged} damaged"),
    ]
    if redirect:
        rows.append(("redirect", " ".join(f"{name}={value}" for name, value in redirect)))
    if lacking:
        rows.append(("redirect", lacking))
    if tracing:
        rows.append(("trace", " ".join(f"{name}={value}" for name, value in tracing.items())))
    yield Pairs(rows)
    yield from _findings([one], named=False)


def overview(states: Sequence[CacheState]) -> Iterator[Block]:
    """A line for each by size, the unused ones separately, the sums, and the problems of each."""
    if not states:
        return
    ordered = sorted(states, key=lambda one: (-one.size_bytes, one.location.name, one.location.root))
    dead = [one for one in ordered if one.stale and one.entries and one.stale.entries == one.entries]
    yield _overview([one for one in ordered if one not in dead])
    if dead:
        yield plain("\nStale caches:", "bold")
        yield _overview(dead)
    total = format_size(sum(one.size_bytes for one in states))
    records = sum(one.beside_bytes for one in states)
    and_records = f"; {format_size(records)} of gpucache's records are not counted" if records else ""
    yield plain(f"\n{format_count(len(states), 'cache')}, {total} {SIZE}{and_records}", "bold")
    stale = [(one, one.stale) for one in ordered if one.stale and one.stale.entries]
    for one, its in stale:
        told = f"{format_count(its.entries, 'entry', 'entries')}, {format_size(its.size_bytes)}"
        yield plain(f"{one.location.name}: {told}: {'; '.join(its.why)}", "dim")
    if stale:
        size = format_size(sum(its.size_bytes for _, its in stale))
        yield plain(f"{size} stale: '{EVICT_STALE}'", "bold")
    yield from _findings(states)


def _overview(states: Sequence[CacheState]) -> Grid:
    largest = max((one.size_bytes for one in states), default=0) if len(states) > 1 else 0
    columns = (
        Column("cache", lambda one: one.location.name, whole=True),
        Column("entries", lambda one: str(one.entries), numeric=True),
        Column(SIZE, lambda one: format_size(one.size_bytes), numeric=True),
        Column("stale", lambda one: _stale(one), numeric=True),
        Column("", lambda one: _bar(one.size_bytes, largest), drawn=True),
        Column("limit", lambda one: _limit(one.location, "{}", "none"), numeric=True, spare=1),
        Column("place", lambda one: one.location.root, place=True),
    )
    return Grid(columns, states)


def _bar(size: int, largest: int) -> Cell:
    """A bar in proportion to a size, in eighths of a character; at least one eighth."""
    eighths = -(-size * _BAR_WIDTH * 8 // largest) if largest else 0
    text = "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
    return Line(text, "cyan", ascii="#" * len(text))


def _stale(one: CacheState) -> str:
    return format_size(one.stale.size_bytes) if one.stale and one.stale.entries else ""


def _limit(place: Location, bound: str, none: str) -> str:
    return none if place.limit_bytes is None else bound.format(format_size(place.limit_bytes))


def written(one: Written) -> Line:
    """A line for an entry that was just written, with its writer if that is known.

    It has no date, and of a rewritten entry only the new size.
    """
    entry, size = one.entry, format_size(one.entry.size_bytes)
    if one.before_bytes is None:
        what = [entry.target, entry.artifact_kind, size]
    else:
        grew = entry.size_bytes > one.before_bytes
        what = [f"{'grew to' if grew else 'written again, as it was not used,'} {size}"]
    told = (
        format_instant(one.when_ns).partition("T")[2],
        entry.cache,
        entry.program or entry.key[:12],
        *what,
        *(f"by {command} ({process})" for process, command in one.writers),
    )
    return plain("  ".join(filter(None, told)))


def compiling(one: Compiling) -> Line:
    """A line for a compile that others may wait for."""
    who = f"{one.command} ({one.process})"
    told = (
        format_instant(one.when_ns).partition("T")[2],
        one.cache,
        f"{who} has been compiling for {format_duration(one.held_ns)}",
        f"lock {one.lock}",
    )
    return plain("  ".join(told))


def _findings(states: Sequence[CacheState], *, named: bool = True) -> Iterator[Block]:
    """Each problem of a cache's place, then faults that a scan sees, then other remarks."""
    places: dict[str, dict[str, str]] = {}
    for one in states:
        for sentence in one.location.problems:
            clause, _, remedy = sentence.partition("; ")
            places.setdefault(clause, {})[one.location.name] = remedy
    for clause, remedies in places.items():
        caches = f"{', '.join(remedies)}: " if named else ""
        owners: dict[str, list[str]] = {}
        for cache, remedy in remedies.items():
            owners.setdefault(remedy, []).append(cache)
        apart = named and len(owners) > 1
        told = [f"for {', '.join(own)}: {one}" if apart else one for one, own in owners.items() if one]
        yield plain(f"warning: {caches}{'; '.join([clause, *told])}", "yellow")
    for label, style in (("warning", "yellow"), ("note", "dim")):
        for one in states:
            cache = f"{one.location.name}: " if named else ""
            told_of = [problem.detail for problem in one.found if _label(problem) == label]
            for sentence in told_of[:_MOST_WRONG]:
                yield plain(f"{label}: {cache}{sentence}", style)
            if len(told_of) > _MOST_WRONG:
                more = f"and {len(told_of) - _MOST_WRONG} more"
                every = f"'gpucache verify --cache {one.location.cache}' has all"
                yield plain(f"{label}: {cache}{more}; {every}", style)


def _label(problem: Problem) -> str:
    return "note" if problem.kind is not None and not problem.kind.wrong else "warning"


def entries(found: Iterable[tuple[str, CacheEntry]], now_ns: int, *, whole: bool = False) -> Iterator[Block]:
    """A row for each entry, sorted by name, with its cache if that is named.

    With ``whole`` every column and the whole key. A table ends after so many rows, and another follows; with
    several tables each row is a plain line. Each is sorted separately and drawn while the rest is read, so
    that a list of any length begins at once and takes no memory.
    """
    left = iter(found)
    rows, more = list(islice(left, ROWS_IN_A_TABLE)), list(islice(left, ROWS_IN_A_TABLE))
    if not rows:
        yield plain("No entries.", "dim")
    while rows:
        yield _entries(sorted(rows, key=_order), now_ns, whole=whole)
        rows, more = more, list(islice(left, ROWS_IN_A_TABLE))


def _entries(rows: Iterable[tuple[str, CacheEntry]], now_ns: int, *, whole: bool) -> Grid:
    columns = (
        Column("cache", lambda row: row[0], whole=True, shared=True),
        Column("key", lambda row: row[1].key if whole else row[1].key[:12], whole=True),
        Column("program", lambda row: _program(row[1])),
        Column("variant", lambda row: row[1].variant, prose=True, cut=True, spare=2),
        Column("target", lambda row: row[1].target, shared=True),
        Column("kind", lambda row: row[1].artifact_kind, whole=True, shared=True, spare=4),
        Column(SIZE, lambda row: format_size(row[1].size_bytes), numeric=True, spare=1),
        Column("age", lambda row: format_age(now_ns - row[1].created_ns), numeric=True, spare=5),
        Column("used", lambda row: format_age(now_ns - row[1].last_used_ns), numeric=True, spare=3),
    )
    return Grid(columns, rows, every=whole)


def _program(one: CacheEntry) -> Cell:
    return plain(one.program or str(one.damage), "red") if one.damage else one.program


def _order(row: tuple[str, CacheEntry]) -> tuple[str, ...]:
    """The key to sort entries by: the names that people know, so that an entry is easily found."""
    cache, one = row
    return cache, one.program, one.variant, one.target, one.key


def advice(found: Iterable[Advice]) -> Iterator[Block]:
    shown: list[Advice] = []
    unread = 0
    for one in found:
        if one.kind is AdviceKind.UNREAD:
            unread += len(one.keys)
        else:
            shown.append(one)
    for one in shown[:_MOST_ADVICE]:
        yield one_line(f"{one.kind}: {one.program} for {one.target}: {one.detail}", "yellow")
    if len(shown) > _MOST_ADVICE:
        yield plain(f"and {len(shown) - _MOST_ADVICE} more such programs; --json has all", "dim")
    if unread:
        told = format_count(unread, "entry", "entries")
        yield plain(f"note: {told} unused for 30 days; 'gpucache evict --older-than 30d' removes them", "dim")


def report(one: EntryReport, *, whole: bool) -> Iterator[Block]:
    """The data that an entry stores about itself; headers and checks beyond a few only if ``whole``."""
    entry = one.entry
    sizes = ", ".join(one.sizes)
    by = f" by gpucache {one.tool_version}" if one.tool_version else ""
    yield one_line(named(entry.program or entry.key[:12], entry.target), "bold")
    yield _pairs(
        [
            ("key", entry.key),
            ("file", entry.path),
            ("size", f"{format_size(entry.size_bytes)} {SIZE}"),
            ("created", f"{format_instant(entry.created_ns)}{by}"),
            ("last used", format_instant(entry.last_used_ns)),
            *([] if one.compile_ns is None else [("compiled in", format_duration(one.compile_ns))]),
            *([("compiled for", f"local sizes {sizes}")] if sizes else []),
            *([("checks", one.checks)] if one.checks not in ("", Checks.NONE) else []),
            *one.provenance,
        ]
    )
    yield plain("\nPayload", "bold")
    yield _pairs(one.payload)
    if one.lowered_names:
        yield plain("\nLowered names", "bold")
        yield _pairs(one.lowered_names)
    if one.failures:
        yield plain("\nFailure table", "bold")
        yield from _failure_table(one, whole=whole)
    yield plain("\nKey fields", "bold")
    digests = whole or entry.cache != "gpucache"  # third-party keys are not digests of anything that is shown
    shown = _shown(one.key_fields, whole=whole)
    yield _pairs([(field.label, field.value if digests else digest(field.value)) for field in shown])
    hidden = len(one.key_fields) - len(shown)
    if hidden:
        yield plain(f"and {format_count(hidden, 'more header')}; -v shows them", "dim")
    if one.build_log:
        yield plain("\nBuild log", "bold")
        yield plain(one.build_log)


def _failure_table(one: EntryReport, *, whole: bool) -> Iterator[Block]:
    columns = (
        Column("code", lambda row: str(row.code), numeric=True),
        Column("line", lambda row: f"{row.check.file}:{row.check.line}".removeprefix(":"), whole=True),
        Column("function", lambda row: row.check.function, whole=True),
        Column("message", lambda row: row.check.message, prose=True),
    )
    shown = one.failure_table if whole else one.failure_table[:_MOST_CHECKS]
    yield Grid(columns, shown)
    hidden = len(one.failures) - len(shown)
    if hidden:
        yield plain(f"and {hidden} more checks; -v shows them", "dim")


def _shown(fields: Sequence[KeyField], *, whole: bool) -> list[KeyField]:
    includes = [field for field in fields if field.label.startswith("include ")]
    if whole or len(includes) <= _MOST_INCLUDES:
        return list(fields)
    hidden = set(map(id, includes[_MOST_INCLUDES:]))
    return [field for field in fields if id(field) not in hidden]


def _pairs(pairs: Sequence[tuple[str, str]]) -> Pairs:
    return Pairs([(label, printable(value, None)) for label, value in pairs], "cyan")


def misses(
    records: Sequence[Record], now_ns: int, *, noted: int = 0, most: int | None = None, brief: str = ""
) -> Iterator[Block]:
    """The last misses, newest first, each with its verdict: at most so many, and repeated ones only once.

    ``noted`` is how many builds still wait for ``warm --misses``. With ``brief``, the root of the cache, each
    is one line with its first difference, cut where there is no room.
    """
    rows = [(_ago(one, now_ns), one, times) for one, times in _told_once(records)[:most]]
    if not rows:
        yield plain("No misses are recorded.")
    elif brief:
        yield plain("Last misses ('gpucache inspect --misses' shows each whole)", "bold")
        columns = (
            Column("when", lambda row: row[0], numeric=True),
            Column("program", lambda row: _repeated(str(row[1].get("program")), row[2])),
            Column("target", lambda row: str(row[1].get("target")), spare=1),
            Column("reason", lambda row: f"{row[1].get('verdict')}: {_in_brief(row[1], brief)}", cut=True),
        )
        yield Grid(columns, rows)
    else:
        yield plain("Last misses", "bold")
        yield Pairs([(f"{age:>10}", _miss(one, times, now_ns)) for age, one, times in rows])
    if noted:
        builds = format_count(noted, "build is", "builds are")
        retry = any(one.get("verdict") == "poisoned" for one in records)
        yield plain(
            f"\n{builds} noted for which programs did not wait: 'gpucache warm --misses{' --retry' * retry}' "
            "makes them for the next start."
        )


def _miss(record: Record, times: int, now_ns: int) -> str:
    what = _repeated(f"{record.get('program')} for {record.get('target')}", times)
    return printable(f"{what}: {record.get('verdict')}: {with_ages(str(record.get('detail')), now_ns)}", None)


def _repeated(what: str, times: int) -> str:
    return f"{what}, {times} times" if times > 1 else what


def _in_brief(record: Record, root: str) -> str:
    """The first difference of a miss and the number of others; for a target that was never
    built for, only the target that has entries. Any other detail lacks only the root's path and a date."""
    whole = str(record.get("detail")).removesuffix(f" in {root}").replace(root, "the cache")
    detail = re.sub(r"^removed at \S+: ", "", whole)
    never = f"{record.get('program')} was never built for {record.get('target')}, but for "
    if detail.startswith(never):
        return f"so far built only for {detail.removeprefix(never).partition(': ')[0]}"
    told, nearest, _ = detail.partition(" (nearest: ")
    first, *others = told.split("; ")
    if not nearest or not others:
        return detail
    counted = re.fullmatch(r"and (\d+) more", others[-1])
    more = len(others) - 1 + int(counted[1]) if counted else len(others)
    return f"{first}; and {more} more"


def _told_once(records: Iterable[Record]) -> list[tuple[Record, int]]:
    """The newest of all misses with the same message, and their number.

    They are misses of a program and target with one verdict that want one key or have the same message:
    a program that changes at every start wants another key each time.
    """
    alike: list[list[Record]] = []
    known: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        what = [str(record.get(label)) for label in ("program", "target", "verdict")]
        names = [(*what, label, str(record[label])) for label in ("key", "detail") if label in record]
        same = next((known[name] for name in names if name in known), [])
        if not same:
            alike.append(same)
        same.append(record)
        known.update((name, same) for name in names)
    return [(same[0], len(same)) for same in alike]


def processes(records: Sequence[Record], now_ns: int, most: int | None = None) -> Iterator[Block]:
    """The sums of the last processes by command, the newest first."""
    commands: dict[str, list[Record]] = {}
    for record in records:
        commands.setdefault(str(record.get("command")), []).append(record)
    rows = []
    for command, own in list(commands.items())[:most]:
        starts = format_count(len({one.get("pid") for one in own}), "start")
        hits, misses = (sum(number(one.get(name)) for one in own) for name in ("hits", "misses"))
        counts = f"{format_count(hits, 'hit')}, {format_count(misses, 'miss', 'misses')} in {starts}"
        rows.append((f"{_ago(own[0], now_ns):>10}", f"{command}: {counts}"))
    if rows:
        yield plain("\nLast programs", "bold")
        yield Pairs(rows)


def _ago(record: Mapping[str, object], now_ns: int) -> str:
    when = record.get("when_ns")
    age = format_age(now_ns - when) if isinstance(when, int) else "?"
    return age if age in ("now", "?") else f"{age} ago"
