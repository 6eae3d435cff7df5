"""A run of bench with starts that only write files: order, isolation, and when it ends."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from gpucache.answers.bench import Arm, BenchCase, BenchVerdict, Sample
from gpucache.answers.lookup import Built, Miss, Verdict
from gpucache.backends.interface import load_backend
from gpucache.bench import run as running
from gpucache.bench import sources
from gpucache.bench.run import Extent, Planned, run_bench
from gpucache.bench.sources import Sources, StartJob, Workers
from gpucache.engine.prepare import Prepared
from gpucache.engine.warm.plan import WarmItem
from gpucache.engine.workers.pool import Bounds
from gpucache.model import Artifact, ArtifactKind, CacheKey
from tests.caches.mesa import build as mesa

DEFAULT = Extent()
BUILT = Built(Artifact(ArtifactKind.PTX, b"x"), Miss(Verdict.NEVER_BUILT, ""), CacheKey("0" * 64))


@dataclass(slots=True)
class Starts:
    """Returns prepared samples, and remembers its jobs."""

    build: Any = BUILT
    failing: frozenset[str] = frozenset()
    prepared: list[StartJob] = field(default_factory=list)
    asked: list[StartJob] = field(default_factory=list)

    def workers(self) -> Workers:
        return Workers(self.build_once, lambda _: (), self.sample)

    def build_once(self, wanted: StartJob) -> Any:
        self.prepared.append(wanted)
        return self.build

    def sample(self, job: StartJob) -> Sample:
        self.asked.append(job)
        folder = Path(dict(job.environment)["MESA_SHADER_CACHE_DIR"] or "") / "mesa_shader_cache"
        if not folder.exists():
            mesa.put(folder)
        if job.arm in self.failing:
            return Sample(job.arm, error="no such device")
        return Sample(job.arm, (("compile", 80 if job.arm == Arm.COLD else 20),))

    @property
    def arms(self) -> list[str]:
        return [job.arm for job in self.asked]


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process is started, and no other user uses the machine."""

    def call(function: Callable[[Any], Any], item: Any, _: Bounds) -> Any:
        return function(item)

    monkeypatch.setattr(sources, "one", call)
    monkeypatch.setattr(running, "read", lambda: None)


@pytest.fixture
def run(ready: Callable[..., Prepared]) -> Callable[..., BenchCase]:
    made = ready()

    def one(
        starts: Starts,
        extent: Extent = DEFAULT,
        item: WarmItem | None = None,
        against: tuple[str, ...] = (),
        progress: Callable[[str], None] = lambda _: None,
    ) -> BenchCase:
        toolchain = made.compilation.inputs.toolchain
        wanted = WarmItem("show", "cuda:compute_90", "T=int", made.request, toolchain)
        backends = {name: load_backend(name) for name in ("opencl", "cuda")}
        made_of = Sources(Bounds(), backends, {}, against, starts.workers())
        (case,) = run_bench(made_of.plan([item or wanted]), extent, progress=progress)
        return case

    return one


Run = Callable[..., BenchCase]


def test_every_round_has_one_start_of_each_arm(run: Run) -> None:
    """Five pairs follow the uncounted one, whose starts are not among the samples."""
    starts = Starts()
    case = run(starts)
    rounds = [starts.arms[number : number + 2] for number in range(0, 12, 2)]
    assert all(set(one) == {Arm.COLD, Arm.WARM} for one in rounds)
    assert len(starts.arms) == 12
    assert [sample.arm for sample in case.samples] == starts.arms[2:]
    assert (case.program, case.target, case.variant) == ("show", "cuda:compute_90", "T=int")


def test_no_arm_is_always_first(run: Run) -> None:
    """The order within a round is drawn, and drawn alike in every run."""
    first, second = Starts(), Starts()
    run(first, Extent(runs=20))
    run(second, Extent(runs=20))
    assert {first.arms[number] for number in range(0, 40, 2)} == {Arm.COLD, Arm.WARM}
    assert first.arms == second.arms


def test_every_cold_start_has_empty_folders_that_go(run: Run) -> None:
    """No two cold starts share a directory, so each writes; warm ones share one, and the first fills it."""
    starts = Starts()
    case = run(starts)
    folders = {
        arm: [dict(job.environment)["MESA_SHADER_CACHE_DIR"] for job in starts.asked if job.arm is arm]
        for arm in (Arm.COLD, Arm.WARM)
    }
    assert (len(set(folders[Arm.COLD])), len(set(folders[Arm.WARM]))) == (6, 1)
    assert {len(sample.growth) for sample in case.samples if sample.arm == Arm.COLD} == {1}
    assert {sample.growth for sample in case.samples if sample.arm == Arm.WARM} == {()}
    assert case.verdict is BenchVerdict.FASTER
    assert [(one.cache, one.entries, one.size_bytes > 0) for one in case.growth] == [("mesa", 1, True)]
    assert not any(Path(folder or "").exists() for folder in folders[Arm.COLD])


def test_a_process_is_asked_for_just_before_each_start(run: Run) -> None:
    """Each start gets the time of its request, later than the one before."""
    starts = Starts()
    run(starts)
    instants = [job.asked_ns for job in starts.asked]
    assert instants == sorted(instants) and instants[0] > 0


@pytest.mark.parametrize("arm", [Arm.COLD, Arm.WARM])
def test_a_failed_start_ends_the_case(run: Run, arm: str) -> None:
    """No further start is made once a cold or a warm one failed."""
    starts = Starts(failing=frozenset({arm}))
    case = run(starts)
    assert (case.verdict, case.reason) == (BenchVerdict.FAILED, f"a {arm} start failed: no such device")
    assert len(starts.asked) <= 2 and starts.arms[-1] is arm


