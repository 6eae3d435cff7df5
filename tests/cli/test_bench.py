"""``gpucache bench`` with real starts in fresh processes; durations are never compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Answer, Run

Write = Callable[..., Path]
TWICE_CL = "__kernel void twice(__global float *a) { a[get_global_id(0)] *= 2; }\n"
VECTOR = 'extern "C" __global__ void vector(float *a) { a[threadIdx.x] += 1; }\n'


def _case(answer: Answer) -> Any:
    (case,) = answer.document["outcomes"]
    return case


def _phases(case: Any) -> tuple[list[str], list[str]]:
    """The phases of a cold and of a warm start."""
    cold = [row["phase"] for row in case["phases"] if row["cold_ms"] is not None]
    return cold, [row["phase"] for row in case["phases"] if row["warm_ms"] is not None]


def test_a_cold_start_compiles_and_a_warm_one_loads(run: Run, root: Path, write: Write, pocl: str) -> None:
    """With a local size both starts reach their first launch, so a ratio of pairs is given."""
    source = write({"twice.cl": TWICE_CL}) / "twice.cl"
    answer = run("--json", "bench", source, "--target", pocl, "--local-size", "64", "--runs", "1")
    case = _case(answer)
    assert (answer.code, case["verdict"], case["program"], case["target"]) == (
        0,
        "measured",
        "twice.cl",
        pocl,
    )
    assert _phases(case) == (
        ["context", "compile", "kernels", "first launch"],
        ["context", "key", "lookup", "load", "kernels", "first launch"],
    )
    assert case["cold"]["runs"] == case["warm"]["runs"] == 1
    assert case["ratio"]["low"] == case["ratio"]["median"] == case["ratio"]["high"] > 0
    assert [sample["temperature"] for sample in case["samples"]] == ["cold", "warm"]
    assert not root.exists()


def test_without_a_local_size_pocl_gives_no_ratio(run: Run, write: Write, pocl: str) -> None:
    """PoCL compiles at the first launch, which is not known without a local size: no ratio, and why."""
    answer = run("--json", "bench", write({"twice.cl": TWICE_CL}), "--target", pocl, "--runs", "1")
    case = _case(answer)
    assert (answer.code, case["verdict"], case["ratio"]) == (0, "no-ratio", None)
    assert "--local-size" in case["reason"]
    assert "first launch" not in _phases(case)[0]


def test_without_a_cuda_device_nothing_is_loaded(run: Run, write: Write, nvrtc: str, devices: Any) -> None:
    """For a CUDA target that is not here compiling is timed against looking up, and the text says so."""
    if any(device.backend == "cuda" and device.present for device in devices):
        pytest.skip("a CUDA device is here")
    answer = run("bench", write({"vector.cu": VECTOR}), "--target", nvrtc, "--runs", "1")
    assert answer.code == 0
    assert "nothing was loaded, as no device of this target is here" in answer.out
    assert "compile" in answer.out and "lookup" in answer.out and "first launch" not in answer.out


def test_a_program_that_does_not_compile_is_exit_3(run: Run, write: Write, nvrtc: str) -> None:
    """A case that fails says why, and the others are measured."""
    sources = write({"bad.cu": "nonsense\n", "vector.cu": VECTOR})
    answer = run("--json", "bench", sources, "--target", nvrtc, "--runs", "1")
    verdicts = {case["program"]: case["verdict"] for case in answer.document["outcomes"]}
    assert (answer.code, verdicts) == (3, {"bad.cu": "failed", "vector.cu": "measured"})
    (failed,) = (case for case in answer.document["outcomes"] if case["verdict"] == "failed")
    assert "bad.cu does not compile" in failed["reason"]
    assert answer.document["summary"] == {"cases": 2, "failed": 1}


def test_nothing_to_start_is_exit_4(run: Run, write: Write, devices: Any) -> None:
    """Where no program has a target here, that is said with the remedy and the exit code of its own."""
    if any(device.backend == "cuda" and device.present for device in devices):
        pytest.skip("a CUDA device is here")
    answer = run("--json", "bench", write({"vector.cu": VECTOR}), "--runs", "1")
    assert answer.code == 4
    assert "--target cuda:sm_90" in _case(answer)["reason"]
