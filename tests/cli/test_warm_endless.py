"""``gpucache warm`` if a compile never ends: time limits, the poison list, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.children import has_ended
from tests.patience import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from tests.cli.conftest import Answer, Run

pytestmark = pytest.mark.slow

Write = Callable[..., Path]
VECTOR = 'extern "C" __global__ void vector(float *a) { a[threadIdx.x] += 1; }\n'


def _results(answer: Answer) -> dict[str, str]:
    return {row["program"]: row["result"] for row in answer.document["outcomes"]}


@pytest.fixture(scope="module")
def poisoned(
    filling: Run, nvrtc: str, endless: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path, Answer]:
    """Root, sources and answer of a run in which one program never ends; the other is already built."""
    place = tmp_path_factory.mktemp("poisoned")
    sources = place / "sources"
    sources.mkdir()
    (sources / "endless.cu").write_text(endless, encoding="utf-8")
    (sources / "vector.cu").write_text(VECTOR, encoding="utf-8")
    assert filling(sources / "vector.cu", "--target", nvrtc, "--root", place / "root").code == 0
    answer = filling(sources, "--target", nvrtc, "--timeout", "2", "--root", place / "root")
    return place / "root", sources, answer


def test_an_endless_compile_fails_alone(poisoned: tuple[Path, Path, Answer]) -> None:
    """A compile over its time limit is tried twice and fails its own item; its neighbour is a hit."""
    _, _, answer = poisoned
    assert _results(answer) == {"endless.cu": "failed", "vector.cu": "hit"}
    (failed,) = (row for row in answer.document["outcomes"] if row["result"] == "failed")
    assert "did not end within 2 s, twice" in failed["reason"]
    assert answer.code == 3


@pytest.mark.parametrize("check", [[], ["--check"]])
def test_a_poisoned_item_is_left_out(
    run: Run, poisoned: tuple[Path, Path, Answer], nvrtc: str, check: list[str], no_workers: None
) -> None:
    """The next run says why the item is left out and how to try it again, and compiles nothing."""
    root, sources, _ = poisoned
    answer = run("--json", "warm", sources, "--target", nvrtc, "--timeout", "2", *check, at=root)
    assert _results(answer) == {"endless.cu": "poisoned", "vector.cu": "hit"}
    (row,) = (row for row in answer.document["outcomes"] if row["result"] == "poisoned")
    assert "did not end within 2 s" in row["reason"] and "--retry" in row["reason"]
    assert answer.code == 3


def test_more_time_is_another_chance(run: Run, poisoned: tuple[Path, Path, Answer], nvrtc: str) -> None:
    """A program that exceeded a time limit is tried again under a longer one."""
    root, sources, _ = poisoned
    answer = run("--json", "warm", sources, "--target", nvrtc, "--timeout", "3", "--check", at=root)
    assert _results(answer) == {"endless.cu": "missing", "vector.cu": "hit"}


def test_retry_tries_a_poisoned_item(run: Run, poisoned: tuple[Path, Path, Answer], nvrtc: str) -> None:
    """With --retry the item is compiled again, and exceeds another time limit."""
    root, sources, _ = poisoned
    answer = run("--json", "warm", sources, "--target", nvrtc, "--retry", "--timeout", "0.1", at=root)
    (row,) = (row for row in answer.document["outcomes"] if row["program"] == "endless.cu")
    assert (row["result"], "within 0.1 s, twice" in row["reason"]) == ("failed", True)


def test_an_interrupt_ends_the_run_and_tells_what_was_not_reached(
    run: Run, root: Path, write: Write, nvrtc: str, endless: str, vendors: Path
) -> None:
    """Ctrl-C during a compile is exit 130: hits are kept, the rest is interrupted, no worker is left."""
    sources = write({"endless.cu": endless, "vector.cu": VECTOR})
    assert run("warm", sources / "vector.cu", "--target", nvrtc).code == 0
    base = root / "v1"
    child = subprocess.Popen(
        [sys.executable, "-m", "gpucache", "--root", root, "--json", "warm", sources, "--target", nvrtc],
        env={**os.environ, "OCL_ICD_VENDORS": str(vendors)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        # A worker takes the lock of the key just before it starts to compile.
        wait_until(lambda: any(base.glob("[0-9a-f]*.lock")))
        workers = _children(child.pid)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=PATIENCE_S)
    finally:
        child.kill()
    assert (child.returncode, err) == (130, "")
    rows = {row["program"]: row for row in json.loads(out)["outcomes"]}
    assert {name: row["result"] for name, row in rows.items()} == {
        "endless.cu": "interrupted",
        "vector.cu": "hit",
    }
    assert rows["endless.cu"]["reason"] == "it was being compiled"
    assert workers
    wait_until(lambda: all(map(has_ended, workers)))


def _children(parent: int) -> list[int]:
    tasks = Path(f"/proc/{parent}/task").glob("*/children")
    return [int(pid) for task in tasks for pid in task.read_text(encoding="ascii").split()]
