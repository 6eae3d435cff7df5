"""``gpucache bench`` with real starts in fresh processes; durations are never compared."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpucache.answers.bench import Arm, BenchCase, BenchVerdict, Ratio
from gpucache.bench.run import Command, Extent, Planned
from gpucache.bench.sources import Sources
from tests.answers.cases import compared
from tests.cli.conftest import Answer, Run

pytestmark = pytest.mark.slow

Write = Callable[..., Path]
TWICE_CL = "__kernel void twice(__global float *a) { a[get_global_id(0)] *= 2; }\n"
VECTOR = 'extern "C" __global__ void vector(float *a) { a[threadIdx.x] += 1; }\n'
INCLUDING = '#include "value.h"\n' + VECTOR
CUBIN = ("--runs", "1", "--target", "cuda:sm_90")


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other load on this machine does not affect these tests."""
    monkeypatch.setattr("gpucache.bench.run.read", lambda: None)


def _case(answer: Answer) -> Any:
    (case,) = answer.document["outcomes"]
    return case


def _phases(case: Any) -> tuple[list[str], list[str]]:
    """The phases of a cold and of a warm start."""
    cold = [row["phase"] for row in case["phases"] if row["cold_ms"] is not None]
    return cold, [row["phase"] for row in case["phases"] if row["warm_ms"] is not None]


def _samples(case: Any, arm: str) -> list[Any]:
    return [sample for sample in case["samples"] if sample["arm"] == arm]


def test_a_cold_start_compiles_and_a_warm_one_hits(run: Run, root: Path, write: Write, pocl: str) -> None:
    """With a local size both starts reach their first launch; PoCL's own cache shows which compiled."""
    source = write({"twice.cl": TWICE_CL}) / "twice.cl"
    answer = run("--json", "bench", source, "--target", pocl, "--local-size", "64", "--runs", "2")
    case = _case(answer)
    assert (answer.code, case["program"], case["target"]) == (0, "twice.cl", pocl)
    assert case["verdict"] in {"undecided", "degraded"}
    assert "missed" not in case["reason"] and "not cold" not in case["reason"]
    assert _phases(case) == (
        ["process start", "context", "compile", "kernels", "first launch"],
        ["process start", "context", "key", "lookup", "load", "kernels", "first launch"],
    )
    assert case["cold"]["runs"] == case["warm"]["runs"] == 2
    assert case["ratio"]["low"] <= case["ratio"]["median"] <= case["ratio"]["high"]
    cold, warm = _samples(case, "cold"), _samples(case, "warm")
    assert all(not sample["hit"] and sample["growth"][0]["cache"] == "pocl" for sample in cold)
    assert all(sample["hit"] and sample["growth"] == [] for sample in warm)
    assert case["growth"][0]["entries"] > 0
    assert case["redirects"]["POCL_CACHE_DIR"] == "DIR/pocl"
    assert not root.exists()


def test_without_a_cuda_device_nothing_is_loaded(run: Run, write: Write, nvrtc: str, devices: Any) -> None:
    """For an absent CUDA target compiling is timed against looking up, and the text says so."""
    if any(device.backend == "cuda" and device.present for device in devices):
        pytest.skip("a CUDA device is here")
    answer = run("--json", "bench", write({"vector.cu": VECTOR}), *CUBIN)
    case = _case(answer)
    assert answer.code == 0
    assert "nothing was loaded, as this machine has no device of this target" in case["notes"]
    assert _phases(case) == (
        ["process start", "context", "compile"],
        ["process start", "context", "key", "lookup"],
    )


@pytest.mark.parametrize("peer", ["pyopencl", "driver"])
def test_a_peer_of_pocl_is_pocls_own_cache(run: Run, write: Write, pocl: str, peer: str) -> None:
    """Filled by its first start and left alone by later ones; PyOpenCL leaves PoCL's programs to PoCL."""
    sized = ("--target", pocl, "--local-size", "64", "--runs", "1")
    case = _case(run("--json", "bench", write({"twice.cl": TWICE_CL}), *sized, "--against", peer))
    (arm,) = case["arms"]
    assert (arm["arm"], arm["runs"]) == (peer, 1)
    assert ("leaves that to pocl" in arm["reason"]) is (peer == "pyopencl")
    (sample,) = _samples(case, peer)
    assert (sample["growth"], sample["hit"]) == ([], False)


