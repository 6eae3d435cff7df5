"""The recorder writes down the requests of a command and serves none of them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gpucache.engine.stores import Stores
from gpucache.host.file_stamps import files_seen
from gpucache.model import Device, Target, Toolchain
from gpucache.recording.builds import Question, RecordedBuild, Seen
from gpucache.recording.reading import read_recording
from gpucache.recording.writing import Writer
from gpucache.serve.devices import Devices
from gpucache.serve.environment import Libraries
from gpucache.serve.foreseen import asked_again, recorded
from gpucache.serve.opencl import OpenCL
from gpucache.serve.questions import Questions
from gpucache.serve.recorder import Recorder
from gpucache.serve.server import Reply, serve
from gpucache.serve.wire import Fields, Kind, WireError, number
from tests.serve.client import ask

SOURCE = b'#include "n.h"\nkernel void twice(global int *out) { *out = N; }'
DEFEATER = b"\n\n__constant int pyopencl_defeat_cache_" + b"a1" * 16 + b" = 0;"
VALUES = ("PoCL", "the project", "OpenCL 3.0", "cpu", "vendor", "OpenCL 3.0 device", "3.1")
LABELS = (
    *("platform name", "platform vendor", "platform version"),
    *("device name", "device vendor", "device version", "driver version"),
)
TOOLCHAIN = Toolchain(
    "pocl", tuple(zip(LABELS, VALUES, strict=True)), identity=("platform name", "device name")
)
DEVICE = Device(
    Target("opencl", "pocl/cpu"), "opencl", "cpu", "3.1", available=True, detail="", toolchain=TOOLCHAIN
)


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    """A recorder of a command on one device."""
    compiler = OpenCL(Devices(probe=lambda: [DEVICE]), Libraries())
    return Recorder(Writer(tmp_path / "recording"), ["solver", "a b"], [compiler])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "n.h").write_text("#define N 2\n")
    return tmp_path / "project"


def build(project: Path, source: bytes = SOURCE, values: Sequence[str] = VALUES) -> tuple[bytes, ...]:
    """The fields of a build for one device."""
    device = (b"", *(value.encode() for value in values))
    return (files_seen().encode(), str(project).encode(), b"HOME=/h\0", b"-I . -DA=1", source, b"1", *device)


def asked(recorder: Recorder, kind: Kind, *fields: bytes) -> Reply:
    return recorder.handlers[kind](Fields(fields))


def rows(tmp_path: Path) -> list[tuple[RecordedBuild, Seen]]:
    return read_recording(tmp_path / "recording").recording.rows()


def test_every_process_of_a_command_is_recorded(recorder: Recorder, project: Path, tmp_path: Path) -> None:
    """Each reports that it has loaded OpenCL, and the devices are known from the first on."""
    for value in (b"2", b"3"):
        asked(recorder, Kind.LOADED)
        asked(recorder, Kind.BUILD, *build(project, SOURCE.replace(b"N", value)))
    assert len(rows(tmp_path)) == 2


def test_a_build_is_written_and_passed(recorder: Recorder, project: Path, tmp_path: Path) -> None:
    """It is written before the command goes on, which compiles as without gpucache and reports further."""
    reply = asked(recorder, Kind.BUILD, *build(project))
    assert reply.kind is Kind.PASS
    assert reply.fields != (b"",)
    [(one, seen)] = rows(tmp_path)
    assert (one.program, one.target, one.options) == ("twice", "opencl:pocl/cpu", ("-DA=1",))
    assert [header.path for header in one.headers] == ["0/n.h"]
    assert read_recording(tmp_path / "recording").content(one.source) == SOURCE
    assert seen.first is not None
    assert seen.first[1] == "solver 'a b'"


def test_what_is_known_later_is_added(recorder: Recorder, project: Path, tmp_path: Path) -> None:
    """The end of a build and its launches belong to the build of the token."""
    [token] = asked(recorder, Kind.BUILD, *build(project)).fields
    asked(recorder, Kind.BUILT, token, b"0", b"70000", b"", b"said")
    for size in (b"8,8,1", b"", b"8,8,1"):
        asked(recorder, Kind.LAUNCHED, token, b"twice", size)
    [(_, seen)] = rows(tmp_path)
    assert (seen.compile_ns, seen.built, seen.failed) == (70_000, True, False)
    assert seen.local_sizes == {("twice", (8, 8, 1)), ("twice", ())}


@pytest.mark.parametrize(("code", "failed"), [(-11, True), (-43, True), (-5, False), (-6, False)])
def test_only_a_compilers_refusal_is_a_failure(
    recorder: Recorder, project: Path, tmp_path: Path, code: int, failed: bool
) -> None:
    """A build that ended for want of memory proves nothing about its program."""
    [token] = asked(recorder, Kind.BUILD, *build(project)).fields
    asked(recorder, Kind.BUILT, token, number(code), b"5", b"", b"")
    [(_, seen)] = rows(tmp_path)
    assert (seen.failed, seen.built) == (failed, False)


def test_what_pyopencl_adds_against_caches_is_not_recorded(
    recorder: Recorder, project: Path, tmp_path: Path
) -> None:
    """A program with a new name in its source at every start is one build."""
    asked(recorder, Kind.BUILD, *build(project))
    asked(recorder, Kind.BUILD, *build(project, SOURCE + DEFEATER))
    assert len(rows(tmp_path)) == 1


def test_a_question_is_kept_as_it_was_asked(recorder: Recorder, project: Path, tmp_path: Path) -> None:
    """With its own ends of lines and spelling, and nothing that a process has of its own."""
    sources = [
        SOURCE,
        SOURCE.replace(b"\n", b"\r\n"),
        SOURCE + DEFEATER,
        SOURCE + DEFEATER.replace(b"a1", b"b2"),
    ]
    for source in sources:
        asked(recorder, Kind.BUILD, *build(project, source))
    [(_, seen)] = rows(tmp_path)
    found = {read_recording(tmp_path / "recording").content(each.source) for each in seen.questions}
    assert found == {*sources[:2], SOURCE + DEFEATER.replace(b"a1", b"00")}
    assert {each.directory for each in seen.questions} == {str(project)}
    assert {each.fields[:6] for each in seen.questions} == {("", "", "", "-I . -DA=1", "", "1")}
    kind, fields = asked_again(max(seen.questions), SOURCE, [replace_files(DEVICE)], {"A": "B"})
    assert kind is Kind.BUILD
    assert fields == (*build(project)[:2], b"A=B\0", *build(project)[3:6], b"/driver.so", *build(project)[7:])


def replace_files(device: Device) -> Device:
    return device._replace(files=("/driver.so",))


def test_a_device_with_another_driver_is_asked_for_by_that(
    recorder: Recorder, project: Path, tmp_path: Path
) -> None:
    """A recording is warmed with the driver of this machine; another device is not here."""
    asked(recorder, Kind.BUILD, *build(project))
    [(_, seen)] = rows(tmp_path)
    fields = tuple(
        (label, "9.9" if label == "driver version" else value) for label, value in TOOLCHAIN.fields
    )
    newer = replace_files(DEVICE)._replace(toolchain=TOOLCHAIN._replace(fields=fields))
    again = asked_again(max(seen.questions), SOURCE, [newer], {})
    assert again[1][-1] == b"9.9"
    fields = tuple((label, "other" if label == "device name" else value) for label, value in TOOLCHAIN.fields)
    other = replace_files(DEVICE)._replace(toolchain=TOOLCHAIN._replace(fields=fields))
    with pytest.raises(WireError, match="not on this machine"):
        asked_again(max(seen.questions), SOURCE, [other], {})


def test_a_question_with_headers_in_memory_is_not_kept() -> None:
    """No index answers it, and its headers would be in the recording twice."""
    question = (b"", b"/", b"", b"13.0", b"/libnvrtc.so", b"a.cu", b"source", b"1", b"h", b"text", b"0", b"0")
    assert recorded(Kind.COMPILE, question) is None
    kept = recorded(Kind.COMPILE, (*question[:7], b"0", b"0", b"0"))
    assert kept is not None and kept[1] == b"source"


def test_a_recording_that_says_anything_costs_no_warming(tmp_path: Path) -> None:
    """Fields that are no text, too few or too many, and kinds that do not exist."""
    good = Question(Kind.BUILD, "/", ("", "", "", "", "", "1", "", *VALUES), "")
    for wrong in (
        replace(good, kind=77),
        replace(good, fields=()),
        replace(good, fields=(*good.fields[:5], "2", *good.fields[6:])),
        replace(good, fields=("", "", "", "\ud800", *good.fields[4:])),
        replace(good, kind=Kind.COMPILE),
    ):
        with pytest.raises((WireError, ValueError)):
            kind, fields = asked_again(wrong, SOURCE, [replace_files(DEVICE)], {})
            Questions(Stores(), Libraries()).add(kind, fields)


def test_a_recording_without_sources_has_no_questions(project: Path, tmp_path: Path) -> None:
    """They name a directory, and are of no use without a source."""
    compiler = OpenCL(Devices(probe=lambda: [DEVICE]), Libraries())
    recorder = Recorder(Writer(tmp_path / "recording", sources=False), ["solver"], [compiler])
    asked(recorder, Kind.BUILD, *build(project))
    [(_, seen)] = rows(tmp_path)
    assert not seen.questions


def test_a_device_that_nobody_knows_is_told(recorder: Recorder, project: Path) -> None:
    """Its builds go on without further requests, and the reason is counted."""
    reply = asked(recorder, Kind.BUILD, *build(project, values=("Other", *VALUES[1:])))
    assert (reply.kind, reply.fields) == (Kind.PASS, (b"",))
    [(why, times)] = recorder.unrecorded.items()
    assert "is not seen" in why
    assert times == 1


def test_what_is_never_served_is_told(recorder: Recorder) -> None:
    """A program that compiles and links separately is not recorded."""
    asked(recorder, Kind.OTHER, b"7", b"clCompileProgram", b"", b"")
    assert dict(recorder.unrecorded) == {"clCompileProgram is not recorded": 1}


def test_a_token_that_nobody_gave_is_refused(recorder: Recorder) -> None:
    """A report about an unknown build changes nothing."""
    with pytest.raises(WireError):
        asked(recorder, Kind.LAUNCHED, b"999", b"twice", b"8")


def test_a_command_is_answered_over_the_socket(recorder: Recorder, project: Path, tmp_path: Path) -> None:
    """The frames of a command arrive as they are written."""
    with serve(recorder.handlers) as path:
        answer = ask(path, Kind.BUILD, *build(project))
        ask(path, Kind.LAUNCHED, answer.fields[0], b"twice", b"64")
    [(_, seen)] = rows(tmp_path)
    assert seen.sizes == ((64,),)
