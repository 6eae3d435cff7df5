"""Starts of a source: which caches are moved for which arm, and which files count as written."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpucache.answers.bench import Arm, Sample
from gpucache.answers.lookup import Built, Miss, Verdict
from gpucache.backends.interface import load_backend
from gpucache.bench import sources
from gpucache.bench.run import Begun
from gpucache.bench.sources import Sources, StartJob, Workers
from gpucache.caches.known_caches import KnownCaches
from gpucache.caches.registry import SYSTEMS, load_system
from gpucache.engine.prepare import Prepared
from gpucache.engine.warm.plan import WarmItem
from gpucache.engine.workers.pool import Bounds
from gpucache.model import Artifact, ArtifactKind, CacheKey
from tests.caches.mesa import build as mesa
from tests.caches.pocl import build

DRIVERS = [name for name in SYSTEMS if load_system(name).driver]
BUILT = Built(Artifact(ArtifactKind.PTX, b"x"), Miss(Verdict.NEVER_BUILT, ""), CacheKey("0" * 64))


@dataclass(slots=True)
class Started:
    """A program whose starts run a function with the variables of their environment."""

    write: Callable[[Mapping[str, str]], object] = lambda _: None
    jobs: list[StartJob] = field(default_factory=list)
    begun: Begun | str = ""

    def sample(self, job: StartJob) -> Sample:
        self.jobs.append(job)
        self.write({name: value for name, value in job.environment if value is not None})
        return Sample(job.arm)

    def __call__(self, arm: str, write: Callable[[Mapping[str, str]], object] | None = None) -> Sample:
        self.write = write or (lambda _: None)
        assert isinstance(self.begun, Begun)
        return self.begun.start(arm, 1)

    def environment(self, arm: str) -> dict[str, str | None]:
        self(arm)
        return dict(self.jobs[-1].environment)


@pytest.fixture
def start(ready: Callable[..., Prepared], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Started:
    def call(function: Callable[[Any], Any], job: Any, _: Bounds) -> Any:
        return function(job)

    monkeypatch.setattr(sources, "one", call)
    made, started = ready(), Started()
    item = WarmItem("show", "cuda:compute_90", "", made.request, made.compilation.inputs.toolchain)
    workers = Workers(lambda _: BUILT, lambda _: (), started.sample)
    every = ("cuda.core", Arm.DRIVER)
    planned = Sources(
        Bounds(), {name: load_backend(name) for name in ("opencl", "cuda")}, {}, every, workers
    ).plan([item])
    begin = next(planned).begin
    assert begin is not None
    started.begun = begin(tmp_path, lambda _: None)
    return started


@pytest.mark.parametrize("arm", [Arm.COLD, Arm.WARM, Arm.DRIVER, "pyopencl", "cuda.core"])
def test_every_driver_cache_lies_below_the_folder(start: Started, tmp_path: Path, arm: str) -> None:
    """Each variable names its own directory below that of the arm."""
    environment = start.environment(arm)
    names = [name for name in environment if name.endswith(("_DIR", "_PATH"))]
    folders = {Path(environment[name] or "") for name in names}
    assert len(names) == len(folders) == len(DRIVERS)
    assert all(folder.is_relative_to(tmp_path) for folder in folders)


def test_the_folders_of_drivers_are_there(start: Started) -> None:
    """Some drivers cache only if their directory exists."""
    seen: list[bool] = []

    def look(own: Mapping[str, str]) -> None:
        seen.extend(Path(place).is_dir() for name, place in own.items() if name.endswith(("_DIR", "_PATH")))

    start(Arm.COLD, look)
    assert seen == [True] * len(DRIVERS)


def test_only_its_own_arm_has_pyopencls_cache(start: Started, tmp_path: Path) -> None:
    """PyOpenCL's cache is off except for the peer, for which it is moved and its switch is unset."""
    environment = start.environment("pyopencl")
    assert environment["PYOPENCL_NO_CACHE"] is None
    assert Path(environment["XDG_CACHE_HOME"] or "").is_relative_to(tmp_path)
    other = start.environment(Arm.WARM)
    assert (other["PYOPENCL_NO_CACHE"], "XDG_CACHE_HOME" in other) == ("1", False)


def test_what_is_written_is_found_under_the_caches_name(start: Started) -> None:
    """A file below a variable's directory is that cache's entry, with its size."""

    def write(own: Mapping[str, str]) -> None:
        mesa.put(Path(own["MESA_SHADER_CACHE_DIR"], "mesa_shader_cache"))

    [found] = start(Arm.COLD, write).growth
    assert (found.cache, found.entries) == ("mesa", 1)
    assert found.size_bytes and found.names[0].startswith(mesa.key(0)[:2])


def test_empty_and_touched_files_are_no_entries(start: Started) -> None:
    """PoCL leaves an empty file at every start and touches another; neither counts as written."""
    first = start(Arm.WARM, lambda own: build.program(Path(own["POCL_CACHE_DIR"])))
    assert [(one.cache, one.entries) for one in first.growth] == [("pocl", 1)]

    def hit(own: Mapping[str, str]) -> None:
        root = Path(own["POCL_CACHE_DIR"])
        (root / "tempfile_ABCDEF").touch()
        os.utime(build.folder_of(root) / "last_accessed")

    assert start(Arm.WARM, hit).growth == ()


def test_a_peers_cache_is_watched_as_its_own(start: Started) -> None:
    """A peer's entries are counted apart from the drivers', and the start gets the peer's directory."""

    def write(_: Mapping[str, str]) -> None:
        entry = Path(start.jobs[-1].peer_folder, "entries", "ab", "c" * 62)
        entry.parent.mkdir(parents=True)
        entry.write_bytes(b"x")

    assert [one.cache for one in start("cuda.core", write).growth] == ["cuda.core"]
    start(Arm.DRIVER)
    assert start.jobs[-1].peer_folder == ""


def test_a_case_names_what_was_moved(ready: Callable[..., Prepared]) -> None:
    """The variables of the drivers' caches, with the directory of a start left out."""
    made = ready()
    item = WarmItem("show", "cuda:compute_90", "", made.request, made.compilation.inputs.toolchain)
    (planned,) = Sources(Bounds(), {}, {}).plan([item])
    assert dict(planned.case.redirects) == KnownCaches.of_drivers({}).variables(Path("DIR"))
