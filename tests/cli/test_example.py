"""``gpucache warm --example``: every shipped program is built once, and all verbs agree on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpucache.examples import manifest_path

if TYPE_CHECKING:
    from tests.cli.conftest import Answer, Filled, Run

pytestmark = pytest.mark.slow


def _results(answer: Answer) -> dict[tuple[str, str], str]:
    return {(row["program"], row["target"]): row["result"] for row in answer.document["outcomes"]}


def test_example_builds_every_program_that_comes_along(example: Filled, pocl: str, intel: str) -> None:
    """Every example is built for the OpenCL devices of this machine and for the architectures it names."""
    assert example.answer.code == 0
    results = _results(example.answer)
    assert set(results.values()) == {"built"}
    assert {
        (program, target) for program in ("saxpy.cl", "reduce.cl", "fft.cl") for target in (pocl, intel)
    } <= set(results)
    assert {("matmul.cu", "cuda:sm_80"), ("vector_add.cu", "cuda:compute_80")} <= set(results)


def test_example_again_is_all_hits_and_says_what_next(run: Run, example: Filled, no_workers: None) -> None:
    """A second run of the examples finds every one, and points at the verbs that follow."""
    answer = run("warm", "--example", at=example.root)
    assert answer.code == 0
    assert f"{len(example.answer.document['outcomes'])} hit;" in answer.out
    assert "gpucache inspect" in answer.err and "gpucache verify" in answer.err


def test_the_examples_are_sound(run: Run, example: Filled) -> None:
    """Everything that ``warm --example`` built is checked and sound."""
    answer = run("verify", "--strict", at=example.root)
    count = len(example.answer.document["outcomes"])
    assert (answer.code, answer.out.strip()) == (0, f"{count} entries checked: no fault found")


def test_a_manifest_is_asked_about(run: Run, example: Filled) -> None:
    """--why with a warm list has a row for each of its builds, all hits in the warmed cache."""
    answer = run("inspect", "--why", manifest_path(), "--json", at=example.root)
    warmed = example.answer.document
    assert answer.code == 0
    assert answer.document["summary"]["hits"] == warmed["summary"]["built"] == len(warmed["outcomes"])


def test_a_manifest_is_named_as_for_warm(run: Run, example: Filled) -> None:
    """``--manifest`` works as for warm, and excludes sources."""
    answer = run("inspect", "--why", "--manifest", manifest_path(), "--json", at=example.root)
    assert (answer.code, answer.document["summary"]["misses"]) == (0, 0)
    both = run("inspect", "--why", "x.cl", "--manifest", manifest_path(), at=example.root)
    assert (both.code, both.out) == (2, "") and "do not go together" in both.err
