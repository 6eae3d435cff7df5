"""Converts sizes, ages and durations to text and back, counts and lists to text, and escapes text. Pure.

Sizes are written in binary units (``KiB``, ``MiB``) and read in both: ``10M`` and ``10MiB`` are
10 x 1024 x 1024 bytes, ``10MB`` is 10 x 1000 x 1000.
"""

TYPE_CHECKING = (
    False  # the one of typing; functions import what they need, as every command waits for this module
)
if TYPE_CHECKING:
    from collections.abc import Sequence

_SIZE = r"(\d{1,18}(?:\.\d{1,18})?)\s*([kmgt]?)(i?b|)"
_AGE = r"(\d{1,18}(?:\.\d{1,18})?)\s*(s|m|h|d|w)"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_POWERS = ("", "k", "m", "g", "t")
PRINTED = 200
"""How many characters of a text from a file are shown by default."""
_LAST_SECOND = 253_402_300_799  # of the year 9999, after which no date exists


def parse_size(text: str, *, unit: bool = False) -> int:
    """Bytes of a size such as ``512M``, ``1.5GiB``, ``100kB`` or ``4096``; raises UsageError.

    With ``unit`` a number without one is refused unless it is 0.
    """
    import re

    match = re.fullmatch(_SIZE, text.strip(), re.IGNORECASE)
    if match is None or (unit and match[2] == match[3] == "" and float(match[1])):
        from gpucache.errors import UsageError

        raise UsageError(f"{text!r} is not a size; write a number with a unit, such as 512M or 2GiB")
    number, power, suffix = match.groups()
    step = 1000 if suffix.lower() == "b" and power else 1024
    return int(float(number) * step ** _POWERS.index(power.lower()))


def parse_age_ns(text: str) -> int:
    """Nanoseconds of an age such as ``30d``, ``12h`` or ``90s``; raises UsageError."""
    import re

    match = re.fullmatch(_AGE, text.strip(), re.IGNORECASE)
    if match is None:
        from gpucache.errors import UsageError

        raise UsageError(f"{text!r} is not an age; write a number with s, m, h, d or w, such as 30d")
    return int(float(match[1]) * _SECONDS[match[2].lower()] * 1_000_000_000)


def format_size(size_bytes: int) -> str:
    """A size for people, three significant digits: ``812 B``, ``4.2 KiB``, ``1.5 GiB``."""
    if size_bytes < 1024:
        return f"{size_bytes} B"
    value = float(size_bytes)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1000:
            return f"{value:.1f} {unit}" if value < 100 else f"{value:.0f} {unit}"
    return f"{value / 1024:.1f} TiB"


def format_duration(duration_ns: int) -> str:
    """A duration for people: ``0.4 ms``, ``87 ms``, ``6.32 s``, ``2 min 5 s``."""
    ms = duration_ns / 1_000_000
    if ms < 10:
        return f"{ms:.1f} ms"
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1000:.2f} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    return f"{minutes} min {seconds} s"


def format_count(number: int, one: str, many: str = "") -> str:
    """A number of things: ``1 entry``, ``3 entries``; without their plural an s is added."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def format_list(names: "Sequence[str]", most: int = 3) -> str:
    """The first names and the number of others: ``a, b, c and 4 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def format_age(age_ns: int) -> str:
    """The time since an instant, in the largest fitting unit: ``now``, ``5 min``, ``3 h``, ``12 d``."""
    seconds = age_ns // 1_000_000_000
    if seconds < 60:
        return "now"
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return "now"


def format_ago(age_ns: int) -> str:
    """An age as a phrase: ``just now``, ``5 min ago``."""
    age = format_age(age_ns)
    return "just now" if age == "now" else f"{age} ago"


def format_instant(instant_ns: int) -> str:
    """An instant as ISO 8601 in UTC with seconds, such as ``2026-01-31T08:15:00Z``.

    A number read from a file may be outside every calendar; it is shown as the nearest date.
    """
    from datetime import UTC, datetime

    seconds = min(max(instant_ns // 1_000_000_000, 0), _LAST_SECOND)
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def with_ages(text: str, now_ns: int) -> str:
    """A text whose instants, written ``at 2026-01-31T08:15:00Z``, are said as ages: ``5 min ago``."""
    import re
    from datetime import datetime

    def age(match: "re.Match[str]") -> str:
        try:
            then_ns = int(datetime.fromisoformat(match[1]).timestamp()) * 1_000_000_000
        except (ValueError, OverflowError):
            return match[0]
        return format_ago(now_ns - then_ns)

    return re.sub(r"\bat (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)", age, text)


def covered_ns(intervals: "Sequence[tuple[int, int]]") -> int:
    """The time that some intervals cover together, in the order of their beginnings."""
    covered, end = 0, 0
    for first, last in intervals:
        covered += max(0, last - max(first, end))
        end = max(end, last)
    return covered


def to_ms(duration_ns: int) -> float:
    """Milliseconds, rounded to the microsecond, as JSON documents carry them."""
    return round(duration_ns / 1_000_000, 3)


def printable(text: str | bytes, most: int | None = PRINTED) -> str:
    """Text from a file, on one line and safe on a terminal: unprintable characters become U+FFFD.

    It is cut to ``most`` characters, or bytes. Bytes are read as UTF-8.
    """
    cut = text[:most]
    return _replaced(cut if isinstance(cut, str) else cut.decode("utf-8", "replace"), "")


def printable_lines(text: str) -> str:
    """Text of any length, safe on a terminal, with its line breaks and tabs."""
    return _replaced(text, "\n\t")


def _replaced(text: str, kept: str) -> str:
    if text.isprintable():  # as for nearly all of a hundred thousand rows
        return text
    return "".join(char if char in kept or char.isprintable() else "\ufffd" for char in text)
