"""One entry told whole, and the last misses."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table

from gpucache.model import Checks, KeyField
from gpucache.outcomes import EntryReport
from gpucache.render.grid import Column, Grid, plain
from gpucache.units import format_age, format_duration, format_instant, format_size

_MOST_INCLUDES = 12
_MOST_CHECKS = 24
_DIGEST = 64


def report(one: EntryReport, *, whole: bool) -> Iterator[RenderableType]:
    """What an entry stores about itself; headers and checks beyond a few only where ``whole`` asks."""
    entry = one.entry
    sizes = ", ".join("x".join(map(str, size)) for size in one.local_sizes)
    yield plain(f"{entry.program or entry.key[:12]}{f' for {entry.target}' if entry.target else ''}", "bold")
    yield _pairs(
        [
            ("key", entry.key),
            ("file", entry.path),
            ("size", f"{format_size(entry.size_bytes)} on disk"),
            ("created", f"{format_instant(entry.created_ns)}{_by(one)}"),
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
    yield _pairs([(field.label, _value(field, whole=digests)) for field in shown])
    hidden = len(one.key_fields) - len(shown)
    if hidden:
        yield plain(f"and {hidden} more headers; -v shows them", "dim")
    if one.build_log:
        yield plain("\nBuild log", "bold")
        yield plain(one.build_log)


def _failure_table(one: EntryReport, *, whole: bool) -> Iterator[RenderableType]:
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


def _by(one: EntryReport) -> str:
    return f" by gpucache {one.tool_version}" if one.tool_version else ""


def misses(records: Sequence[dict[str, object]], now_ns: int) -> Iterator[RenderableType]:
    """The last misses, newest first, each with its verdict."""
    if not records:
        yield plain("No miss is on record.")
        return
    yield plain("Last misses", "bold")
    for record in records:
        when = record.get("when_ns")
        age = format_age(now_ns - when) if isinstance(when, int) else "?"
        ago = age if age in ("now", "?") else f"{age} ago"
        yield plain(
            f"{ago:>10}  {record.get('program')} for {record.get('target')}: "
            f"{record.get('verdict')}: {record.get('detail')}"
        )
    if any(record.get("noted") is True for record in records):
        yield plain(
            "\nWhat a compiler builds late was built plainly and noted: 'gpucache warm --misses' builds what "
            "is still noted for the next start."
        )


def processes(records: Sequence[dict[str, object]], now_ns: int) -> Iterator[RenderableType]:
    """What the last processes counted."""
    if records:
        yield plain("\nLast processes", "bold")
    for record in records:
        when = record.get("when_ns")
        age = format_age(now_ns - when) if isinstance(when, int) else "?"
        ago = age if age in ("now", "?") else f"{age} ago"
        yield plain(
            f"{ago:>10}  {record.get('command')}: {record.get('hits')} hits, {record.get('misses')} misses"
        )


def _shown(fields: Sequence[KeyField], *, whole: bool) -> list[KeyField]:
    includes = [field for field in fields if field.label.startswith("include ")]
    if whole or len(includes) <= _MOST_INCLUDES:
        return list(fields)
    hidden = set(map(id, includes[_MOST_INCLUDES:]))
    return [field for field in fields if id(field) not in hidden]


def _value(field: KeyField, *, whole: bool) -> str:
    digest = len(field.value) == _DIGEST and set(field.value) <= set("0123456789abcdef")
    return f"SHA-256 {field.value[:12]}" if digest and not whole else field.value


def _pairs(pairs: Sequence[tuple[str, str]]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=False, max_width=34, overflow="fold")
    grid.add_column(overflow="fold")
    for label, value in pairs:
        grid.add_row(plain(label, "cyan"), plain(value))
    return grid
