"""The totals of inspect --stats: hits, misses by reason, and the compile time of hits, which they save.

They are sums over the journal, in which every program has a line for each miss and one at its end. When the
journal drops its older half, ``folded`` keeps their totals in one record, so that counters never fall.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from gpucache.answers.console import PIPE_WIDTH, Block, Column, Grid, Pairs, plain, shortened
from gpucache.json_keys import Instant, json_keys
from gpucache.units import format_ago, format_count, format_duration, format_instant, format_size

SUM, ZERO = "sum", "zero"
"""The kinds of the records that stand for dropped ones, and from which counting begins again."""
LEFT_OUT = "Starts from exported layers, read-only roots and other users count nothing and are left out."
_PROGRAMS_SHOWN = 10
_DAYS_SHOWN = 7
_REASONS_KEPT = 20
Record = Mapping[str, object]


@json_keys("hits misses saved_ns")
class Tally(NamedTuple):
    """Hits and misses of a program, or of a day."""

    hits: Annotated[int, "Builds that were served."] = 0
    misses: Annotated[int, "Builds that missed."] = 0
    saved_ns: Annotated[int, "How long compiling the hits took when they were built."] = 0

    def plus(self, hits: int, misses: int, saved_ns: int) -> "Tally":
        return Tally(self.hits + hits, self.misses + misses, self.saved_ns + saved_ns)


@json_keys(
    "since_ns tally.* reasons programs days entries size_bytes limit_bytes root settings_files left_out"
)
class Stats(NamedTuple):
    """The totals of a cache."""

    since_ns: Annotated[Instant | None, "The first counted instant; null where nothing was counted."]
    tally: Tally
    reasons: Annotated[Mapping[str, int], "Misses by their verdicts."]
    programs: Annotated[Mapping[str, Tally], "By program, as far as the journal goes back."]
    days: Annotated[Mapping[str, Tally], "By day in UTC, as far as the journal goes back."]
    entries: Annotated[int, "Entries in the cache now."] = 0
    size_bytes: Annotated[int, "The bytes that they take on disk."] = 0
    limit_bytes: Annotated[int | None, "The most that GPUCACHE_MAX_SIZE allows; null without a limit."] = None
    root: Annotated[str, "The directory of the cache."] = ""
    settings_files: Annotated[Mapping[str, bool], "The files of settings, and whether each exists."] = {}
    left_out: Annotated[str, "The starts that are not counted."] = LEFT_OUT


def stats(records: Iterable[Record]) -> Stats:
    since_ns: int | None = None
    tally, reasons = Tally(), Counter[str]()
    programs: dict[str, Tally] = {}
    days: dict[str, Tally] = {}
    tables: tuple[dict[str, Any], ...] = (reasons, programs, days)
    for record in records:
        kind, when_ns = record.get("kind"), number(record.get("when_ns"))
        if kind == ZERO:
            since_ns, tally = when_ns, Tally()
            for table in tables:
                table.clear()
        if kind == SUM and isinstance(told := record.get("reasons"), dict):
            since_ns = number(record.get("since_ns"))
            reasons.update({str(reason): number(count) for reason, count in told.items()})
        elif kind not in ("miss", "process"):
            continue
        elif kind == "miss":
            reasons[str(record.get("verdict"))] += 1
        since_ns = when_ns if since_ns is None else since_ns
        misses = number(record.get("misses")) if kind == SUM else int(kind == "miss")
        more = (number(record.get("hits")), misses, number(record.get("saved_ns")))
        tally = tally.plus(*more)
        if kind != SUM:
            day = format_instant(when_ns).partition("T")[0]
            for place, name in ((programs, str(record.get("command"))), (days, day)):
                place[name] = place.get(name, Tally()).plus(*more)
    return Stats(since_ns, tally, reasons, programs, days)


def folded(dropped: Sequence[Record]) -> Record:
    found = stats(dropped)
    return {
        "kind": SUM,
        "when_ns": dropped[-1].get("when_ns"),
        "since_ns": found.since_ns,
        **found.tally._asdict(),
        "reasons": dict(sorted(found.reasons.items(), key=_most)[:_REASONS_KEPT]),
    }


def number(value: object) -> int:
    return value if isinstance(value, int) else 0


def stats_text(found: Stats, now_ns: int) -> Iterator[Block]:
    """The totals, then the programs with the most hits and misses, and the last days."""
    tally, asked = found.tally, found.tally.hits + found.tally.misses
    rate = f" ({100 * tally.hits / asked:.1f} %)" if asked else ""
    since = "nothing yet" if found.since_ns is None else format_ago(now_ns - found.since_ns)
    size, limit = format_size(found.size_bytes), found.limit_bytes
    if limit:
        size += f" of {format_size(limit)}, {100 * found.size_bytes / limit:.1f} %"
    files = [(shortened(path, PIPE_WIDTH), exists) for path, exists in found.settings_files.items()]  # with ~
    reasons = [(f"  {reason}", str(count)) for reason, count in sorted(found.reasons.items(), key=_most)]
    yield Pairs(
        [
            ("counted since", since),
            ("hits", f"{tally.hits}{rate}"),
            ("misses", str(tally.misses)),
            *reasons,
            ("compile time of hits", format_duration(tally.saved_ns)),
            ("entries", f"{found.entries} ({size})"),
            ("cache", found.root),
            *(("settings file", f"{path}{'' if exists else ' (none)'}") for path, exists in files),
        ],
        "cyan",
    )
    programs = sorted(found.programs.items(), key=lambda one: (-one[1].hits - one[1].misses, one[0]))
    for heading, rows, shown in (
        ("program", programs, programs[:_PROGRAMS_SHOWN]),
        ("day", list(found.days.items()), list(found.days.items())[-_DAYS_SHOWN:]),
    ):
        if rows:
            yield ""
            yield _table(heading, shown)
        if len(rows) > len(shown):
            yield plain(
                f"and {format_count(len(rows) - len(shown), f'more {heading}')}; --json has all", "dim"
            )
    yield plain(f"\n{found.left_out}", "dim")


def _most(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


def _table(heading: str, rows: Sequence[tuple[str, Tally]]) -> Grid:
    columns = (
        Column(heading, lambda row: row[0]),
        Column("hits", lambda row: str(row[1].hits), numeric=True),
        Column("misses", lambda row: str(row[1].misses), numeric=True),
        Column("compile time of hits", lambda row: format_duration(row[1].saved_ns), numeric=True),
    )
    return Grid(columns, rows)


def prometheus(found: Stats) -> Iterator[str]:
    """The totals in Prometheus' text format (0.0.4), which node_exporter's textfile collector reads."""
    reasons = {f'{{reason="{reason}"}}': count for reason, count in sorted(found.reasons.items())}
    rows: Sequence[tuple[str, str, str, Mapping[str, float]]] = (
        ("hits_total", "counter", "Builds served from the cache.", {"": found.tally.hits}),
        ("misses_total", "counter", "Builds that missed, by reason.", reasons),
        ("saved_seconds_total", "counter", "Compile time of the hits.", {"": found.tally.saved_ns / 1e9}),
        ("entries", "gauge", "Entries in the cache.", {"": found.entries}),
        ("size_bytes", "gauge", "Bytes of the entries on disk.", {"": found.size_bytes}),
    )
    for name, kind, told, values in rows:
        yield f"# HELP gpucache_{name} {told}"
        yield f"# TYPE gpucache_{name} {kind}"
        yield from (f"gpucache_{name}{labels} {value:.10g}" for labels, value in values.items())
