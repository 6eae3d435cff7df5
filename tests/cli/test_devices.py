"""``gpucache devices`` on real drivers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpucache.model import Device
from gpucache.probe.ask import ask

if TYPE_CHECKING:
    from tests.cli.conftest import Run


@pytest.fixture
def asking(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Like ``run``, with a new probe of the drivers."""
    monkeypatch.setattr("gpucache.probe.ask.ask", ask)
    return run


def test_every_compiler_is_a_target(asking: Run, pocl: str, intel: str, nvrtc: str) -> None:
    """PoCL and Intel are present devices; an architecture of NVRTC is a target without a device."""
    rows = {row["target"]: row for row in asking("devices", "--json").document["outcomes"]}
    assert all(rows[target]["available"] and rows[target]["present"] for target in (pocl, intel))
    assert rows[nvrtc]["available"] and not rows[nvrtc]["present"]
    assert all(rows[target]["driver_version"] for target in (pocl, intel))


def test_two_devices_of_one_platform_have_targets_of_their_own(
    asking: Run, pocl: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second PoCL device is a second target, and the platform alone no longer names one."""
    monkeypatch.setenv("POCL_DEVICES", "pthread basic")
    rows = asking("devices", "--json").document["outcomes"]
    platform = pocl.partition("/")[0]
    targets = [row["target"] for row in rows if str(row["target"]).startswith(f"{platform}/")]
    assert len(set(targets)) == 2


def test_a_platform_with_two_devices_is_ambiguous(
    asking: Run, pocl: str, monkeypatch: pytest.MonkeyPatch, mixed_source: Path
) -> None:
    """A target that two devices begin with is refused, naming both."""
    monkeypatch.setenv("POCL_DEVICES", "pthread basic")
    platform = pocl.partition("/")[0]
    answer = asking("warm", mixed_source, "--target", platform)
    assert answer.code == 2
    assert "could be" in answer.err and answer.err.count(f"{platform}/") == 2


@pytest.mark.parametrize("named", [True, False])
def test_a_device_that_compiles_nothing_is_refused_with_its_reason(
    run: Run, devices: Sequence[Device], monkeypatch: pytest.MonkeyPatch, mixed_source: Path, named: bool
) -> None:
    """The device is not tried, whether by name or as the only one, and its own message says what to do."""
    first = next(device for device in devices if device.backend == "opencl" and device.target is not None)
    old = first._replace(available=False, detail="it compiles nothing; install another")
    monkeypatch.setattr("gpucache.probe.ask.ask", lambda _=None, **__: [old])
    answer = run("warm", mixed_source, *(["--target", str(old.target)] if named else []))
    assert answer.code == 4
    assert "it compiles nothing; install another" in answer.out + answer.err


@pytest.fixture
def mixed_source(tmp_path: Path) -> Path:
    source = tmp_path / "k.cl"
    source.write_text("__kernel void k(void) {}\n", encoding="utf-8")
    return source


def test_a_driver_that_breaks_is_a_row(asking: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken OpenCL library affects nothing else: CUDA targets are still listed."""
    vendors = tmp_path / "vendors"
    vendors.mkdir()
    (vendors / "broken.icd").write_text(f"{sys.executable}\n", encoding="utf-8")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(vendors))
    monkeypatch.setenv("POCL_DEVICES", "none-such")
    answer = asking("devices", "--json")
    assert {"cuda"} <= {row["backend"] for row in answer.document["outcomes"] if row["available"]}
    assert answer.code == 0


def test_no_target_at_all_is_exit_4(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """If nothing can be targeted the command says so with its exit code."""
    monkeypatch.setattr("gpucache.probe.ask.ask", lambda _=None, **__: [])
    assert run("devices").code == 4


def test_targets_are_remembered_only_in_a_root_to_be_trusted(run: Run, root: Path) -> None:
    """A probe leaves its targets for completion in our own root, and nothing where others may write."""
    for mode, kept in ((0o700, True), (0o777, False)):
        place = root.with_name(f"root-{mode:o}")
        (place / "v1").mkdir(parents=True)
        place.chmod(mode)
        run("devices", at=place)
        assert (place / "v1" / "targets.json").exists() is kept


def test_a_read_only_cache_is_left_alone_by_a_probe(
    run: Run, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With GPUCACHE_READ_ONLY the targets of a probe are not stored."""
    (cache / "v1" / "targets.json").unlink()
    monkeypatch.setenv("GPUCACHE_READ_ONLY", "1")
    assert run("devices").code == 0
    assert not (cache / "v1" / "targets.json").exists()
