"""Contradicting options are refused, and -v prints more for every verb."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Run


@pytest.mark.parametrize(
    "words", [["devices"], ["verify"], ["inspect", "--list"], ["evict", "--all", "--yes"]]
)
def test_verbose_says_more(run: Run, cache: Path, words: list[str]) -> None:
    """Each verb says more with -v: toolchains, sound entries, whole keys, each entry that went."""
    told = run(*words, "-v").out
    assert any(part in told for part in ("platform version: ", ": no fault found", " was removed: ")) or any(
        len(word) == 64 for word in told.split()
    )


def test_a_missing_reason_that_many_share_is_told_once(run: Run, root: Path) -> None:
    """Programs that were never built share one sentence with their number; -v reports each."""
    words = ("warm", "--example", "--target", "cuda:sm_90", "--check")
    short, whole = run(*words).out, run(*words, "-v").out
    assert short.count("never-built") == 1 and "3 missing: never-built: " in short
    assert whole.count("never-built") == 3
