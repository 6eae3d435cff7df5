"""The plot of ``inspect --plot``: the growth of our own cache, and its hits and misses, by day in UTC.

Owns the sums by day and the layout. matplotlib is imported where it draws. Must not know where
records come from.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from gpucache.answers.bench_export import GRID, INK, PALE, rendered
from gpucache.answers.entries import CacheEntry
from gpucache.answers.inspect import Record
from gpucache.units import format_count, format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DAYS_SHOWN = range(14, 366)
"""The fewest and the most days of a plot; older entries count as built on the first."""
_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_MOST = 1 << 40


class Days(NamedTuple):
    """Figures of consecutive days, of which the last is today."""

    days: list[date]
    size_bytes: list[int]
    """For each day the size of present entries that had been built by its end."""
    hits: list[int]
    misses: list[int]


def by_day(entries: Iterable[CacheEntry], records: Iterable[Record], now_ns: int) -> Days:
    """The figures of each day from the first with an entry or a process on."""
    today = _day(now_ns)
    newest, oldest = (today - timedelta(days=days - 1) for days in (DAYS_SHOWN.start, DAYS_SHOWN.stop))
    built, hits, misses = Counter[date](), Counter[date](), Counter[date]()

    def day_of(when_ns: int) -> date:
        return max(_day(max(min(when_ns, now_ns), 0)), oldest)

    for entry in entries:
        built[day_of(entry.created_ns)] += entry.size_bytes
    for record in records:
        when_ns = record.get("when_ns")
        if record.get("kind") == "process" and isinstance(when_ns, int):
            hits[day_of(when_ns)] += _number(record, "hits")
            misses[day_of(when_ns)] += _number(record, "misses")
    del hits[oldest], misses[oldest]  # which has the older ones
    first = min([*built, *hits, newest])
    days = [first + timedelta(days=number) for number in range((today - first).days + 1)]
    sizes = list(accumulate(built[day] for day in days))
    return Days(days, sizes, [hits[day] for day in days], [misses[day] for day in days])


def _day(when_ns: int) -> date:
    return datetime.fromtimestamp(when_ns // 10**9, UTC).date()


def _number(record: Record, name: str) -> int:
    number = record.get(name)
    return min(max(number, 0), _MOST) if isinstance(number, int) else 0


def plot(entries: Iterable[CacheEntry], records: Sequence[Record], now_ns: int, form: str) -> bytes:
    """The picture as png, svg or pdf. Raises ImportError without matplotlib."""
    found = by_day(entries, records, now_ns)
    return rendered(lambda: draw(found), form, "gpucache", "; ".join(titles(found)))


def titles(found: Days) -> tuple[str, str]:
    """The title of each half of the plot, with its sum."""
    hits, misses = format_count(sum(found.hits), "hit"), format_count(sum(found.misses), "miss", "misses")
    return (
        f"Growth: {format_size(found.size_bytes[-1])} of entries, by the day they were built",
        f"Programs: {hits} and {misses}, as far as the journal goes back",
    )


def draw(found: Days) -> "Figure":
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure((10, 5.6), facecolor="white")
    figure.set_layout_engine("constrained", w_pad=0.15, h_pad=0.15)  # a margin on a dark page
    grown, used = figure.subplots(2, 1, sharex=True)
    most = found.size_bytes[-1]
    unit, unit_bytes = next((one for one in _UNITS if most >= one[1]), ("B", 1))
    grown.bar(found.days, [size / unit_bytes for size in found.size_bytes], 1, color="#0969da")
    grown.set_ylabel(unit)
    used.bar(found.days, found.hits, 0.8, color="#1a7f37", label="hits")
    used.bar(found.days, found.misses, 0.8, found.hits, color="#d4a72c", hatch="///", label="misses")
    used.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    used.set_ylabel("builds")
    used.legend(loc="upper left", ncols=2, frameon=False)
    locator = AutoDateLocator(minticks=4, maxticks=12)  # type: ignore[no-untyped-call]
    used.xaxis.set_major_locator(locator)
    used.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    half = timedelta(hours=12)
    start, end = (datetime.combine(day, datetime.min.time()) for day in (found.days[0], found.days[-1]))
    used.set_xlim(start - half, end + half)
    for axes, title in zip((grown, used), titles(found), strict=True):
        _dress(axes, title)
    return figure


def _dress(axes: "Axes", title: str) -> None:
    axes.set_title(title, loc="left", color=INK, size=11, weight="bold")
    axes.set_ylim(0, max(1.25 * axes.get_ylim()[1] if axes.get_legend() else axes.get_ylim()[1], 1))
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, colors=PALE)
    axes.spines[["top", "right"]].set_visible(False)