def test_a_peer_that_fails_is_not_started_again(run: Run) -> None:
    """The others go on without it, and a note says why it is left out."""
    starts = Starts(failing=frozenset({"cuda.core"}))
    case = run(starts, against=("cuda.core", Arm.DRIVER, "pyopencl"))
    assert starts.arms.count("cuda.core") == 1
    assert starts.arms.count(Arm.DRIVER) == 6
    assert [one.arm for one in case.arms] == [Arm.DRIVER]
    assert "cuda.core does not take part: no such device" in case.caveats
    assert "pyopencl does not take part: its cache is for OpenCL programs" in case.caveats


def test_every_start_loads_the_libraries_of_the_peers(run: Run) -> None:
    """Cold and warm starts load a peer's libraries too; only the peer has a directory for it."""
    starts = Starts()
    run(starts, Extent(runs=1), against=("cuda.core",))
    assert {job.peers for job in starts.asked} == {("cuda.core",)}
    assert {job.arm for job in starts.asked if job.peer_folder} == {"cuda.core"}


def test_an_interrupt_keeps_whole_pairs_and_names_what_was_not_reached(
    ready: Callable[..., Prepared], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the second counted round leaves one pair; the other programs are reported."""
    made, starts = ready(), Starts()

    def sample(job: StartJob) -> Sample:
        if len(starts.asked) == 5:
            raise KeyboardInterrupt
        return starts.sample(job)

    toolchain = made.compilation.inputs.toolchain
    item = WarmItem("show", "cuda:compute_90", "", made.request, toolchain)
    workers = replace(starts.workers(), sample=sample)
    made_of = Sources(
        Bounds(), {name: load_backend(name) for name in ("opencl", "cuda")}, {}, workers=workers
    )
    cases = list(run_bench(made_of.plan([item, item]), DEFAULT))
    assert all(case.interrupted and case.verdict is BenchVerdict.UNDECIDED for case in cases)
    assert cases[0].cold is not None and cases[0].cold.runs == 1
    assert "it was interrupted after 1 pair of starts" in cases[0].caveats
    assert cases[1].reason == "it was interrupted before this was reached"


def test_what_does_not_build_is_not_started(run: Run) -> None:
    """If nothing was stored there is nothing to warm, and the reason is reported."""
    for built, reason in (
        ("it does not compile", "it does not compile"),
        (BUILT._replace(key=None, note="the disk is full"), "nothing was cached: the disk is full"),
    ):
        starts = Starts(build=built)
        case = run(starts)
        assert (case.verdict, case.reason, starts.asked) == (BenchVerdict.FAILED, reason, [])


def test_what_has_no_target_is_not_tried(run: Run) -> None:
    """An item that was skipped in the plan says why."""
    starts = Starts()
    case = run(starts, item=WarmItem("p", "", skipped="no device is here"))
    assert (case.verdict, case.reason, starts.asked) == (BenchVerdict.FAILED, "no device is here", [])


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """A clock that advances by ten seconds at each reading."""
    now = [0.0]

    class Clock:
        perf_counter_ns = staticmethod(lambda: 0)
        time_ns = staticmethod(lambda: 1)

        @staticmethod
        def monotonic() -> float:
            now[0] += 10
            return now[0]

    for module in (running, sources):
        monkeypatch.setattr(module, "time", Clock)
    yield now


def test_a_budget_is_filled(run: Run, seconds: list[float]) -> None:
    """Rounds of ten seconds fill a budget of 100 with nine pairs and the one that is not counted."""
    starts = Starts()
    case = run(starts, Extent(budget_s=100))
    assert case.cold is not None and case.cold.runs == 9


@pytest.mark.parametrize(
    ("extent", "pairs"),
    [
        (Extent(), 5),
        (Extent(runs=3), 3),
        (Extent(budget_s=1), 5),
        (Extent(runs=2, budget_s=1), 2),
        (Extent(runs=12, budget_s=1), 12),
        (Extent(budget_s=60.0), 5),
        (Extent(budget_s=79.0), 6),
        (Extent(budget_s=80.0), 7),
    ],
)
def test_a_run_ends_after_so_many_pairs(extent: Extent, pairs: int) -> None:
    """At ten seconds a round: at least the requested pairs, and no pair beyond the budget."""
    taken = next(number for number in range(100) if extent.is_enough(number, number + 1, 10.0 * (number + 1)))
    assert taken == pairs


def test_starts_look_where_the_program_was_built(run: Run) -> None:
    """The one build gets the root that every start searches."""
    starts = Starts()
    run(starts, Extent(runs=1))
    assert {job.root for job in starts.asked} == {starts.prepared[0].root}


def test_an_interrupt_before_the_first_start_leaves_a_case_without_figures() -> None:
    """Ctrl-C while caches are filled ends the run, and the case says so."""

    def begin(*_: object) -> str:
        raise KeyboardInterrupt

    plan = [Planned(BenchCase(name, "", BenchVerdict.FAILED), begin) for name in ("a", "b")]
    cases = list(run_bench(plan, DEFAULT))
    assert [(case.verdict, case.interrupted) for case in cases] == [(BenchVerdict.UNDECIDED, True)] * 2
    assert [case.reason for case in cases] == [
        "it was interrupted before a pair of starts was complete",
        "it was interrupted before this was reached",
    ]


def test_people_are_told_which_start_is_made(run: Run) -> None:
    """The program, the arm, and how many starts there are to be."""
    said: list[str] = []
    run(Starts(), Extent(runs=2), progress=said.append)
    assert said[0] == "show on cuda:compute_90: building once"
    assert {"first cold start, which is not counted", "warm start 2 of 2"} <= {
        one.removeprefix("show on cuda:compute_90: ") for one in said
    }
