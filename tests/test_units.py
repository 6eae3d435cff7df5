"""Sizes, ages and durations: the texts that people write and read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache import units
from gpucache.errors import UsageError


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("4096", 4096),
        ("4096b", 4096),
        (" 512M ", 512 * 1024**2),
        ("512 m", 512 * 1024**2),
        ("10MiB", 10 * 1024**2),
        ("10MB", 10 * 1000**2),
        ("100kB", 100_000),
        ("1.5GiB", 3 * 1024**3 // 2),
        ("2T", 2 * 1024**4),
    ],
)
def test_sizes_read(text: str, size_bytes: int) -> None:
    """A size is read in binary units, and in decimal ones where only a B follows the prefix."""
    assert units.parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "-1", "M", "10 X", "1e3", "1..5G", "nan", "9" * 400 + "T", "1 2"])
def test_what_is_no_size_is_refused(text: str) -> None:
    """A text that is not a size, or one larger than any disk, is refused with an example."""
    with pytest.raises(UsageError, match=r"is not a size; write a number with a unit, such as 512M"):
        units.parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("2m", 120), ("12h", 43_200), ("30d", 2_592_000), ("1.5 H", 5400), ("2w", 1_209_600)],
)
def test_ages_read(text: str, seconds: int) -> None:
    """An age is read from seconds to weeks."""
    assert units.parse_age_ns(text) == seconds * 1_000_000_000


@pytest.mark.parametrize("text", ["", "30", "-1d", "d", "1y", "9" * 400 + "d", "1d2h"])
def test_what_is_no_age_is_refused(text: str) -> None:
    """A text that is not an age is refused with an example."""
    with pytest.raises(UsageError, match=r"is not an age; .*such as 30d"):
        units.parse_age_ns(text)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    """Any text is read or refused, and raises nothing else."""
    for parse in (units.parse_size, units.parse_age_ns):
        try:
            assert parse(text) >= 0
        except UsageError as error:
            assert repr(text) in str(error)


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (4300, "4.2 KiB"),
        (150 * 1024, "150 KiB"),
        (3 * 1024**3 // 2, "1.5 GiB"),
        (5 * 1024**4, "5.0 TiB"),
        (5000 * 1024**4, "5000.0 TiB"),
    ],
)
def test_sizes_are_shown(size_bytes: int, text: str) -> None:
    """A size is shown in the unit that keeps it short."""
    assert units.format_size(size_bytes) == text


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (400_000, "0.4 ms"),
        (87_000_000, "87 ms"),
        (6_320_000_000, "6.32 s"),
        (125_000_000_000, "2 min 5 s"),
    ],
)
def test_durations_are_shown(duration_ns: int, text: str) -> None:
    """A duration is shown in milliseconds, seconds or minutes."""
    assert units.format_duration(duration_ns) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "now"), (59, "now"), (300, "5 min"), (3 * 3600 + 59, "3 h"), (12 * 86_400, "12 d")],
)
def test_ages_are_shown(seconds: int, text: str) -> None:
    """An age is shown in its largest fitting unit, and as now if a clock ran backwards."""
    assert units.format_age(seconds * 1_000_000_000) == text


@pytest.mark.parametrize(
    ("instant_ns", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_769_847_300_000_000_000, "2026-01-31T08:15:00Z"),
        (1_769_847_300_999_999_999, "2026-01-31T08:15:00Z"),
        (-1, "1970-01-01T00:00:00Z"),
        (10**30, "9999-12-31T23:59:59Z"),
    ],
)
def test_instants_are_shown(instant_ns: int, text: str) -> None:
    """An instant is shown in UTC, and one outside every calendar as the nearest date."""
    assert units.format_instant(instant_ns) == text


def test_milliseconds_keep_microseconds() -> None:
    """Milliseconds for a document are rounded to the microsecond."""
    assert units.to_ms(1_234_567) == 1.235


@pytest.mark.parametrize(("number", "text"), [(0, "0 entries"), (1, "1 entry"), (2, "2 entries")])
def test_a_count_is_in_the_singular_for_one_alone(number: int, text: str) -> None:
    """A plural is given, or made with an s."""
    assert units.format_count(number, "entry", "entries") == text
    assert units.format_count(number, "start") == f"{number} start{'' if number == 1 else 's'}"


@pytest.mark.parametrize(
    ("names", "text"),
    [([], ""), (["a"], "a"), (["a", "b"], "a, b"), (["a", "b", "c", "d"], "a, b and 2 more")],
)
def test_of_many_names_some_are_said(names: list[str], text: str) -> None:
    """The first ones, three by default, and the number of others."""
    assert units.format_list(names, 2) == text
    assert units.format_list(list("abcde")) == "a, b, c and 2 more"


@pytest.mark.parametrize(
    ("text", "safe"),
    [("a\x1b[31mb", "a\ufffd[31mb"), ("caf\udce9", "caf\ufffd"), ("a\tb\nc", "a\tb\nc"), ("é", "é")],
)
def test_what_a_terminal_would_obey_is_replaced(text: str, safe: str) -> None:
    """Escapes and bytes that are not text are shown as a mark; tabs, lines and letters stay."""
    assert units.printable_lines(text) == safe


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("a kernel", "a kernel"),
        ("two\nlines\tand \x1b[0m", "two\ufffdlines\ufffdand \ufffd[0m"),
        (b"caf\xc3\xa9 \xff", "caf\u00e9 \ufffd"),
        ("\udcff", "\ufffd"),
        (b"x" * 300, "x" * units.PRINTED),
    ],
)
def test_text_of_files_is_printable_on_one_line(text: str | bytes, safe: str) -> None:
    """Bytes are read as UTF-8, line breaks are replaced as well, and long text is cut."""
    assert units.printable(text) == safe
