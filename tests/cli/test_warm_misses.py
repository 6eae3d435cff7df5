"""``warm --misses``: builds that programs left for later, and options that exclude it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from gpucache.engine.warm import run as running
from gpucache.engine.warm.run import forget_built
from gpucache.keys import digest
from gpucache.model import ArtifactKind, BuildRequest, CacheKey, Language, Program, Target
from gpucache.store.directory import DirectoryStore
from gpucache.store.interface import MissedRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Run

    Write = Callable[..., Path]

_SOURCE = b"kernel void show(global int *out) { out[get_global_id(0)] = 7; }"


@pytest.fixture
def store(root: Path, pocl: str) -> DirectoryStore:
    """A cache with notes of two PoCL programs: one that compiles, one that does not."""
    store = DirectoryStore(root, writable=True)
    for name, source in (("show", _SOURCE), ("bad", b"kernel void bad(")):
        program = Program(name, Language.OPENCL_C, source)
        request = BuildRequest(program, Target.parse(pocl), cwd="/")
        store.missed.note(MissedRequest(CacheKey(digest(source)), time.time_ns(), "solver.py", request))
    return store


@pytest.mark.slow
@pytest.mark.usefixtures("probed")
def test_misses_are_built_and_forgotten(run: Run, store: DirectoryStore) -> None:
    """A note that was built is forgotten, one that failed stays and is reported."""
    answer = run("warm", "--misses", "--json")
    assert answer.code == 3
    assert {row["program"]: row["result"] for row in answer.document["outcomes"]} == {
        "show": "built",
        "bad": "failed",
    }
    assert [one.request.program.name for one in store.missed.all()] == ["bad"]


@pytest.mark.usefixtures("probed")
def test_misses_are_checked_without_building(run: Run, store: DirectoryStore, pocl: str) -> None:
    """With --check each note is missing, for the targets that are named, and stays."""
    answer = run("warm", "--misses", "--check", "--target", pocl, "--json")
    assert answer.code == 3
    assert [row["result"] for row in answer.document["outcomes"]] == ["missing", "missing"]
    assert len(store.missed.all()) == 2


@pytest.mark.usefixtures("probed")
def test_what_tells_misses_apart_is_called_a_key(run: Run, store: DirectoryStore) -> None:
    """A noted request has no variant, so its key distinguishes it, and the column says so."""
    lines = run("warm", "--misses", "--check").out.splitlines()
    assert lines[0].split() == ["program", "key", "target", "result"]
    assert {line.split()[1] for line in lines[2:4]} == {one.key.short for one in store.missed.all()}


def test_what_a_driver_rejected_of_a_system_root_is_built_into_the_users(
    run: Run, write: Write, root: Path, tmp_path: Path, nvrtc: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system root's entry would be rejected at each start, so it is not a hit."""
    source = write({"k.cu": 'extern "C" __global__ void k() {}\n'}) / "k.cu"
    shared = tmp_path / "shared"
    assert run("warm", source, "--shared", "--target", nvrtc, at=shared).code == 0
    monkeypatch.setenv("GPUCACHE_SYSTEM_DIRS", str(shared))
    program = Program("k.cu", Language.CUDA_CPP, source.read_bytes())
    request = BuildRequest(program, Target.parse(nvrtc), artifact_kind=ArtifactKind.CUBIN, cwd="/")
    store, results = DirectoryStore(root, writable=True), []
    for rejected in (False, True):
        store.missed.note(MissedRequest(CacheKey(digest(b"k")), 1, "solver.py", request, rejected=rejected))
        results += [row["result"] for row in run("warm", "--misses", "--json").document["outcomes"]]
        assert store.missed.all() == []
    assert results == ["hit", "built"]
    assert len(list(store.scan())) == 1


def test_nothing_missed_is_done(run: Run, root: Path) -> None:
    """Without notes there is nothing to do, and no driver is queried."""
    answer = run("warm", "--misses")
    assert (answer.code, answer.out) == (0, "")
    assert answer.err == f"No miss is noted in {root}.\n"


@pytest.mark.usefixtures("probed")
def test_misses_are_built_by_one_process(run: Run, store: DirectoryStore) -> None:
    """A second process reports the first, and builds nothing."""
    with store.build_missed():
        answer = run("warm", "--misses")
    assert answer.code == 5
    assert "another process builds the misses of" in answer.err


@pytest.mark.slow
@pytest.mark.usefixtures("probed")
def test_what_is_noted_meanwhile_is_built_too(
    run: Run, store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that is noted while others are built is built in the same run; none is tried twice."""
    first = store.missed.all()

    def forget_and_note(*arguments: Any) -> None:
        forget_built(*arguments)
        for one in first:
            store.missed.note(one._replace(key=CacheKey(digest(b"more" + one.request.program.source))))

    monkeypatch.setattr(running, "forget_built", forget_and_note)
    results = [row["result"] for row in run("warm", "--misses", "--json").document["outcomes"]]
    assert sorted(results) == ["built", "failed", "failed", "hit"]
