"""Every benchmark still runs; its figures are not a promise."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.__main__ import NAMES
from tests.benchmarks.measure import process
from tests.patience import PATIENCE_S


@pytest.mark.skipif(sys.platform == "win32", reason="Windows tells no peak of a process that ended")
def test_the_peak_memory_of_a_process_is_its_own() -> None:
    """The memory of this process does not count."""
    held = bytearray(b"x" * (200 << 20))
    sample = process([sys.executable, "-c", "pass"])()
    assert 0 < sample.peak_bytes < len(held) / 2


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_benchmark_runs(name: str, tmp_path: Path) -> None:
    """Each benchmark names every side that it asked, and writes a sample of each for every round."""
    file = tmp_path / "found.json"
    command = [sys.executable, "-m", "tests.benchmarks", name]
    done = subprocess.run(
        [*command, "--small", "--rounds", "2", "--entries", "4", "--json", file],
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
        assert len(side["wall_ms"]["all"]) == 2
