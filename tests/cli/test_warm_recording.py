"""``warm --recording``: recorded programs are built elsewhere, under the program's own keys."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpucache.backends.interface import Backends
from gpucache.engine.prepare import Prepared, prepare
from gpucache.engine.recorded_requests import observe
from gpucache.model import BuildRequest, Language, Program
from gpucache.recording.builds import Seen
from gpucache.recording.writing import Writer
from tests.children import run_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpucache.model import Device
    from tests.cli.conftest import Run

SOURCE = '#include "factor.h"\n__kernel void twice(__global float *a) { a[get_global_id(0)] *= FACTOR; }\n'
PROGRAM = """
import sys
import pyopencl as cl
from gpucache.opencl import build_program
platform = next(each for each in cl.get_platforms() if sys.argv[1] in each.name)
context = cl.Context(platform.get_devices()[:1])
build_program(context, sys.stdin.read(), options=["-Iinc", "-DN=2"])
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory with a header, in which a program runs."""
    folder = tmp_path / "project"
    (folder / "inc").mkdir(parents=True)
    (folder / "inc" / "factor.h").write_text("#define FACTOR 2\n")
    return folder


def asked(target: str, devices: Sequence[Device], folder: Path, source: str = SOURCE) -> Prepared:
    """The request of a program that runs in a directory."""
    device = next(device for device in devices if str(device.target) == target)
    assert device.target is not None
    assert device.toolchain is not None
    request = BuildRequest(
        Program("twice", Language.OPENCL_C, source.encode()),
        device.target,
        ("-Iinc", "-DN=2"),
        cwd=str(folder),
        searches_cwd=True,
    )
    return prepare(Backends()["opencl"], request, device.toolchain, os.environ)


def recorded(prepared: Prepared, place: Path, seen: Seen = Seen(), *, sources: bool = True) -> Path:  # noqa: B008
    toolchain = prepared.compilation.inputs.toolchain
    done = observe(prepared, Backends()["opencl"].environment(toolchain, os.environ))
    Writer(place, sources=sources).build(done.build, seen.union(done.places), done.contents)
    return place


@pytest.mark.slow
@pytest.mark.usefixtures("probed")
def test_a_recording_is_built_elsewhere_for_the_library(
    run: Run, root: Path, intel: str, devices: Sequence[Device], project: Path, tmp_path: Path
) -> None:
    """The project is gone when its recording is warmed, and hits where it has moved."""
    recording = recorded(asked(intel, devices, project), tmp_path / "recording")
    elsewhere = tmp_path / "elsewhere"
    project.rename(elsewhere)
    answer = run("warm", "--recording", str(recording), "--json")
    assert answer.code == 0, answer.err
    [row] = answer.document["outcomes"]
    assert (row["result"], row["program"], row["target"]) == ("built", "twice", intel)
    assert row["key"] == str(asked(intel, devices, elsewhere).key)
    done = run_text(
        [sys.executable, "-c", PROGRAM, "Intel"],
        input=SOURCE,
        env={**os.environ, "GPUCACHE_DIR": str(root), "GPUCACHE_REQUIRE": "1"},
        cwd=elsewhere,
    )
    assert done.returncode == 0, done.stderr
    assert [
        row["result"] for row in run("warm", "--recording", str(recording), "--json").document["outcomes"]
    ] == ["hit"]


@pytest.mark.slow
@pytest.mark.usefixtures("probed")
def test_what_holds_places_is_built_where_it_was_recorded(
    run: Run, root: Path, intel: str, devices: Sequence[Device], project: Path, tmp_path: Path
) -> None:
    """An artifact with the path of a header hits only in its directory, and is not kept for any other."""
    (project / "inc" / "factor.h").write_text("__constant char where[] = __FILE__;\n")
    source = '#include "factor.h"\nkernel void where_is(global char *a) { a[0] = where[a[1]]; }\n'
    recording = recorded(asked(intel, devices, project, source), tmp_path / "recording")
    [row] = run("warm", "--recording", str(recording), "--json").document["outcomes"]
    assert (row["result"], row["reason"]) == ("built", "")
    assert row["key"] == str(asked(intel, devices, project, source).located_key)
    assert run("evict", "--all", "--yes").code == 0
    project.rename(tmp_path / "elsewhere")
    answer = run("warm", "--recording", str(recording), "--json")
    assert answer.code == 3
    assert "places of its files" in answer.document["outcomes"][0]["reason"]
    assert not list(root.rglob("*.gpc"))


@pytest.mark.slow
@pytest.mark.usefixtures("probed")
def test_recorded_local_sizes_reach_a_late_compiler(
    run: Run, pocl: str, devices: Sequence[Device], project: Path, tmp_path: Path
) -> None:
    """Launched sizes are compiled, and the key is that of a program without sizes."""
    seen = Seen(frozenset({("twice", (16,)), ("twice", ())}))
    recording = recorded(asked(pocl, devices, project), tmp_path / "recording", seen)
    [row] = run("warm", "--recording", str(recording), "--json").document["outcomes"]
    assert row["result"] == "built"
    assert row["key"] == str(asked(pocl, devices, project).key)
    [entry] = run("inspect", row["key"], "--json").document["outcomes"]
    assert entry["local_sizes"] == ["16"]


@pytest.mark.slow
@pytest.mark.usefixtures("probed")
def test_a_recording_is_built_for_another_target(
    run: Run, pocl: str, intel: str, devices: Sequence[Device], project: Path, tmp_path: Path
) -> None:
    """A build recorded on two devices is one build for a third, under the key of that device."""
    recording = recorded(asked(intel, devices, project), tmp_path / "recording")
    recorded(asked(pocl, devices, project), recording)
    answer = run("warm", "--recording", str(recording), "--target", intel, "--json")
    [row] = answer.document["outcomes"]
    assert (row["result"], row["key"]) == ("built", str(asked(intel, devices, project).key))


@pytest.mark.usefixtures("probed")
def test_digests_alone_are_checked(
    run: Run, intel: str, devices: Sequence[Device], project: Path, tmp_path: Path
) -> None:
    """Without a source --check still knows the entry; building it names the missing source."""
    prepared = asked(intel, devices, project)
    recording = recorded(prepared, tmp_path / "recording", sources=False)
    answer = run("warm", "--check", "--recording", str(recording), "--json")
    assert answer.code == 3
    assert [(row["result"], row["key"]) for row in answer.document["outcomes"]] == [
        ("missing", str(prepared.key))
    ]
    answer = run("warm", "--recording", str(recording), "--json")
    assert answer.code == 4
    assert "--digests-only" in answer.document["outcomes"][0]["reason"]


@pytest.mark.usefixtures("probed")
def test_what_failed_where_it_was_recorded_is_left_out(
    run: Run, intel: str, devices: Sequence[Device], project: Path, tmp_path: Path
) -> None:
    """A program's own failing build does not fail warm, and is reported."""
    recording = recorded(asked(intel, devices, project), tmp_path / "recording", Seen(refused=True))
    answer = run("warm", "--recording", str(recording))
    assert answer.code == 0
    assert "1 recorded build failed in the program itself" in answer.err