def test_pyopencls_own_cache_answers_for_intel(run: Run, write: Write, intel: str) -> None:
    """If the platform has no cache, PyOpenCL's is filled once and serves from then on."""
    options = ("--target", intel, "--runs", "1", "--against", "pyopencl", "--against", "driver")
    case = _case(run("--json", "bench", write({"twice.cl": TWICE_CL}), *options))
    reasons = {arm["arm"]: arm["reason"] for arm in case["arms"]}
    assert reasons == {"pyopencl": "", "driver": "nothing is cached, so these are cold starts"}


def test_cuda_cores_cache_answers_for_a_cubin(run: Run, write: Write, nvrtc: str) -> None:
    """Its cache is filled once and serves from then on; caches for another language do not take part."""
    options = (*CUBIN, "--against", "cuda.core", "--against", "pyopencl")
    case = _case(run("--json", "bench", write({"vector.cu": VECTOR}), *options))
    assert [(arm["arm"], arm["reason"]) for arm in case["arms"]] == [("cuda.core", "")]
    assert "pyopencl does not take part: its cache is for OpenCL programs" in case["notes"]


def test_what_a_peer_refuses_is_told_in_its_own_words(run: Run, write: Write, nvrtc: str) -> None:
    """cuda.core's cache takes no program with headers; the case is measured without it."""
    sources = write({"vector.cu": INCLUDING, "value.h": "#define VALUE 1\n"})
    case = _case(run("--json", "bench", sources / "vector.cu", *CUBIN, "--against", "cuda.core"))
    assert (case["arms"], case["cold"]["runs"]) == ([], 1)
    (note,) = (note for note in case["notes"] if note.startswith("cuda.core does not take part"))
    assert "include" in note


def test_a_program_that_does_not_compile_is_exit_3(run: Run, write: Write, nvrtc: str) -> None:
    """A case that fails says why, and the others are measured."""
    sources = write({"bad.cu": "nonsense\n", "vector.cu": VECTOR})
    answer = run("--json", "bench", sources, "--target", nvrtc, "--runs", "1")
    cases = {case["program"]: case for case in answer.document["outcomes"]}
    assert (answer.code, cases["bad.cu"]["verdict"]) == (3, "failed")
    assert "bad.cu does not compile" in cases["bad.cu"]["reason"]
    assert cases["vector.cu"]["cold"]["runs"] == 1
    summary = answer.document["summary"]
    assert (summary["cases"], summary["failed"], summary["below"]) == (2, 1, [])


def test_nothing_to_start_is_exit_4(run: Run, write: Write, devices: Any) -> None:
    """If no program has a target on this machine, the message has the remedy and its own exit code."""
    if any(device.backend == "cuda" and device.present for device in devices):
        pytest.skip("a CUDA device is here")
    answer = run("--json", "bench", write({"vector.cu": VECTOR}), "--runs", "1")
    assert answer.code == 4
    assert "--target cuda:sm_90" in _case(answer)["reason"]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[BenchCase]:
    """A fixed result of every run; nothing is started."""
    cases = [BenchCase("p.cu", "cuda:sm_90", BenchVerdict.FASTER, starts=compared(Ratio(6, 5, 7)))]

    def answer(*_: object, **__: object) -> Iterator[BenchCase]:
        yield from cases

    monkeypatch.setattr("gpucache.bench.run.run_bench", answer)
    return cases


@pytest.mark.parametrize(("wanted", "code"), [("5", 0), ("5.5", 3)])
def test_a_gate_goes_by_the_low_end(
    run: Run, write: Write, nvrtc: str, measured: list[BenchCase], wanted: str, code: int
) -> None:
    """A case whose interval reaches below the limit is exit 3, and is named."""
    answer = run("--json", "bench", write({"p.cu": VECTOR}), "--target", nvrtc, "--fail-below", wanted)
    below = answer.document["summary"]["below"]
    assert (answer.code, len(below)) == (code, 1 if code else 0)
    assert ("p.cu on cuda:sm_90 is 5.00 times as fast" in answer.err) is bool(code)


def test_a_gate_does_not_believe_a_degraded_case(
    run: Run, write: Write, nvrtc: str, measured: list[BenchCase]
) -> None:
    """However high its ratio, a case that is not faster is exit 3; without a gate it is exit 0."""
    starts = compared(Ratio(60, 50, 70))
    measured[:] = [BenchCase("p.cu", "t", BenchVerdict.DEGRADED, "it missed", starts=starts)]
    command = ("bench", write({"p.cu": VECTOR}), "--target", nvrtc)
    assert run(*command).code == 0
    answer = run("--quiet", *command, "--fail-below", "2")
    assert (answer.code, answer.out) == (3, "")
    assert "p.cu on t is degraded, not 2 times as fast" in answer.err


