"""What inspect tells people: caches, their entries, one entry whole, and the last misses."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from gpucache.answers.entries import CacheEntry, EntryReport
from gpucache.answers.inspect import Advice, AdviceKind, CacheState, Written
from gpucache.model import Checks, KeyField
from gpucache.render.grid import SIZE, Block, Column, Grid, Line, Pairs, digest, one_line, plain
from gpucache.units import format_age, format_count, format_duration, format_instant, format_size, printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

ROWS_IN_A_TABLE = 2000
"""The most rows of one table: a table is drawn whole and takes some KiB and milliseconds for each row."""
EVICT_STALE = "gpucache evict --stale --cache all --dry-run"
Record = Mapping[str, object]
"""One line of the journal."""
_MOST_ADVICE = 8
_MOST_WRONG = 6
_MOST_INCLUDES = 12
_MOST_CHECKS = 24


def state(one: CacheState) -> Iterator[Block]:
    """Where the cache is and what is in it."""
    place = one.location
    limit = f" of {format_size(place.limit_bytes)}" if place.limit_bytes is not None else ", no limit"
    rows = [
        ("cache", f"{place.root} (decided by {place.decided_by})"),
        ("size", f"{format_size(one.size_bytes)}{limit}, in {format_count(one.files, 'file')}"),
    ]
    if one.beside_bytes:
        rows.append(("beside", f"{format_size(one.beside_bytes)} of records, requests and leftovers"))
    programs = format_count(one.programs, "program")
    rows.append(("entries", f"{one.entries} of {programs}, {one.damaged} unreadable"))
    yield Pairs(rows)
    for problem in place.problems:
        yield plain(f"wrong with the place: {problem}", "yellow")


def foreign_state(
    one: CacheState, redirect: Sequence[tuple[str, str]], tracing: Mapping[str, str], lacking: str
) -> Iterator[Block]:
    """One cache of another system: where it is, what is in it, how to redirect and to trace it."""
    place = one.location
    used = "" if place.enabled else "; not used by programs here"
    limit = f" of {format_size(place.limit_bytes)}" if place.limit_bytes is not None else ", no limit"
    rows = [
        ("cache", f"{_name(one)}: {place.root} (decided by {place.decided_by}{used})"),
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
    yield from _wrong(one, "wrong")


def overview(states: Sequence[CacheState]) -> Iterator[Block]:
    """What is wrong with each, a line for each by size, those that nobody reads again apart, and the sums."""
    for one in states:
        if one.location.cache != "gpucache":
            yield from _wrong(one, _name(one))
    ordered = sorted(states, key=lambda one: (-one.size_bytes, _name(one), one.location.root))
    dead = [one for one in ordered if one.stale and one.entries and one.stale.entries == one.entries]
    yield _overview([one for one in ordered if one not in dead])
    if dead:
        yield plain("\nNobody reads these again:", "bold")
        yield _overview(dead)
    total = format_size(sum(one.size_bytes for one in states))
    yield plain(f"\n{format_count(len(states), 'cache')}, {total} {SIZE}", "bold")
    stale = [(one, one.stale) for one in ordered if one.stale and one.stale.entries]
    for one, its in stale:
        told = f"{_name(one)}: {format_count(its.entries, 'entry', 'entries')}, {format_size(its.size_bytes)}"
        yield plain(f"{told}: {'; '.join(its.why)}", "dim")
    if stale:
        size = format_size(sum(its.size_bytes for _, its in stale))
        yield plain(f"{size} nobody will read again: '{EVICT_STALE}'", "bold")


def _overview(states: Sequence[CacheState]) -> Grid:
    grid = Grid(
        (
            Column("cache", whole=True),
            Column("entries", numeric=True),
            Column(SIZE, numeric=True),
            Column("stale", numeric=True),
            Column("limit", numeric=True, spare=1),
            Column("place", place=True),
        )
    )
    for one in states:
        place = one.location
        limit = "none" if place.limit_bytes is None else format_size(place.limit_bytes)
        stale = format_size(one.stale.size_bytes) if one.stale and one.stale.entries else ""
        grid.add(_name(one), str(one.entries), format_size(one.size_bytes), stale, limit, place.root)
    return grid


def written(one: Written) -> Line:
    """A line for an entry that was just written, with who wrote it where that is known.

    The day is left out, as it is today, and of an entry that was written to again all but its new size.
    """
    entry, size = one.entry, format_size(one.entry.size_bytes)
    if one.before_bytes is None:
        what = [entry.target, entry.artifact_kind, size]
    else:
        what = [f"{'grew to' if entry.size_bytes > one.before_bytes else 'written again,'} {size}"]
    told = (
        format_instant(one.when_ns).partition("T")[2],
        entry.cache,
        entry.program or entry.key[:12],
        *what,
        *(f"by {command} ({process})" for process, command in one.writers),
    )
    return plain("  ".join(filter(None, told)))


def _name(one: CacheState) -> str:
    return f"{one.location.cache} ({one.location.role})" if one.location.role else one.location.cache


def _wrong(one: CacheState, heading: str) -> Iterator[Block]:
    told = [*one.location.problems, *one.findings]
    for sentence in told[:_MOST_WRONG]:
        yield plain(f"{heading}: {sentence}", "yellow")
    if len(told) > _MOST_WRONG:
        more = f"and {len(told) - _MOST_WRONG} more; 'gpucache verify --cache {one.location.cache}' has all"
        yield plain(f"{heading}: {more}", "yellow")


def entries(found: Iterable[tuple[str, CacheEntry]], now_ns: int, *, whole: bool = False) -> Iterator[Block]:
    """A row for each entry, sorted by name, with the cache it is in where that is named.

    With ``whole`` every column and the whole key. A table ends after so many rows, and another follows; of
    several each row is a plain line. Each is sorted by itself and drawn while the rest is still read, so that
    a list of any length begins at once and takes no memory.
    """
    left = iter(found)
    rows, more = list(islice(left, ROWS_IN_A_TABLE)), list(islice(left, ROWS_IN_A_TABLE))
    many = bool(more)
    if not rows:
        yield plain("No entry is in it.", "dim")
    while rows:
        yield _entries(sorted(rows, key=_order), now_ns, whole=whole, as_lines=many)
        rows, more = more, list(islice(left, ROWS_IN_A_TABLE))


def _entries(rows: Iterable[tuple[str, CacheEntry]], now_ns: int, *, whole: bool, as_lines: bool) -> Grid:
    grid = Grid(
        (
            Column("cache", whole=True, shared=True),
            Column("key", whole=True),
            Column("program"),
            Column("variant", prose=True, spare=2),
            Column("target", shared=True),
            Column("kind", whole=True, shared=True, spare=4),
            Column(SIZE, numeric=True, spare=1),
            Column("age", numeric=True, spare=5),
            Column("used", numeric=True, spare=3),
        ),
        every=whole,
        as_lines=as_lines,
    )
    for cache, one in rows:
        grid.add(
            cache,
            one.key if whole else one.key[:12],
            plain(one.program or str(one.damage), "red") if one.damage else one.program,
            one.variant,
            one.target,
            one.artifact_kind,
            format_size(one.size_bytes),
            format_age(now_ns - one.created_ns),
            format_age(now_ns - one.last_used_ns),
        )
    return grid


def _order(row: tuple[str, CacheEntry]) -> tuple[str, ...]:
    """The key to sort entries by: the names that people know, so that an entry is easily found."""
    cache, one = row
    return cache, one.program, one.variant, one.target, one.key


def advice(found: Iterable[Advice]) -> Iterator[Block]:
    """What is worth knowing of the keys, a sentence for each program."""
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
        yield plain(f"{told} not read since made; --json says which", "dim")


def report(one: EntryReport, *, whole: bool) -> "Iterator[RenderableType]":
    """What an entry stores about itself; headers and checks beyond a few only where ``whole`` asks."""
    entry = one.entry
    sizes = ", ".join("x".join(map(str, size)) for size in one.local_sizes)
    by = f" by gpucache {one.tool_version}" if one.tool_version else ""
    yield one_line(
        f"{entry.program or entry.key[:12]}{f' for {entry.target}' if entry.target else ''}", "bold"
    )
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
    digests = whole or entry.cache != "gpucache"  # others' keys are no digests of anything that is shown
    shown = _shown(one.key_fields, whole=whole)
    yield _pairs([(field.label, field.value if digests else digest(field.value)) for field in shown])
    hidden = len(one.key_fields) - len(shown)
    if hidden:
        yield plain(f"and {format_count(hidden, 'more header')}; -v shows them", "dim")
    if one.build_log:
        yield plain("\nBuild log", "bold")
        yield plain(one.build_log)


def _failure_table(one: EntryReport, *, whole: bool) -> Iterator[Block]:
    """What each code means that a failing kernel leaves behind."""
    grid = Grid(
        (
            Column("code", numeric=True),
            Column("line", whole=True),
            Column("function", whole=True),
            Column("message", prose=True),
        )
    )
    shown = one.failures if whole else one.failures[:_MOST_CHECKS]
    for code, check in enumerate(shown):
        place = f"{check.file}:{check.line}" if check.file else str(check.line)
        grid.add(str(code), place, check.function, check.message)
    yield grid
    hidden = len(one.failures) - len(shown)
    if hidden:
        yield plain(f"and {hidden} more checks; -v shows them", "dim")


def _shown(fields: Sequence[KeyField], *, whole: bool) -> list[KeyField]:
    includes = [field for field in fields if field.label.startswith("include ")]
    if whole or len(includes) <= _MOST_INCLUDES:
        return list(fields)
    hidden = set(map(id, includes[_MOST_INCLUDES:]))
    return [field for field in fields if id(field) not in hidden]


def _pairs(pairs: Sequence[tuple[str, str]]) -> "Table":
    from rich.table import Table

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=False, max_width=34, overflow="fold")
    grid.add_column(overflow="fold")
    for label, value in pairs:
        grid.add_row(one_line(label, "cyan"), one_line(value))
    return grid


def misses(
    records: Sequence[Record],
    now_ns: int,
    *,
    noted: int = 0,
    most: int | None = None,
    brief: bool = False,
) -> Iterator[Block]:
    """The last misses, newest first, each with its verdict: at most so many, and what repeats only once.

    ``noted`` is how many builds still wait for ``warm --misses``. With ``brief`` a miss that differs from the
    nearest entry in many ways is told by the first.
    """
    rows = []
    cut = False
    for record, times in _told_once(records)[:most]:
        again = f", {times} times" if times > 1 else ""
        what = f"{record.get('program')} for {record.get('target')}{again}"
        detail = _in_brief(record) if brief else str(record.get("detail"))
        cut = cut or detail != str(record.get("detail"))
        rows.append((_ago(record, now_ns), printable(f"{what}: {record.get('verdict')}: {detail}", None)))
    yield plain("Last misses", "bold") if rows else plain("No miss is on record.")
    if rows:
        yield _by_age(rows)
    if cut:
        yield plain("'gpucache inspect --misses' tells every difference", "dim")
    if noted:
        builds = format_count(noted, "build is", "builds are")
        yield plain(
            f"\n{builds} noted for which programs did not wait: 'gpucache warm --misses' makes them for the "
            "next start."
        )


def _in_brief(record: Record) -> str:
    """Of a miss that names differences the first and how many more there are; of a target that was never
    built for, only for which one there are entries. Any other detail is whole."""
    detail = str(record.get("detail"))
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
    """The newest of all misses that tell the same, and how many there are.

    They are those of a program and target with one verdict that want one key or tell it in the same words:
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


def processes(records: Sequence[Record], now_ns: int) -> Iterator[Block]:
    """What the last processes counted."""
    rows = []
    for record in records:
        counts = f"{_count(record, 'hits', 'hit')}, {_count(record, 'misses', 'miss', 'misses')}"
        rows.append((_ago(record, now_ns), f"{record.get('command')}: {counts}"))
    if rows:
        yield plain("\nLast processes", "bold")
        yield _by_age(rows)


def _by_age(rows: Sequence[tuple[str, str]]) -> Pairs:
    return Pairs([(f"{age:>10}", text) for age, text in rows])


def _count(record: Mapping[str, object], name: str, one: str, many: str = "") -> str:
    number = record.get(name)
    return format_count(number, one, many) if isinstance(number, int) else f"? {many or one + 's'}"


def _ago(record: Mapping[str, object], now_ns: int) -> str:
    when = record.get("when_ns")
    age = format_age(now_ns - when) if isinstance(when, int) else "?"
    return age if age in ("now", "?") else f"{age} ago"
