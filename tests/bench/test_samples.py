"""One start in this process with a compiler that only counts: its phases, hits and misses."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from gpucache.answers.bench import PHASES, Arm, Sample
from gpucache.bench import sources
from gpucache.bench.sessions import Launch
from gpucache.bench.sources import StartJob, take_sample
from gpucache.engine.lookup import get_or_build
from gpucache.engine.prepare import Prepared
from gpucache.engine.stores import Stores
from gpucache.errors import CompileError, TargetError
from gpucache.model import Artifact, Target, Toolchain
from gpucache.store.directory import DirectoryStore


@dataclass(slots=True)
class FakeSession:
    """A start that records its steps; a GPU is present by default."""

    done: list[str] = field(default_factory=list)
    rejects: bool = False
    here: bool = True

    def build(self, *_: object) -> None:
        self.done.append("build")

    def load(self, _: Artifact) -> bool:
        if self.rejects:
            raise CompileError("the driver rejected the binary")
        self.done.append("load")
        return self.here

    def create_kernels(self) -> bool:
        return self.here

    def set_arguments(self, _: Sequence[Launch]) -> None:
        self.done.append("set arguments")

    def launch(self) -> bool:
        return True


@dataclass(slots=True)
class FakeBackend:
    """The plans of a real backend."""

    ready: Prepared

    def toolchain(self, _: Target) -> Toolchain:
        return self.ready.compilation.inputs.toolchain

    def plan(self, *_: object) -> Any:
        return self.ready.compilation


@dataclass(slots=True)
class Start:
    """Takes one sample."""

    ready: Prepared
    stores: Stores
    session: FakeSession = field(default_factory=FakeSession)

    def __call__(self, arm: str, began_ns: int = 10, **more: Any) -> Sample:
        job = StartJob(self.ready.request, self.ready.compilation.inputs.toolchain, arm=arm, **more)
        backend: Any = FakeBackend(self.ready)
        return take_sample(job, backend, self.stores, {}, began_ns)


@pytest.fixture
def start(
    ready: Callable[..., Prepared], stores: Stores, tree: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Start:
    made = Start(ready(include_dirs=[tree("include")]), stores)

    def opened(_: object, __: Target, peers: Sequence[str], folder: str | None) -> FakeSession:
        if "nobody" in peers:
            raise TargetError("nobody has no cache")
        made.session.done += [*(f"load {peer}" for peer in peers), *([f"use {folder}"] if folder else ())]
        return made.session

    monkeypatch.setattr(sources, "open_session", opened)
    return made


@pytest.fixture
def warm(start: Start, compiler: Callable[[], Callable[[], Artifact]]) -> Start:
    """A start whose program is in the cache."""
    get_or_build(start.stores, start.ready, compiler())
    return start


def _named(sample: Sample) -> list[str]:
    return [name for name, _ in sample.phases]


def test_a_cold_start_builds_and_asks_no_cache(warm: Start) -> None:
    """It compiles although the cache has an entry, and is not a hit."""
    sample = warm(Arm.COLD)
    assert _named(sample) == ["process start", "context", "compile", "kernels", "first launch"]
    assert (sample.hit, sample.missed, sample.error) == (False, "", "")


def test_a_warm_start_loads(warm: Start) -> None:
    """It looks up and loads the entry, and compiles nothing."""
    sample = warm(Arm.WARM)
    assert _named(sample) == ["process start", "context", "key", "lookup", "load", "kernels", "first launch"]
    assert (sample.hit, sample.missed) == (True, "")
    assert "build" not in warm.session.done
    assert set(_named(sample)) < set(PHASES)


def test_a_warm_start_that_misses_goes_on_and_says_why(start: Start, store: DirectoryStore) -> None:
    """It compiles as a program would, and stores nothing, so the next one misses too."""
    for _ in range(2):
        sample = start(Arm.WARM)
        assert _named(sample)[2:5] == ["key", "lookup", "compile"]
        assert (sample.hit, sample.error) == (False, "")
        assert sample.missed.startswith("never-built: ")
    assert list(store.scan()) == []


def test_a_binary_that_the_driver_rejects_is_a_miss(warm: Start) -> None:
    """The start goes on by compiling, and names the driver's error."""
    warm.session.rejects = True
    sample = warm(Arm.WARM)
    assert (sample.hit, sample.error) == (False, "")
    assert sample.missed == "rejected: the driver rejected the binary"
    assert warm.session.done[0] == "build"


def test_without_a_device_only_what_was_done_has_a_phase(warm: Start) -> None:
    """Nothing was loaded, created or launched, so there are no such phases; it is still a hit."""
    warm.session.here = False
    sample = warm(Arm.WARM)
    assert _named(sample) == ["process start", "context", "key", "lookup"]
    assert sample.hit


@pytest.mark.parametrize(("began_ns", "took_ns"), [(150, 50), (100, 0), (90, 0)])
def test_the_start_of_a_process_is_counted(start: Start, began_ns: int, took_ns: int) -> None:
    """From its request until it began; a clock that was set back gives zero, not less."""
    sample = start(Arm.COLD, began_ns, asked_ns=100)
    assert sample.phases[0] == ("process start", took_ns)


def test_a_peer_builds_through_its_own_cache(start: Start) -> None:
    """Its library is loaded with the context, and only its own arm uses its cache."""
    start("cuda.core", peers=("cuda.core",), peer_folder="/peer")
    assert start.session.done[:3] == ["load cuda.core", "use /peer", "build"]
    start.session.done.clear()
    start(Arm.COLD, peers=("cuda.core",), peer_folder="/peer")
    assert start.session.done[:2] == ["load cuda.core", "build"]
    start.session.done.clear()
    start(Arm.DRIVER)
    assert start.session.done[0] == "build"


def test_what_goes_wrong_is_the_samples_error(start: Start) -> None:
    """Our own error ends the start with its sentence; the phases before it are kept."""
    sample = start(Arm.COLD, peers=("nobody",))
    assert (sample.error, _named(sample)) == ("nobody has no cache", ["process start"])
