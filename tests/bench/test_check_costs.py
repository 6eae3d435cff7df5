"""The costs of checks: the plan of the suite, figures of its samples, and their geometric means."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from gpucache.answers.bench import CheckedCase, Ratio, summarise_checked
from gpucache.bench import check_costs
from gpucache.bench.check_costs import SUITE, CheckedJob, plan_checked, run_checked
from gpucache.engine.workers.pool import Died, Done, Failed
from gpucache.errors import CompileError, NoDeviceError, TargetError
from gpucache.examples import checks_path
from gpucache.model import Checks, Device, Language, Program, Target, Toolchain

_TOOLCHAIN = Toolchain("pocl", (("platform name", "P"),), ("platform name",))
_DEVICES = [
    Device(Target("opencl", name), "opencl", name, "1", available=True, detail="", toolchain=_TOOLCHAIN)
    for name in ("a/cpu", "b/cpu")
]
_CUDA = Device(Target("cuda", "sm_90"), "cuda", "sm_90", "1", available=True, detail="", toolchain=_TOOLCHAIN)
_SUITE = Program("suite.cl", Language.OPENCL_C, checks_path().read_bytes())
_DURATIONS = {
    mode: [number * factor for number in (10, 20, 30)] for mode, factor in zip(Checks, (1, 4, 2), strict=True)
}


def test_every_device_is_timed_unless_some_are_named() -> None:
    """Each job is the suite for one target."""
    everything = plan_checked(_SUITE, _DEVICES, (), 3)
    assert [str(job.request.target) for job in everything] == ["opencl:a/cpu", "opencl:b/cpu"]
    assert [job.runs for job in plan_checked(_SUITE, _DEVICES, ["opencl:b"], 3)] == [3]


def test_what_cannot_be_timed_is_told() -> None:
    """A CUDA target, and a machine without an OpenCL device."""
    with pytest.raises(TargetError, match="cuda:sm_90 is not one"):
        plan_checked(_SUITE, [*_DEVICES, _CUDA], ["cuda:sm_90"], 3)
    with pytest.raises(NoDeviceError, match="no OpenCL device exists"):
        plan_checked(_SUITE, [], (), 3)


def test_ratios_are_of_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each mode is divided by none; a target that fails is reported, and the others are timed."""
    answers = [
        Failed(CompileError("it does not compile", "a log")),
        Died("it ran into its time limit"),
        Done({case.name: _DURATIONS for case in SUITE}),
    ]

    def isolated(_: Any, jobs: Sequence[CheckedJob], *__: Any) -> Iterator[Any]:
        yield from zip([*jobs, jobs[0]], answers, strict=True)

    monkeypatch.setattr(check_costs, "run_isolated", isolated)
    jobs = plan_checked(_SUITE, _DEVICES, (), 3)
    failed, died, *timed = run_checked(jobs, lambda _: {}, 1.0, lambda _: None)
    assert (failed.error, died.error) == ("it does not compile\na log", "it ran into its time limit")
    assert [one.kernel for one in timed] == [case.name for case in SUITE]
    assert timed[0].none_ns == 20
    assert [one and round(one.median, 6) for one in (timed[0].sync, timed[0].asynchronous)] == [4.0, 2.0]


def test_means_are_geometric_and_of_each_target() -> None:
    """Twice and half as long cancel out; a target that failed has none."""

    def case(target: str, sync: float) -> CheckedCase:
        return CheckedCase(target, "k", sync=Ratio(sync, 0, 0), asynchronous=Ratio(3.0, 0, 0))

    means = summarise_checked([case("a", 2.0), case("a", 0.5), case("b", 7.0), CheckedCase("c", error="no")])
    assert [(one.target, round(one.sync, 6), round(one.asynchronous, 6)) for one in means] == [
        ("a", 1.0, 3.0),
        ("b", 7.0, 3.0),
    ]
