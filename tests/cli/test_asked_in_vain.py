"""A request that cannot be served ends with its exit code and a sentence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpucache.errors import CacheMissError

Run = Callable[..., Any]


def test_removing_all_without_anybody_to_ask_needs_a_yes(run: Run, cache: Path) -> None:
    """Without a terminal --all alone removes nothing and says which option it wants."""
    before = sorted(cache.rglob("*.gpc"))
    answer = run("evict", "--all")
    assert (answer.code, sorted(cache.rglob("*.gpc"))) == (2, before)
    assert "pass --yes" in answer.err


def test_a_check_that_could_not_check_all_is_no_pass(
    run: Run, root: Path, tmp_path: Path, nvrtc: str
) -> None:
    """A hit next to a program that has no target makes --check exit 3, not 0."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "some.cu").write_text('extern "C" __global__ void some() {}\n', encoding="ascii")
    assert run("warm", programs, "--target", nvrtc, at=root).code == 0
    (programs / "other.cl").write_text("__kernel void other(void) {}\n", encoding="ascii")
    answer = run("--json", "warm", "--check", programs, "--target", nvrtc, at=root)
    assert sorted(row["result"] for row in answer.document["outcomes"]) == ["hit", "skipped"]
    assert answer.code == 3


def test_a_required_hit_is_required_with_bad_settings_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A size that cannot be parsed disables the cache, but not GPUCACHE_REQUIRE."""
    from gpucache.library import process

    monkeypatch.setenv("GPUCACHE_REQUIRE", "1")
    monkeypatch.setenv("GPUCACHE_MAX_SIZE", "foo")
    stores = process.stores()
    assert (stores.disabled, stores.require) == (True, True)


def test_a_program_cache_misses_no_required_hit(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    """With GPUCACHE_REQUIRE cuda.core's cache raises at a miss, before anything is compiled."""
    cuda = pytest.importorskip("gpucache.cuda")
    monkeypatch.setenv("GPUCACHE_REQUIRE", "1")
    monkeypatch.setenv("GPUCACHE_DIR", str(root))
    with pytest.raises(CacheMissError, match="opaque-key"):
        cuda.ProgramCache().get(bytes(32))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc, where nobody can make a folder")
def test_a_root_that_cannot_be_made_is_said_before_anything_is_compiled(
    run: Run, no_workers: None, tmp_path: Path, nvrtc: str
) -> None:
    """A root that not even root can make ends warm with exit 5, one sentence, and no worker."""
    (tmp_path / "some.cu").write_text('extern "C" __global__ void some() {}\n', encoding="ascii")
    answer = run("warm", tmp_path / "some.cu", "--target", nvrtc, at=Path("/proc/none/root"))
    assert (answer.code, answer.out) == (5, "")
    (sentence,) = answer.err.splitlines()
    assert "/proc/none/root cannot be written" in sentence and "--root" in sentence
