"""Every benchmark still runs; what it measures is nobody's promise here."""

import json
from pathlib import Path

import pytest

from tests.benchmarks.__main__ import NAMES, load, main
from tests.benchmarks.measure import Effort


@pytest.mark.parametrize("name", NAMES)
def test_benchmark_runs(name: str) -> None:
    """Each benchmark gives comparisons whose sides were all asked once a round."""
    found = list(load(name)(Effort(rounds=1, small=True, entries=(4,))))
    assert found
    assert all(len(side.samples) == 1 for comparison in found for side in comparison.sides)


def test_samples_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table names every side, and the file holds every sample of it."""
    main(["store-hit", "--small", "--rounds", "2", "--json", str(tmp_path / "found.json")])
    told = capsys.readouterr().out
    for comparison in json.loads((tmp_path / "found.json").read_text())["comparisons"]:
        for side in comparison["sides"]:
            assert side["name"] in told
            assert len(side["wall_ms"]["all"]) == 2
