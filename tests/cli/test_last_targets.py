"""``gpucache devices`` if its file for completions was replaced by something else."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpucache.probe.remembered import load_last
from tests.children import run_text

if TYPE_CHECKING:
    from tests.cli.conftest import Run

LAST = Path("v1", "targets.json")


@pytest.mark.parametrize(
    "content", ["[" * 60_000, '{"a":' * 10_000, "[" + "1," * 100_000, "17", '[["cuda:sm_90"]]', "\x00"]
)
def test_garbage_is_replaced(run: Run, cache: Path, nvrtc: str, content: str) -> None:
    """Whatever the file contains, even nesting too deep to parse, the targets are shown and stored anew."""
    (cache / LAST).write_text(content, encoding="utf-8")
    assert load_last(cache) == []
    assert run("devices").code == 0
    assert nvrtc in map(str, load_last(cache))


@pytest.mark.slow
def test_a_pipe_is_not_waited_for(cache: Path, vendors: Path, nvrtc: str) -> None:
    """A named pipe in place of the file does not block the command and is replaced."""
    (cache / LAST).unlink(missing_ok=True)
    os.mkfifo(cache / LAST)
    done = run_text(
        [sys.executable, "-m", "gpucache", "--root", cache, "--json", "devices"],
        env={**os.environ, "OCL_ICD_VENDORS": str(vendors)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert nvrtc in {row["target"] for row in json.loads(done.stdout)["outcomes"]}
    assert nvrtc in map(str, load_last(cache))


@pytest.mark.parametrize("place", [Path("v1"), LAST])
def test_a_link_leads_nowhere(run: Run, root: Path, tmp_path: Path, place: Path) -> None:
    """A link in place of the file or its directory is followed neither for reading nor for writing."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    other = elsewhere / "targets.json"
    other.write_text('["cuda:sm_70"]', encoding="ascii")
    (root / place).parent.mkdir(0o700, parents=True)
    root.chmod(0o700)
    (root / place).symlink_to(elsewhere if place == Path("v1") else other)
    before = [(path.name, path.read_bytes()) for path in elsewhere.iterdir()]
    assert run("devices").code == 0
    assert [(path.name, path.read_bytes()) for path in elsewhere.iterdir()] == before
    assert "cuda:sm_70" not in map(str, load_last(root))


def test_a_write_that_fails_leaves_nothing(run: Run, cache: Path) -> None:
    """Where a directory has the file's name, no other file of this name is there afterwards."""
    (cache / LAST).unlink(missing_ok=True)
    (cache / LAST).mkdir()
    assert run("devices").code == 0
    assert list(cache.rglob("*targets*")) == [cache / LAST]


def test_a_file_of_somebody_else_stays(run: Run, root: Path) -> None:
    """A directory that is not a cache may have its own ``v1/targets.json``."""
    (root / LAST).parent.mkdir(0o700, parents=True)
    root.chmod(0o700)
    (root / LAST).write_text('["north", "south"]', encoding="ascii")
    assert run("devices").code == 0
    assert (root / LAST).read_text(encoding="ascii") == '["north", "south"]'
