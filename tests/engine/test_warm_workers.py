"""``run_warm`` with workers that die: tried once more, then poisoned, neighbours built by real NVRTC.

The work is given as text, as workers cannot import a test module.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpucache.answers.lookup import Built, Hit, Verdict
from gpucache.answers.warm import WarmOutcome, WarmResult
from gpucache.assembly import open_stores
from gpucache.backends.interface import Backends
from gpucache.engine.warm.plan import Build, Job, Progress, WarmItem, plan_warm
from gpucache.engine.warm.rounds import build_job
from gpucache.engine.warm.run import Session
from gpucache.manifest import ProgramSpec
from gpucache.model import CacheKey, Device, Language, Program
from gpucache.probe.ask import ask
from gpucache.settings import Settings
from gpucache.store.directory import DirectoryStore

GOOD = b'extern "C" __global__ void good(float *a) { a[threadIdx.x] += 1; }\n'
TARGET = "cuda:sm_90"


@dataclass(frozen=True, slots=True)
class Text:
    """A build function as text; ``real`` in it is warm's own build function, ``bad`` a program's name."""

    text: str
    real: Build

    def __call__(self, job: Job) -> Hit | Built:
        raise AssertionError(f"{job} is for workers alone")

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, dict[str, Any]]]:
        return eval, (f"lambda job: {self.text}", {"real": self.real})


@pytest.fixture(scope="module")
def devices() -> list[Device]:
    found = ask(["cuda"])
    if not any(str(device.target) == TARGET and device.available for device in found):
        pytest.skip("no NVRTC that builds for sm_90 is installed")
    return found


class Warming:
    """Runs of warm over this module's programs, on one root."""

    def __init__(self, root: Path, devices: Sequence[Device]) -> None:
        self._settings = Settings(root=root, root_origin="test")
        self._devices = devices
        self.seen: list[Progress] = []
        self.noticed = root.with_name("noticed")
        """Exists once progress reported that ``bad.cu`` runs."""

    def items(self, *names: str) -> list[WarmItem]:
        """One item for each program; every source differs."""
        programs = [Program(name, Language.CUDA_CPP, GOOD + f"// {name}".encode()) for name in names]
        specs = [ProgramSpec(program) for program in programs]
        return plan_warm(specs, self._devices, [TARGET], Backends())

    def __call__(self, items: Sequence[WarmItem], text: str, **options: Any) -> dict[str, WarmOutcome]:
        """Outcomes by program; ``text`` is the workers' code for the program ``bad.cu``."""
        real = partial(build_job, partial(open_stores, self._settings))
        build = Text(f"{text} if job.request.program.name == 'bad.cu' else real(job)", real)
        stores = open_stores(self._settings)
        session = Session(lambda: stores, Backends(), {}, self._watch, 2, build=build, **options)
        return {outcome.program: outcome for outcome in session.run(stores, items, [])}

    def _watch(self, now: Progress) -> None:
        self.seen.append(now)
        if ("bad.cu", TARGET, "") in now.running:
            self.noticed.touch()


@pytest.fixture
def warming(tmp_path: Path, devices: Sequence[Device]) -> Warming:
    return Warming(tmp_path / "root", devices)


def _appending(file: Path, then: str) -> str:
    """Leave a mark in a file, then run the rest."""
    return f"open({str(file)!r}, 'a').write('x') and {then}"


ABORT = "__import__('os').abort()"


def test_why_something_had_to_be_built_is_found_out_by_its_worker_alone(
    warming: Warming, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker that builds a program reads the entries that explain its miss; the run itself reads none."""
    (item,) = warming.items("scale.cu")
    warming([item], "None")
    assert item.request is not None
    changed = replace(item, request=item.request._replace(options=("-DFACTOR=2",)))
    read: list[CacheKey] = []
    monkeypatch.setattr(DirectoryStore, "detail", lambda _, key: read.append(key))
    outcome = warming([changed], "None")["scale.cu"]
    assert (outcome.result, outcome.verdict, read) == (WarmResult.BUILT, Verdict.KEY_CHANGED, [])


def test_a_worker_that_dies_once_is_forgiven(warming: Warming, tmp_path: Path) -> None:
    """If the second try succeeds the item is built, and not poisoned."""
    marks = tmp_path / "marks"
    marks.touch()
    fail_once = f"({_appending(marks, ABORT)}) if not open({str(marks)!r}).read() else real(job)"
    items = warming.items("bad.cu")
    assert warming(items, f"({fail_once})")["bad.cu"].result is WarmResult.BUILT
    assert warming(items, ABORT)["bad.cu"].result is WarmResult.HIT


@pytest.mark.slow
def test_the_poison_list_is_kept_until_a_retry_succeeds(warming: Warming, tmp_path: Path) -> None:
    """A poisoned item is not tried again unless asked for; once built it is an ordinary hit."""
    items = warming.items("bad.cu")
    marks = tmp_path / "marks"
    warming(items, ABORT)
    left_out = warming(items, _appending(marks, ABORT))["bad.cu"]
    assert left_out.result is WarmResult.POISONED
    assert "died of SIGABRT" in left_out.reason and not marks.exists()
    assert warming(items, "real(job)", check=True)["bad.cu"].result is WarmResult.POISONED
    assert warming(items, "real(job)", retry_poisoned=True)["bad.cu"].result is WarmResult.BUILT
    assert warming(items, ABORT)["bad.cu"].result is WarmResult.HIT


@pytest.mark.slow
def test_an_exception_is_not_poison(warming: Warming) -> None:
    """An item whose worker raised fails with that error, and is tried again at the next run."""
    items = warming.items("bad.cu", "one.cu")
    outcomes = warming(items, "1 / 0")
    assert outcomes["bad.cu"].result is WarmResult.FAILED
    assert "division by zero" in outcomes["bad.cu"].reason
    assert outcomes["one.cu"].result is WarmResult.BUILT
    assert warming(items, "real(job)")["bad.cu"].result is WarmResult.BUILT


@pytest.mark.slow
def test_an_answer_that_cannot_travel_fails_its_item_alone(warming: Warming) -> None:
    outcomes = warming(warming.items("bad.cu", "one.cu"), "(lambda: None)")
    assert outcomes["bad.cu"].result is WarmResult.FAILED
    assert outcomes["one.cu"].result is WarmResult.BUILT


def test_progress_counts_and_names(warming: Warming) -> None:
    """Progress reports how many of how many are done, and which run now."""
    waits = f"any(__import__('os').path.exists({str(warming.noticed)!r}) for _ in iter(int, 1)) and real(job)"
    outcomes = warming(warming.items("bad.cu", "one.cu"), waits)
    assert outcomes["bad.cu"].result is WarmResult.BUILT
    assert {now.total for now in warming.seen} == {2}
    assert [now.done for now in warming.seen] == sorted(now.done for now in warming.seen)
