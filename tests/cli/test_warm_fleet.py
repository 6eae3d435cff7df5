"""``warm --check --recording --device-profile``: which machines would miss, and what serves all."""

from __future__ import annotations

import shlex
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from gpucache.answers.warm import Shell
from gpucache.engine.warm.run import prepare_item
from gpucache.probe.profile import Profile, save_profile
from gpucache.store.directory import DirectoryStore
from gpucache.store.history import History
from tests.fleets import asked, device_of, gpu_machine, recorded, words
from tests.remote.servers import nginx

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from gpucache.answers.warm import WarmOutcome
    from gpucache.engine.prepare import Prepared
    from gpucache.engine.stores import Stores
    from gpucache.engine.warm.plan import WarmItem
    from gpucache.engine.warm.run import Session
    from gpucache.model import Device
    from gpucache.store.interface import Event, ScannedEntry
    from tests.cli.conftest import Answer, Run

OLD = {"NVRTC version": "12.8", "NVRTC build id": "0" * 40}


@pytest.fixture
def recording(devices: Sequence[Device], nvrtc: str, tmp_path: Path) -> Path:
    """Two programs for an architecture that is in no machine."""
    device = device_of(nvrtc, devices)
    return recorded(tmp_path / "recording", [asked("one", device), asked("two", device)])


def check(run: Run, recordings: Sequence[Path], profiles: Sequence[Path], *more: object) -> Answer:
    given = (*words("--recording", recordings), *words("--device-profile", profiles))
    return run("warm", "--check", *given, *more)


def told(document: Any) -> list[tuple[str, str, str, list[str]]]:
    """The builds of a document with the names of their machines."""
    return [
        (one["program"], one["target"], one["result"], [each.rpartition("/")[2] for each in one["machines"]])
        for one in document["outcomes"]
    ]


@pytest.mark.slow
def test_the_commands_that_are_printed_serve_all(
    run: Run, devices: Sequence[Device], recording: Path, tmp_path: Path
) -> None:
    """Machines with three GPUs miss; once the commands ran, all hit, and none is left to run."""
    fleet = [gpu_machine(tmp_path / f"{name}.json", devices, name) for name in ("sm_80", "sm_90", "sm_100")]
    answer = check(run, [recording], fleet, "--json")
    summary = answer.document["summary"]
    assert (answer.code, summary["missing"], summary["builds"]) == (3, 6, 6)
    for one in summary["commands"]:
        own, *rest = shlex.split(one["command"])
        assert own == "gpucache"
        assert run(*rest, at=None).code == 0
    answer = check(run, [recording], fleet, "--json")
    assert (answer.code, answer.document["summary"]["hit"], answer.document["summary"]["commands"]) == (
        0,
        6,
        [],
    )
    assert "3 machines: all would hit" in check(run, [recording], fleet).out


def test_a_long_command_is_continued_on_a_terminal() -> None:
    """A shell reads its lines as the command, and no option is apart from its value."""
    targets = [word for gpu in range(80, 90) for word in ("--target", f"cuda:sm_{gpu}")]
    words = ("gpucache", "warm", "--recording", "my app", *targets)
    for width in (80, 40, 10_000):
        lines = ["".join(map(str, pieces)) for pieces in Shell(words).lines(width)]
        assert tuple(shlex.split("\n".join(lines).replace("\\\n", ""))) == words
        assert all(len(line) <= width for line in lines)
        assert not any(line.removesuffix(" \\").endswith("--target") for line in lines)
    cut = Shell(("gpucache", "warm", "--recording", "/data/my --runs/r")).lines(40)
    assert ["".join(map(str, pieces)).strip() for pieces in cut][1] == "--recording '/data/my --runs/r'"


