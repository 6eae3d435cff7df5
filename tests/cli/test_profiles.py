"""Another machine's devices: saved there, looked up on this machine."""

from __future__ import annotations

import getpass
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Filled, Run


@pytest.fixture
def saved(run: Run, tmp_path: Path) -> Path:
    path = tmp_path / "here.json"
    assert run("devices", "--save", path).code == 0
    return path


@pytest.fixture
def edited(saved: Path) -> Callable[[Callable[[list[Any]], list[Any]]], Path]:
    """The profile of a machine with other devices."""

    def write(edit: Callable[[list[Any]], list[Any]]) -> Path:
        document = json.loads(saved.read_text(encoding="ascii"))
        document["devices"] = edit(document["devices"])
        path = saved.with_name("there.json")
        path.write_text(json.dumps(document), encoding="ascii")
        return path

    return write


def _newer(devices: list[Any], target: str) -> list[Any]:
    for device in devices:
        if device["target"] == target:
            fields = device["toolchain"]["fields"]
            device["toolchain"]["fields"] = [
                [label, "99.9" if label == "driver version" else value] for label, value in fields
            ]
    return devices


def _asked(mixed: Filled, target: str) -> tuple[object, ...]:
    return (mixed.sources / "twice.cl", "--target", target, "--local-size", "64", "--json")


def test_the_own_profile_answers_as_the_machine_does(
    run: Run, no_workers: None, mixed: Filled, saved: Path, pocl: str, intel: str
) -> None:
    """A local hit is also a hit with a profile saved here, for warm --check and inspect --why alike."""
    for target in (pocl, intel):
        for verb in (("warm", "--check"), ("inspect", "--why")):
            plain, profiled = (
                run(*verb, *_asked(mixed, target), *more, at=mixed.root)
                for more in ((), ("--device-profile", saved))
            )
            assert plain.code == profiled.code == 0
            assert plain.document == profiled.document


def test_another_driver_there_is_named(
    run: Run, no_workers: None, mixed: Filled, edited: Callable[..., Path], intel: str
) -> None:
    """A machine with a newer driver would miss because of the driver's version, and nothing is compiled."""
    profile = edited(lambda devices: _newer(devices, intel))
    (row,) = run(
        "inspect", "--why", *_asked(mixed, intel), "--device-profile", profile, at=mixed.root
    ).document["outcomes"]
    assert row["verdict"] == "key-changed"
    assert row["detail"].startswith("driver ") and " -> 99.9 (nearest: " in row["detail"]
    answer = run("warm", "--check", *_asked(mixed, intel), "--device-profile", profile, at=mixed.root)
    assert (answer.code, answer.document["summary"]["missing"]) == (3, 1)
    assert "-> 99.9" in answer.document["outcomes"][0]["reason"]


def test_a_device_that_is_not_there_is_said(
    run: Run, mixed: Filled, edited: Callable[..., Path], intel: str
) -> None:
    """A target that the other machine lacks is refused by name, and no entries for it are looked up."""
    profile = edited(lambda devices: [device for device in devices if device["target"] != intel])
    answer = run("inspect", "--why", *_asked(mixed, intel), "--device-profile", profile, at=mixed.root)
    assert answer.code == 2 and intel in answer.err
    answer = run(
        "inspect",
        "--why",
        "twice.cl",
        "--target",
        intel,
        "--json",
        "--device-profile",
        profile,
        at=mixed.root,
    )
    (row,) = answer.document["outcomes"]
    assert (row["verdict"], row["detail"]) == ("not-consulted", "its target is not on this machine")


def test_a_profile_names_no_host_and_no_user(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A saved file contains neither the host's name nor the user's nor the home directory."""
    text = saved.read_text(encoding="ascii")
    words = {part for value in json.loads(text)["devices"] for part in json.dumps(value).split('"')}
    assert os.environ["HOME"] not in text and str(Path.home()) not in text
    assert not words & {socket.gethostname(), getpass.getuser()}


def test_equal_machines_can_share(run: Run, saved: Path, edited: Callable[..., Path], intel: str) -> None:
    """A comparison says that both can share, or which field of which target would split a cache."""
    answer = run("devices", "--compare", saved, saved)
    assert answer.out == "No differences: both machines can share a cache.\n"
    profile = edited(lambda devices: _newer(devices, intel))
    document = run("devices", "--compare", saved, profile, "--json").document
    (row,) = document["outcomes"]
    assert set(row) == {"target", "field", "before", "now"}
    assert (row["target"], row["field"], row["now"]) == (intel, "driver version", "99.9")
    assert document["summary"] == {"differences": 1}
    differing = run("devices", "--compare", saved, profile)
    assert (differing.code, "99.9" in differing.out) == (3, True)


@pytest.mark.parametrize(
    "data", ["", "{}", "[" * 100_000, '{"schema": 1, "devices": [{}], "environment": {}}']
)
def test_junk_is_one_sentence_for_every_verb(run: Run, mixed: Filled, tmp_path: Path, data: str) -> None:
    """A file that is not a profile is exit 2 for every verb that reads one."""
    junk = tmp_path / "junk.json"
    junk.write_text(data, encoding="ascii")
    source = mixed.sources / "twice.cl"
    for words in (
        ("devices", "--compare", junk, junk),
        ("warm", source, "--check", "--device-profile", junk),
        ("inspect", "--why", source, "--device-profile", junk),
    ):
        answer = run(*words, at=mixed.root)
        assert (answer.code, answer.out) == (2, "")
        assert "is not a device profile" in answer.err and answer.err.count("\n") == 1


def test_a_profile_is_for_checking_only(run: Run, mixed: Filled, saved: Path) -> None:
    """Warm compiles nothing for another machine."""
    answer = run("warm", mixed.sources / "twice.cl", "--device-profile", saved, at=mixed.root)
    assert answer.code == 2 and "add --check" in answer.err