def test_the_extent_reaches_the_run(
    run: Run, write: Write, nvrtc: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pairs, budget and peers are passed on as given, each peer once; by default they are left open."""
    seen: list[Extent] = []
    peers: list[tuple[str, ...]] = []

    def note(_: object, extent: Extent, **__: object) -> list[BenchCase]:
        seen.append(extent)
        return []

    def plan(made_of: Sources, _: object) -> list[object]:
        peers.append(made_of.against)
        return []

    monkeypatch.setattr(Sources, "plan", plan)

    monkeypatch.setattr("gpucache.bench.run.run_bench", note)
    command = ("bench", write({"p.cu": VECTOR}), "--target", nvrtc)
    run(*command)
    run(*command, "--runs", "7", "--budget", "30", *("--against", "driver") * 2, "--against", "cuda.core")
    assert seen == [Extent(), Extent(7, 30.0)]
    assert peers == [(), (Arm.DRIVER, "cuda.core")]


def test_an_export_holds_figures_samples_and_the_machine(
    run: Run, write: Write, nvrtc: str, tmp_path: Path
) -> None:
    """The JSON file has every sample, and the software, devices and toolchain of the measurement."""
    file = tmp_path / "figures.json"
    answer = run("bench", write({"vector.cu": VECTOR}), *CUBIN, "--export", file)
    assert answer.code == 0
    written = json.loads(file.read_text(encoding="utf-8"))
    assert [sample["arm"] for sample in written["outcomes"][0]["samples"]].count("warm") == 1
    machine = written["fingerprint"]
    assert {"gpucache", "Python", "platform", "CPU", "devices", "toolchains", "redirects"} <= set(machine)
    assert "NVRTC version" in machine["toolchains"]["cuda:sm_90"]
    assert "cuda:sm_80" not in machine["devices"]
    assert machine["redirects"]["CUDA_CACHE_PATH"] == "DIR/ComputeCache"
    assert str(file) in answer.err


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any start of a run fails the test."""

    def refuse(*_: object, **__: object) -> Any:
        raise AssertionError("something was measured")

    monkeypatch.setattr("gpucache.bench.run.run_bench", refuse)


@pytest.mark.parametrize("form", ["png", "svg", "pdf"])
def test_a_plot_needs_its_extra(
    run: Run, nothing_runs: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """Without matplotlib a plot is refused before anything is measured, with the command that installs it."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    file = tmp_path / f"x.{form}"
    for words in (("bench", "--export", file, "--", "true"), ("inspect", "--plot", file)):
        answer = run(*words)
        assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
        assert "pip install matplotlib" in answer.err and not list(tmp_path.iterdir())


def test_trying_an_export_leaves_what_is_there(
    run: Run, write: Write, nvrtc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier export stays unchanged until there are new figures."""
    file = tmp_path / "figures.md"
    file.write_text("earlier", encoding="utf-8")
    monkeypatch.setattr("gpucache.cli.bench._programs", lambda *_: None)
    assert run("bench", write({"p.cu": VECTOR}), "--target", nvrtc, "--export", file).code == 0
    assert file.read_text(encoding="utf-8") == "earlier"


def test_a_command_is_judged_and_exported_like_a_program(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, devices: Any
) -> None:
    """A command's case goes through the same gate and into the same file."""
    asked: list[tuple[int, Command]] = []

    def measured(plan: Sequence[Planned], extent: Extent, **_: object) -> Iterator[BenchCase]:
        command = getattr(plan[0].begin, "__self__", None)
        assert isinstance(command, Command)
        asked.append((extent.least, command))
        yield replace(plan[0].case, verdict=BenchVerdict.FASTER, starts=compared(Ratio(3, 2, 4)))

    monkeypatch.setattr("gpucache.bench.run.run_bench", measured)
    file = tmp_path / "app.json"
    answer = run("bench", "--as-is", "--fail-below", "2.5", "--export", file, "--", "./app", "-x")
    ((pairs, command),) = asked
    assert (answer.code, pairs, command.as_is, command.same_output) == (3, 5, True, False)
    assert "./app -x is 2.00 times as fast" in answer.err
    assert json.loads(file.read_text(encoding="utf-8"))["outcomes"][0]["program"] == "./app -x"