def test_no_device_of_this_machine_is_asked(
    run: Run, devices: Sequence[Device], recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are read and nothing else, also without the sources."""
    monkeypatch.delattr("gpucache.probe.ask.ask")
    shutil.rmtree(recording / "blobs")
    answer = check(run, [recording], [gpu_machine(tmp_path / "a.json", devices, "sm_80")], "--json")
    assert told(answer.document) == [
        ("one.cu", "cuda:sm_80", "missing", ["a.json"]),
        ("two.cu", "cuda:sm_80", "missing", ["a.json"]),
    ]


def test_the_keys_are_those_of_the_programs(
    run: Run, devices: Sequence[Device], recording: Path, tmp_path: Path
) -> None:
    """The keys for another architecture are those that the programs request there."""
    answer = check(run, [recording], [gpu_machine(tmp_path / "a.json", devices, "sm_80")], "--json")
    keys = [str(asked(name, device_of("cuda:sm_80", devices)).key) for name in ("one", "two")]
    assert [one["key"] for one in answer.document["outcomes"]] == keys


def test_what_machines_share_is_read_once(
    run: Run,
    root: Path,
    devices: Sequence[Device],
    recording: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One key is looked up for all machines with it; histories and entries are read once."""
    DirectoryStore(root, writable=True).prepare()
    asked_for: list[object] = []
    read: list[str] = []
    events, scan = History.events, DirectoryStore.scan

    def counted(session: Session, stores: Stores, item: WarmItem) -> WarmOutcome | Prepared:
        asked_for.append(item)
        return prepare_item(session, stores, item)

    def noted(history: History, *programs: str) -> list[Event]:
        read.append(" ".join(programs))
        return events(history, *programs)

    def listed(store: DirectoryStore, **how: bool) -> Iterator[ScannedEntry]:
        read.append("entries")
        return scan(store, **how)

    monkeypatch.setattr("gpucache.engine.warm.run.prepare_item", counted)
    monkeypatch.setattr(DirectoryStore, "scan", listed)
    monkeypatch.setattr(History, "events", noted)
    fleet = [
        gpu_machine(tmp_path / f"{number}.json", devices, "sm_90", fields=OLD if number % 2 else {})
        for number in range(10)
    ]
    answer = check(run, [recording], fleet, "--json")
    assert len(answer.document["outcomes"]) == len(asked_for) == 4
    assert "entries" in read and len(read) == len({*read})
    assert answer.document["summary"]["machines"][9]["missing"] == 2


def test_what_serves_several_machines_is_built_once(
    run: Run, devices: Sequence[Device], recording: Path, tmp_path: Path
) -> None:
    """One NVRTC builds for all GPUs, another one does not: two commands, each with who may run it."""
    fleet = [gpu_machine(tmp_path / f"{name}.json", devices, name) for name in ("sm_80", "sm_90")]
    fleet += [
        gpu_machine(tmp_path / f"{name}.json", devices, "sm_90", fields=OLD) for name in ("old", "older")
    ]
    summary = check(run, [recording], fleet, "--json").document["summary"]
    assert summary["builds"] == 6
    rows = [(one["builds"], [*map(str, one["machines"])], one["serves"]) for one in summary["commands"]]
    assert rows == [(4, [*map(str, fleet[:2])], 2), (2, [*map(str, fleet[2:])], 2)]


def test_a_command_that_several_machines_need_is_printed_once(
    run: Run, devices: Sequence[Device], recording: Path, tmp_path: Path
) -> None:
    """Each NVRTC builds for itself, by the same command; -v names all machines."""
    fleet = [
        gpu_machine(tmp_path / f"n{number}.json", devices, "sm_90", fields={"NVRTC version": f"12.{number}"})
        for number in range(4)
    ]
    answer = check(run, [recording], fleet)
    assert answer.out.count("gpucache warm") == 1
    assert "On each of n0, n1, n2 and 1 more (-v names them), 8 builds:" in answer.out
    assert "On each of n0, n1, n2, n3, 8 builds:" in check(run, [recording], fleet, "-v").out


def test_ptx_serves_every_gpu(run: Run, devices: Sequence[Device], tmp_path: Path, nvrtc: str) -> None:
    """A program that was recorded with PTX asks for it on each machine, and one build serves all."""
    recording = recorded(tmp_path / "rec", [asked("ptx", device_of("cuda:compute_80", devices))])
    fleet = [gpu_machine(tmp_path / f"{name}.json", devices, name) for name in ("sm_80", "sm_90")]
    summary = check(run, [recording], fleet, "--json").document["summary"]
    assert (summary["builds"], summary["commands"][0]["serves"]) == (1, 2)


@pytest.mark.slow
def test_a_program_that_names_its_gpu_names_that_of_each_machine(
    run: Run, devices: Sequence[Device], nvrtc: str, tmp_path: Path
) -> None:
    """The option follows the machine and is no reason of its own; what comes with the cubin is asked, too."""
    builds = [
        asked("own", device_of(f"cuda:{gpu}", devices), "", f"-arch={gpu}", itself=True)
        for gpu in ("sm_90", "sm_80")
    ]
    recording = recorded(tmp_path / "recording", builds[:1])
    assert run("warm", "--recording", recording).code == 0
    fleet = [gpu_machine(tmp_path / f"{name}.json", devices, name) for name in ("sm_80", "sm_90")]
    outcomes = check(run, [recording], fleet, "--json").document["outcomes"]
    assert [one["result"] for one in outcomes] == ["missing", "missing", "hit", "hit"]
    assert outcomes[0]["key"] == str(builds[1].key)
    assert check(run, [recording], fleet).out.splitlines()[2].endswith("never-built: another architecture")


@pytest.mark.slow
def test_people_read_groups(run: Run, devices: Sequence[Device], recording: Path, tmp_path: Path) -> None:
    """Machines and programs with the same results are one row, with the fields that differ."""
    assert run("warm", "--recording", recording).code == 0
    fleet = [gpu_machine(tmp_path / f"node{number}.json", devices, "sm_90") for number in range(5)]
    fleet += [
        gpu_machine(tmp_path / f"old{number}.json", devices, "sm_90", fields=OLD) for number in range(2)
    ]
    answer = check(run, [recording], fleet)
    assert answer.code == 3
    rows = [line for line in answer.out.splitlines() if " one.cu, two.cu " in line]
    assert ["hit" in row.split() for row in rows] == [False, True]
    assert "old0, old1: cuda:sm_90" in rows[0] and "key-changed: NVRTC" in rows[0] and "-> 12.8" in rows[0]
    assert "5 machines: node0, node1, node2 and 2 more: cuda:sm_90" in rows[1]
    assert "2 of 7 machines would miss; 2 builds would fix that" in answer.out
    assert check(run, [recording], fleet, "-v").out.count("cuda:sm_90 ") == 14
    quiet = check(run, [recording], fleet, "-q")
    assert (
        quiet.out == "" and quiet.err.count("\n") == 1 and "on old0, old1: missing: key-changed" in quiet.err
    )


def test_what_holds_places_hits_where_it_was_recorded(
    run: Run, devices: Sequence[Device], intel: str, tmp_path: Path
) -> None:
    """An entry with the path of a header serves machines with the program at the recorded place."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "where.h").write_text("__constant char where[] = __FILE__;\n")
    source = '#include "where.h"\nkernel void is(global char *a) { a[0] = where[a[1]]; }\n'
    one = asked("where", device_of(intel, devices), source, f"-I{folder}", folder=str(folder))
    recording = recorded(tmp_path / "recording", [one])
    assert run("warm", "--recording", recording).code == 0
    shutil.rmtree(folder)
    here = tmp_path / "here.json"
    save_profile(here, Profile(tuple(devices), {}))
    (row,) = check(run, [recording], [here], "--json").document["outcomes"]
    assert (row["result"], row["key"]) == ("hit", str(one.located_key))


def test_a_profile_among_others_that_is_none_is_one_sentence(
    run: Run, devices: Sequence[Device], recording: Path, tmp_path: Path
) -> None:
    """The others are answered, and the command fails; alone it is an error."""
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    fleet = [gpu_machine(tmp_path / "a.json", devices, "sm_90"), bad]
    answer = check(run, [recording], fleet)
    assert answer.code == 3 and answer.out.count("bad.json is not a device profile") == 1
    rows = told(check(run, [recording], fleet, "--json").document)
    assert [(result, machines) for *_, result, machines in rows] == [
        ("failed", []), ("missing", ["a.json"]), ("missing", ["a.json"]),
    ]  # fmt: skip
    assert check(run, [recording], [bad]).code == 2


@pytest.mark.slow
def test_a_store_is_looked_in_alone(
    run: Run, devices: Sequence[Device], recording: Path, tmp_path: Path
) -> None:
    """An entry that was not pushed is missing, and the printed push makes it a hit for every machine."""
    store = tmp_path / "store"
    assert run("warm", "--recording", recording).code == 0
    assert run("push", store).code == 0
    assert run("warm", "--recording", recording, "--target", "cuda:sm_80").code == 0
    fleet = [gpu_machine(tmp_path / f"{name}.json", devices, name) for name in ("sm_80", "sm_90")]
    fleet.append(gpu_machine(tmp_path / "old.json", devices, "sm_90", fields=OLD))
    document = check(run, [recording], fleet, "--cache", store, "--json").document
    verdicts = [
        (one["machines"][0][-10:], one["verdict"], one["remote"]) for one in document["outcomes"][::2]
    ]
    missed = [("sm_80.json", "never-built", False), ("0/old.json", "key-changed", False)]
    assert verdicts == [missed[0], ("sm_90.json", None, True), missed[1]]
    assert [one["field"] for one in document["outcomes"][-1]["differences"]] == [*OLD]
    assert run(*shlex.split(document["summary"]["send"])[1:], at=None).code == 0
    answer = check(run, [recording], fleet[:2], "--cache", store)
    assert answer.code == 0 and "2 machines: all would hit" in answer.out
    for wrong in (tmp_path, tmp_path / "nosuch"):
        assert "push there first" in check(run, [recording], fleet, "--cache", wrong).err


@pytest.mark.slow
def test_no_password_is_printed(
    run: Run, devices: Sequence[Device], recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The URL of a store is told without its credentials, and nothing is sent to one that is only read."""
    fleet = [gpu_machine(tmp_path / "a.json", devices, "sm_90")]
    monkeypatch.setenv("GPUCACHE_REMOTE", "https://me:s3cret@127.0.0.1:1/here")
    answers = [check(run, [recording], fleet), check(run, [recording], fleet, "--json")]
    store = tmp_path / "store"
    assert run("warm", "--recording", recording).code == 0
    assert run("key", tmp_path / "ci.key").code == 0
    monkeypatch.setenv("GPUCACHE_TRUSTED_KEYS", str(tmp_path / "ci.key.pub"))
    assert run("push", store, "one.cu", "--key", tmp_path / "ci.key").code == 0
    with nginx(store, tmp_path) as url:
        there = url.replace("//", "//me:s3cret@")
        told = [check(run, [recording], fleet, "--cache", there, *more) for more in ((), ("--json",))]
    assert told[1].document["summary"]["send"] is None
    assert f"nothing of two.cu is in {url}" in told[1].out
    answers += [*told, run("push", "ftp://me:s3cret@host/"), run("push", "x", "--cache", there)]
    assert [one.code for one in answers[-2:]] == [2, 2]
    assert not any("s3cret" in one.out + one.err for one in answers)


@pytest.mark.parametrize("absent", [True, False])
def test_a_recording_among_others_that_is_none_is_one_sentence(
    run: Run, devices: Sequence[Device], recording: Path, tmp_path: Path, absent: bool
) -> None:
    """A valid recording is checked even if another is damaged or missing, which is reported once."""
    bad = tmp_path / "bad"
    if not absent:
        bad.mkdir()
        (bad / "0.jsonl").write_text("half a line")
    answer = check(run, [recording, bad], [gpu_machine(tmp_path / "a.json", devices, "sm_90")], "--json")
    assert answer.code == 3
    first, *rest = answer.document["outcomes"]
    assert str(bad) in first["program"] and first["result"] == "failed" and len(rest) == 2
    answer = check(run, [recording, bad], [gpu_machine(tmp_path / "a.json", devices, "sm_90")])
    assert answer.out.count(str(bad)) == 1


def test_a_machine_without_a_device_for_a_program_does_not_miss_it(
    run: Run, devices: Sequence[Device], recording: Path, tmp_path: Path
) -> None:
    """It is reported; only a program that no machine has a device for is one that could not be looked up."""
    none = tmp_path / "login.json"
    save_profile(none, Profile((), {}))
    gpu = gpu_machine(tmp_path / "a.json", devices, "sm_90")
    answer = check(run, [recording], [gpu, none], "--json")
    assert [machines for *_, machines in told(answer.document)] == [["a.json"], ["a.json"]]
    assert "login: no device for any recorded program" in check(run, [recording], [gpu, none]).out
    answer = check(run, [recording], [none], "--json")
    assert (answer.code, {result for *_, result, _ in told(answer.document)}) == (4, {"skipped"})


def test_a_recording_without_sources_says_that_nothing_builds_it(
    run: Run, devices: Sequence[Device], nvrtc: str, tmp_path: Path
) -> None:
    """Digests are looked up; no command is printed that could not make them."""
    recording = recorded(tmp_path / "rec", [asked("one", device_of(nvrtc, devices))], sources=False)
    answer = check(run, [recording], [gpu_machine(tmp_path / "a.json", devices, "sm_90")])
    assert answer.code == 3
    assert "gpucache warm" not in answer.out and "record again without --digests-only" in answer.out


def test_targets_are_asked_where_they_are(
    run: Run, devices: Sequence[Device], recording: Path, tmp_path: Path
) -> None:
    """A target of the command line replaces a machine's own; one that no machine has is an error."""
    fleet = [gpu_machine(tmp_path / f"{name}.json", devices, name) for name in ("sm_80", "sm_90")]
    rows = told(check(run, [recording], fleet, "--target", "cuda:sm_100", "--json").document)
    assert {(target, *machines) for _, target, _, machines in rows} == {
        ("cuda:sm_100", "sm_80.json", "sm_90.json")
    }
    assert check(run, [recording], fleet, "--target", "cuda:sm_20").code == 2


@pytest.mark.slow
def test_several_recordings_are_built_together(
    run: Run, devices: Sequence[Device], recording: Path, nvrtc: str, tmp_path: Path
) -> None:
    """A build that two recordings share is made once."""
    device = device_of(nvrtc, devices)
    other = recorded(tmp_path / "other", [asked("two", device), asked("three", device)])
    answer = run("warm", *words("--recording", [recording, other]), "--json")
    assert [one["program"] for one in answer.document["outcomes"]] == ["one.cu", "two.cu", "three.cu"]
    assert (answer.code, answer.document["summary"]["built"]) == (0, 3)
    gpu = gpu_machine(tmp_path / "a.json", devices, "sm_90")
    assert check(run, [recording, other], [gpu]).code == 0