@pytest.mark.usefixtures("probed")
def test_a_device_that_is_not_here_is_skipped(
    run: Run, intel: str, devices: Sequence[Device], project: Path, tmp_path: Path
) -> None:
    """The message asks for another target; nothing is built for a device of another name unasked."""
    prepared = asked(intel, devices, project)
    done = observe(prepared, ())
    fields = tuple(
        (label, "Other" if label == "device name" else value) for label, value in done.build.toolchain
    )
    Writer(tmp_path / "recording").build(replace(done.build, toolchain=fields), Seen(), done.contents)
    answer = run("warm", "--recording", str(tmp_path / "recording"), "--json")
    assert answer.code == 4
    [row] = answer.document["outcomes"]
    assert (row["result"], "--target" in row["reason"]) == ("skipped", True)


@pytest.mark.usefixtures("probed")
def test_headers_that_cannot_be_found_alike_are_told(
    run: Run, intel: str, devices: Sequence[Device], project: Path, tmp_path: Path
) -> None:
    """A header that is included by its full path is not laid out: it is named, and nothing is built."""
    full = tmp_path / "full.h"
    full.write_text("#define FACTOR 2\n")
    source = f'#include "{full}"\nkernel void k(global int *a) {{ *a = FACTOR; }}\n'
    recording = recorded(asked(intel, devices, project, source), tmp_path / "recording")
    full.unlink()
    answer = run("warm", "--recording", str(recording), "--json")
    assert answer.code == 3
    assert f"{str(full)!r} is not found" in answer.document["outcomes"][0]["reason"]


@pytest.mark.usefixtures("probed")
def test_another_environment_is_told(
    run: Run,
    intel: str,
    devices: Sequence[Device],
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A variable that reached the compiler only there would make another key."""
    with monkeypatch.context() as patch:
        patch.setenv("CL_CONFIG_CPU_TARGET_ARCH", "corei7")
        recording = recorded(asked(intel, devices, project), tmp_path / "recording")
    [row] = run("warm", "--recording", str(recording), "--json").document["outcomes"]
    assert (row["result"], "CL_CONFIG_CPU_TARGET_ARCH" in row["reason"]) == ("skipped", True)


@pytest.mark.usefixtures("probed")
def test_damage_is_told_and_passed_over(
    run: Run, intel: str, devices: Sequence[Device], project: Path, tmp_path: Path
) -> None:
    """A half line is its own failure with file and line, and the readable builds are still checked."""
    recording = recorded(asked(intel, devices, project), tmp_path / "recording")
    (recording / "0.jsonl").write_bytes(b'{"gpucache recording": 1, "build"')
    answer = run("warm", "--check", "--recording", str(recording), "--json")
    assert answer.code == 3
    assert [(row["program"], row["result"]) for row in answer.document["outcomes"]] == [
        ("0.jsonl, line 1", "failed"),
        ("twice", "missing"),
    ]


def test_a_recording_that_does_not_read_at_all_stops_a_deployment(run: Run, tmp_path: Path) -> None:
    """Its requests are unknown, so the check fails."""
    (tmp_path / "0.jsonl").write_text("half a line")
    assert run("warm", "--check", "--recording", str(tmp_path)).code == 3


def test_an_empty_recording_is_one_sentence(run: Run, tmp_path: Path) -> None:
    """Nothing is built, and no empty table is printed."""
    Writer(tmp_path / "recording")
    answer = run("warm", "--recording", str(tmp_path / "recording"))
    assert (answer.code, answer.out) == (0, "")
    assert (
        answer.err.strip()
        == f"The recording {tmp_path / 'recording'} is empty, so there is nothing to build."
    )
