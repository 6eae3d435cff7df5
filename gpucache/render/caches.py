"""The caches of others: a line for each, one told whole, and whether one would answer what is wanted."""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.table import Table

from gpucache.outcomes import CacheState, Exported, Reach, Served
from gpucache.render.grid import Column, Grid, plain
from gpucache.units import format_size

WRONG_SHOWN = 6


def overview(states: Sequence[CacheState]) -> Iterator[RenderableType]:
    """A line for each cache of others on this machine, then what is wrong with each."""
    if not states:
        yield plain("No cache of another system was found.", "dim")
        return
    grid = Grid(
        (
            Column("cache", whole=True),
            Column("entries", numeric=True),
            Column("on disk", numeric=True),
            Column("limit", numeric=True, spare=1),
            Column("place"),
        )
    )
    for one in states:
        place = one.location
        limit = "none" if place.limit_bytes is None else format_size(place.limit_bytes)
        grid.add(_name(one), str(one.entries), format_size(one.size_bytes), limit, place.root)
    yield grid
    for one in states:
        yield from _wrong(one, _name(one))


def state(
    one: CacheState, redirect: Sequence[tuple[str, str]], tracing: Mapping[str, str], lacking: str
) -> Iterator[RenderableType]:
    """One cache of another system: where it is, what is in it, how to redirect and to trace it."""
    place = one.location
    used = "" if place.enabled else "; not used by programs here"
    limit = f" of {format_size(place.limit_bytes)}" if place.limit_bytes is not None else ", no limit"
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_row("cache", plain(f"{_name(one)}: {place.root} (decided by {place.decided_by}{used})"))
    grid.add_row("size", plain(f"{format_size(one.size_bytes)}{limit}"))
    grid.add_row("entries", plain(f"{one.entries} of {one.programs} programs, {one.damaged} damaged"))
    if redirect:
        grid.add_row("redirect", plain(" ".join(f"{name}={value}" for name, value in redirect)))
    if lacking:
        grid.add_row("redirect", plain(lacking))
    if tracing:
        grid.add_row("trace", plain(" ".join(f"{name}={value}" for name, value in tracing.items())))
    yield grid
    yield from _wrong(one, "wrong")


def reaches(found: Sequence[Reach]) -> Iterator[RenderableType]:
    """Whether each cache would answer, and if not which field is in the way."""
    for one in found:
        yield plain(f"{one.cache}: {one.wanted}", "bold")
        yield plain(f"{one.verdict}: {one.detail}", "green" if one.verdict is Served.HIT else "yellow")
        if one.nearest:
            label = "entry" if isinstance(one.verdict, Served) else "nearest"
            yield plain(f"  {label}: {one.nearest}")
        for item in one.differences:
            yield plain(f"  {item.label}:")
            for name, value in (("stored", item.left), ("wanted", item.right)):
                yield plain(f"    {name}: {'none' if value is None else value or '(empty)'}")


def exported(one: Exported) -> Iterator[RenderableType]:
    """What was written, and from what."""
    entries = f"{one.entries} {'entry' if one.entries == 1 else 'entries'}"
    yield plain(f"{one.file}: {entries} for {one.cache}, {format_size(one.size_bytes)}", "bold")
    if one.key:
        yield plain(f"  key: {one.key}")
    for file, count in one.sources:
        yield plain(f"  {file}: {count}")
    yield from (plain(note, "yellow") for note in one.notes)


def _name(one: CacheState) -> str:
    return f"{one.location.cache} ({one.location.role})" if one.location.role else one.location.cache


def _wrong(one: CacheState, heading: str) -> Iterator[RenderableType]:
    told = [*one.location.problems, *one.findings]
    for sentence in told[:WRONG_SHOWN]:
        yield plain(f"{heading}: {sentence}", "yellow")
    if len(told) > WRONG_SHOWN:
        more = f"and {len(told) - WRONG_SHOWN} more; 'gpucache verify --cache {one.location.cache}' has all"
        yield plain(f"{heading}: {more}", "yellow")
