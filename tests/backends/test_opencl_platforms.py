"""OpenCL platforms as targets: unique names, fields that distinguish compilers, and two PoCLs at once."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpucache.errors import NoDeviceError, TargetError
from gpucache.keys import digest
from gpucache.model import Target
from tests.children import run_python, run_text
from tests.pocl import SYSTEM_ICD, need_pocl, need_pypi_pocl

cl = pytest.importorskip("pyopencl")
platforms: Any = pytest.importorskip("gpucache.backends.opencl.platforms")

_SHOW = "kernel void show(global int *out) { out[get_global_id(0)] = 7; }"


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("Intel(R) Xeon(R) Processor", "intel-xeon-processor"),
        ("NVIDIA A100-SXM4-40GB", "nvidia-a100-sxm4-40gb"),
        ("  pthread-AMD EPYC 7B12 ", "pthread-amd-epyc-7b12"),
        ("3.1+debian", "3.1-debian"),
        ("™", "unnamed"),
    ],
)
def test_a_slug_is_short_and_plain(text: str, slug: str) -> None:
    """Names become lower case, without marks, with hyphens between words."""
    assert platforms.slug(text) == slug


def test_what_is_no_regular_file_is_no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device or a pipe called cl.cfg, which might never end, is not read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cl.cfg").symlink_to(os.devnull)
    assert platforms._configuration() is None
    (tmp_path / "cl.cfg").unlink()
    (tmp_path / "cl.cfg").write_bytes(b"A = 1\n")
    assert platforms._configuration() == digest(b"A = 1\n")


def _device(name: str, driver: str = "1.0") -> SimpleNamespace:
    return SimpleNamespace(name=name, driver_version=driver)


def _platform(name: str, *devices: SimpleNamespace) -> SimpleNamespace:
    return SimpleNamespace(name=name, version="OpenCL 3.0", get_devices=lambda: list(devices))


def _targets(monkeypatch: pytest.MonkeyPatch, *found: SimpleNamespace) -> list[str]:
    monkeypatch.setattr(cl, "get_platforms", lambda: list(found))
    return [located.target.name for located in platforms.devices()]


def test_alike_devices_are_numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two alike devices gets a number, so that each target is one device."""
    cuda = _platform("NVIDIA CUDA", _device("A100"), _device("A100"), _device("T4"))
    assert _targets(monkeypatch, cuda) == ["nvidia/a100", "nvidia/a100-2", "nvidia/t4"]


def test_alike_platforms_are_told_apart_by_their_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two platforms of one name carry their versions, in whatever order the loader gives them."""
    old, new = (_platform("Portable Computing Language", _device("cpu", driver)) for driver in ("3.0", "3.1"))
    wanted = ["pocl-3.0/cpu", "pocl-3.1/cpu"]
    assert _targets(monkeypatch, old, new) == wanted
    assert sorted(_targets(monkeypatch, new, old)) == wanted


def test_a_platform_without_devices_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A platform that returns an error has no targets, and does not affect others."""

    def none() -> list[SimpleNamespace]:
        raise cl.RuntimeError("get_devices", -1, "DEVICE_NOT_FOUND")

    empty = SimpleNamespace(name="AMD Accelerated Parallel Processing", version="", get_devices=none)
    assert _targets(monkeypatch, empty, _platform("Clover", _device("gpu"))) == ["clover/gpu"]


def test_no_platform_is_no_device_with_a_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """If the loader finds no platform, the error says what to install."""
    # The drivers of this machine may end a process that has others loaded, as two LLVMs do.
    monkeypatch.setattr("gpucache.backends.opencl.installations.FOLDER", tmp_path)
    monkeypatch.setattr(cl, "get_platforms", list)
    with pytest.raises(NoDeviceError, match="pip install pocl-binary-distribution"):
        platforms.probe()
    with pytest.raises(TargetError, match="no device is 'opencl:pocl/cpu'"):
        platforms.find(Target("opencl", "pocl/cpu"))


_PROBE = """
import json
from gpucache.backends.opencl import platforms
from gpucache.probe.remembered import device_to_json

rows = [device_to_json(row) for row in platforms.probe()]
same = [platforms.target_of(platforms.find(each.target)) == each.target for each in platforms.devices()]
print(json.dumps([rows, same]))
"""


