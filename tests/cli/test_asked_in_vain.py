"""What is asked and cannot be answered or done ends with its exit code and a sentence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def test_removing_all_without_anybody_to_ask_needs_a_yes(run: Run, cache: Path) -> None:
    """Without a terminal --all alone removes nothing and says which option it wants."""
    before = sorted(cache.rglob("*.gpc"))
    answer = run("evict", "--all")
    assert (answer.code, sorted(cache.rglob("*.gpc"))) == (2, before)
    assert "say --yes" in answer.err


def test_a_check_that_could_not_check_is_no_pass(run: Run, cache: Path, tmp_path: Path) -> None:
    """A program that no device or target was found for makes --check exit 3."""
    (tmp_path / "alone.cu").write_text('extern "C" __global__ void alone() {}\n', encoding="ascii")
    answer = run("--json", "warm", "--check", tmp_path / "alone.cu")
    assert [row["result"] for row in answer.document["outcomes"]] == ["skipped"]
    assert answer.code in (3, 4)


def test_a_required_hit_is_required_with_bad_settings_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A size that does not read turns the cache off, not GPUCACHE_REQUIRE."""
    from gpucache import library

    monkeypatch.setenv("GPUCACHE_REQUIRE", "1")
    monkeypatch.setenv("GPUCACHE_MAX_SIZE", "foo")
    layers = library.layers()
    assert (layers.disabled, layers.require) == (True, True)


def test_a_root_that_cannot_be_made_is_said_before_anything_is_compiled(
    run: Run, tmp_path: Path, nvrtc: str
) -> None:
    """A root below a file ends warm with exit 5, a sentence, and no worker."""
    (tmp_path / "file").write_text("", encoding="ascii")
    (tmp_path / "some.cu").write_text('extern "C" __global__ void some() {}\n', encoding="ascii")
    answer = run("warm", tmp_path / "some.cu", "--target", nvrtc, at=tmp_path / "file" / "root")
    assert (answer.code, answer.out) == (5, "")
    assert str(tmp_path / "file" / "root") in answer.err
