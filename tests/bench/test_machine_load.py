"""The load of other processes: arithmetic of two readings, and the kernel's text."""

import os
from pathlib import Path

import pytest

from gpucache.bench.run import STAT, Reading, foreign_share, read

BEFORE = Reading(at_s=100, busy_s=1000, own_s=50, cores=4)


@pytest.mark.parametrize(
    ("busy_s", "own_s", "wall_s", "share"),
    [(30, 10, 10, 0.5), (20, 20, 10, 0), (19.9, 20, 10, 0), (41, 0, 10, 1), (5, 0, 0, 0)],
)
def test_what_is_not_ours_is_foreign(busy_s: float, own_s: float, wall_s: float, share: float) -> None:
    """It is a share of all cores, even if clocks disagree by a tick; a missing reading counts as idle."""
    after = Reading(100 + wall_s, 1000 + busy_s, 50 + own_s, 4)
    assert foreign_share(BEFORE, after) == pytest.approx(share)
    assert foreign_share(None, after) == foreign_share(after, None) == 0


@pytest.fixture
def stat(tmp_path: Path) -> Path:
    return tmp_path / "stat"


def test_waiting_is_not_work_and_stolen_time_is(stat: Path) -> None:
    """Idle and iowait are left out, steal is counted, guests are in user already; cores are counted."""
    stat.write_text(
        "cpu  100 20 30 9999 8888 3 4 50 60 70\n"
        "cpu0 50 10 15 5000 4444 1 2 25 30 35\n"
        "cpu1 50 10 15 4999 4444 2 2 25 30 35\n"
        "intr 12345\n"
    )
    found = read(stat)
    assert found is not None
    assert (round(found.busy_s * os.sysconf("SC_CLK_TCK")), found.cores) == (207, 2)


@pytest.mark.parametrize(
    "text", [b"", b"cpu  1 2 3 4\n", b"cpu0 1 2 3 4\n", b"cpu  a b c\ncpu0 1\n", b"\xff\xfe"]
)
def test_a_text_that_tells_no_cores_is_no_reading(stat: Path, text: bytes) -> None:
    """A sandbox may show an empty file, or one without the lines that matter."""
    stat.write_bytes(text)
    assert read(stat) is None


def test_no_file_is_no_reading(stat: Path) -> None:
    """Another kernel has no such file."""
    assert read(stat) is None


def test_the_real_file_reads() -> None:
    """The kernel's own text gives cores, and time that does not run backwards."""
    if not STAT.is_file():
        pytest.skip(f"there is no {STAT} here")
    first, second = read(), read()
    assert first is not None and second is not None
    assert first.cores >= 1
    assert first.busy_s <= second.busy_s and first.own_s <= second.own_s
    assert 0 <= foreign_share(first, second) <= 1