def _probe(environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Each row by the first part of its target; platforms without devices have none."""
    rows, same = json.loads(run_python("-c", _PROBE, env=environment))
    assert all(same)
    return {row["target"].removeprefix("opencl:").partition("/")[0]: row for row in rows if row["target"]}


def test_real_platforms_say_who_compiles(opencl_environment: Mapping[str, str]) -> None:
    """PoCL and Intel are targets with versions, driver and instruction sets, without a machine's UUID."""
    need_pocl()
    rows = [row for row in _probe(opencl_environment).values() if row["available"]]
    assert sorted(row["toolchain"]["implementation"] for row in rows) == ["intel", "pocl"]
    for row in rows:
        assert row["present"]
        assert row["detail"].startswith("CPU, ")
        toolchain = row["toolchain"]
        assert toolchain["identity"] == ["platform name", "device name"]
        fields = dict(toolchain["fields"])
        assert {"platform version", "device version", "driver version", "CPU features"} <= set(fields)
        assert fields["driver version"] == row["driver_version"]
        assert not fields["CPU features"].startswith("unknown")
        assert "device UUID" not in fields


@pytest.fixture(scope="module")
def two_pocls() -> dict[str, dict[str, Any]]:
    """The rows of PoCL from PyPI and from the system; skips where only one of them compiles."""
    need_pypi_pocl()
    if not SYSTEM_ICD.is_file():
        pytest.skip(f"pocl-opencl-icd is not installed: no {SYSTEM_ICD}")
    rows = {name: row for name, row in _probe(os.environ).items() if name.startswith("pocl")}
    if len(rows) != 2:
        pytest.skip(f"the loader shows {len(rows)} PoCL, not two")
    return rows


def _gpucache(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_text([sys.executable, "-m", "gpucache", "--root", str(root), *arguments])


def test_two_pocls_have_names_of_their_own(two_pocls: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    """Each carries its version; the bare name means the newest, and a line names both."""
    drivers = {f"pocl-{platforms.slug(row['driver_version'])}" for row in two_pocls.values()}
    assert set(two_pocls) == drivers
    (tmp_path / "show.cl").write_text(_SHOW, encoding="ascii")
    warmed = _gpucache(tmp_path / "cache", "warm", str(tmp_path / "show.cl"), "--target", "opencl:pocl")
    assert warmed.returncode == 0 and "the newest that can compile" in warmed.stderr
    assert all(row["target"] in warmed.stderr for row in two_pocls.values())


def test_a_pocl_is_not_served_the_entry_of_another(
    two_pocls: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    """An entry of one is a hit for it and missing for the other, with the version as the difference."""
    (tmp_path / "show.cl").write_text(_SHOW, encoding="ascii")
    first, second = (row["target"] for row in two_pocls.values())
    source, root = str(tmp_path / "show.cl"), tmp_path / "cache"
    assert _gpucache(root, "warm", source, "--target", first).returncode == 0
    checked = _gpucache(root, "--json", "warm", "--check", source, "--target", first, "--target", second)
    outcomes = {outcome["target"]: outcome for outcome in json.loads(checked.stdout)["outcomes"]}
    assert {target: outcome["result"] for target, outcome in outcomes.items()} == {
        first: "hit",
        second: "missing",
    }
    assert "version" in outcomes[second]["reason"]
    assert outcomes[first]["key"] != outcomes[second]["key"]


_BUILDS = """
import json
import pyopencl as cl
from gpucache.backends.opencl import platforms

def builds(device):
    program = cl.Program(cl.Context([device]), "kernel void show(global int *out) { *out = 7; }")
    try:
        program.build(cache_dir=False)
    except cl.RuntimeError:
        return False
    return True

print(json.dumps([[platforms._row(each).available, builds(each.handle)] for each in platforms.devices()]))
"""


def test_what_is_available_compiles_and_nothing_else() -> None:
    """A device is available where a plain build succeeds; a PoCL too old for this CPU is not."""
    done = run_text([sys.executable, "-c", _BUILDS])
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [available for available, _ in told] == [succeeded for _, succeeded in told]
