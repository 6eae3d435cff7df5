"""``warm`` with GPUCACHE_REMOTE: entries of another machine are hits, and new builds are sent."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.nvrtc import need_nvrtc
from tests.remote.fleet import Fleet

pytestmark = pytest.mark.slow


@pytest.fixture(name="fleet")
def _fleet(tmp_path: Path) -> Fleet:
    need_nvrtc()
    for value in (1, 2, 3):
        source = f'extern "C" __global__ void show{value}(int *out) {{ *out = {value}; }}'
        (tmp_path / f"show{value}.cu").write_text(source)
    fleet = Fleet(tmp_path)
    fleet.others()
    return fleet


def _warm(fleet: Fleet, root: str, *values: int, code: int = 0, check: bool = False, **settings: Any) -> Any:
    sources = [fleet.place / f"show{value}.cu" for value in values]
    words = ("warm", "--json", *sources, "--target", "cuda:compute_90", *(["--check"] if check else []))
    done = fleet.gpucache(root, *words, **settings)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) | {"said": done.stderr}


def _results(document: Any) -> list[tuple[str, bool]]:
    return [(one["result"], one["remote"]) for one in document["outcomes"]]


def test_what_one_machine_warmed_is_there_on_the_next(fleet: Fleet) -> None:
    """It is checked without being stored, then stored, then a local hit; the rest is built."""
    assert _results(_warm(fleet, "maker", 1, 2, **fleet.signing())) == [("built", False)] * 2
    assert len(fleet.objects()) == 2
    trusting = fleet.trusting()
    checked = _warm(fleet, "next", 1, 2, 3, check=True, code=3, **trusting)
    assert _results(checked) == [("hit", True), ("hit", True), ("missing", False)]
    assert not (fleet.place / "next").exists()
    warmed = _warm(fleet, "next", 1, 2, 3, **trusting)
    assert _results(warmed) == [("hit", True), ("hit", True), ("built", False)]
    assert (warmed["summary"]["hit"], warmed["summary"]["remote"]) == (2, 2)
    assert _results(_warm(fleet, "next", 1, 2, 3, **trusting)) == [("hit", False)] * 3
    assert len(fleet.entries("next")) == 3
    assert len(fleet.objects()) == 2


def test_people_read_where_the_hits_came_from(fleet: Fleet) -> None:
    """The sum has their number in brackets."""
    _warm(fleet, "maker", 1, **fleet.signing())
    words = ("warm", fleet.place / "show1.cu", "--target", "cuda:compute_90")
    assert "1 hit (1 from GPUCACHE_REMOTE);" in fleet.gpucache("next", *words, **fleet.trusting()).stdout


def test_a_store_that_is_not_used_is_one_line(fleet: Fleet) -> None:
    """Without a key of its own or a trusted one a machine builds everything, though the store has it."""
    _warm(fleet, "maker", 1, 2, 3, **fleet.signing())
    document = _warm(fleet, "next", 1, 2, 3)
    assert _results(document) == [("built", False)] * 3
    [line] = [line for line in document["said"].splitlines() if "GPUCACHE" in line]
    assert "GPUCACHE_TRUSTED_KEYS" in line


def test_why_predicts_a_hit_elsewhere(fleet: Fleet) -> None:
    """``inspect --why`` looks it up like the program, and stores nothing."""
    _warm(fleet, "maker", 1, **fleet.signing())
    words = ("inspect", "--why", "--json", fleet.place / "show1.cu", "--target", "cuda:compute_90")
    done = fleet.gpucache("next", *words, **fleet.trusting())
    assert done.returncode == 0, done.stderr
    assert '"verdict": "hit"' in done.stdout
    assert not (fleet.place / "next").exists()
