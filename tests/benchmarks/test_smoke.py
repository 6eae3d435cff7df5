"""Every benchmark still runs; its figures are not a promise."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.__main__ import NAMES
from tests.benchmarks.measure import Sample, Side, compare, process
from tests.patience import PATIENCE_S


@pytest.mark.skipif(sys.platform == "win32", reason="Windows tells no peak of a process that ended")
def test_the_peak_memory_of_a_process_is_its_own() -> None:
    """The memory of this process does not count."""
    held = bytearray(b"x" * (200 << 20))
    sample = process([sys.executable, "-c", "pass"])()
    assert 0 < sample.peak_bytes < len(held) / 2


def test_sides_take_turns() -> None:
    """Each has a turn that does not count, then one in every round, which begins with another side."""
    asked: list[str] = []

    def side(name: str) -> Side:
        def turn() -> Sample:
            asked.append(name)
            return Sample(len(asked), 0)

        return turn

    found = compare("", {name: side(name) for name in "ab"}, 2)
    assert "".join(asked) == "ababba"
    assert [[one.wall_ns for one in each.samples] for each in found.sides] == [[3, 6], [4, 5]]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_benchmark_runs(name: str, tmp_path: Path) -> None:
    """Each benchmark names every side that it asked, and writes a sample of each for its one round."""
    file = tmp_path / "found.json"
    command = [sys.executable, "-m", "tests.benchmarks", name]
    done = subprocess.run(
        [*command, "--small", "--rounds", "1", "--entries", "4", "--json", file],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())["comparisons"]
    assert found
    for side in (side for comparison in found for side in comparison["sides"]):
        assert side["name"] in done.stdout
        assert len(side["wall_ms"]["all"]) == 1
