"""Device profiles: written, read strictly, and compared."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpucache.errors import UsageError
from gpucache.keys import Difference
from gpucache.model import Device, Target, Toolchain
from gpucache.probe.profile import Profile, compare, load_profile, save_profile

DEVICE = Device(
    Target("opencl", "pocl/cpu"), "opencl", "a CPU", "1.0", True, "CPU",
    Toolchain("pocl", (("device name", "a CPU"), ("driver version", "1.0")), ("device name",)),
)  # fmt: skip
PROFILE = Profile((DEVICE,), {"POCL_CPU": "x"})


def _document(**changes: Any) -> dict[str, Any]:
    device = {
        "target": "opencl:pocl/cpu", "backend": "opencl", "name": "a CPU", "driver_version": "1.0",
        "available": True, "present": True, "detail": "", "toolchain": None,
    }  # fmt: skip
    return {"schema": 1, "devices": [{**device, **changes}], "environment": {}}


def test_a_profile_comes_back_as_it_was(tmp_path: Path) -> None:
    """Devices, toolchains and variables are read back unchanged, odd characters included."""
    odd = Profile((DEVICE, DEVICE._replace(target=None, toolchain=None, name="\u00e4\n")), {"A": "\udcff"})
    for profile in (PROFILE, odd):
        save_profile(tmp_path / "p.json", profile)
        assert load_profile(tmp_path / "p.json") == profile


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\x00\xff\xfe", id="bytes"),
        pytest.param(b"[]", id="list"),
        pytest.param(b'{"schema": 2, "devices": [], "environment": {}}', id="schema"),
        pytest.param(b'{"schema": 1, "devices": {}, "environment": {}}', id="devices"),
        pytest.param(b'{"schema": 1, "devices": [], "environment": {"A": 1}}', id="environment"),
        pytest.param(b'{"schema": 1, "devices": [1], "environment": {}}', id="device"),
        pytest.param(b"[" * 200_000, id="nested"),
        pytest.param(b'{"schema": 1, "devices": [' + b"[" * 100_000, id="nested below"),
        pytest.param(json.dumps(_document())[:-9].encode(), id="truncated"),
        pytest.param(json.dumps(_document()).encode().ljust(5 << 20), id="huge"),
        pytest.param(json.dumps(_document(target="pocl")).encode(), id="no target"),
        pytest.param(json.dumps(_document(backend="vulkan", target="vulkan:x")).encode(), id="backend"),
        pytest.param(json.dumps(_document(target="cuda:sm_90")).encode(), id="another's target"),
        pytest.param(json.dumps(_document(toolchain={"fields": [["one"]]})).encode(), id="toolchain"),
    ],
)
def test_what_is_no_profile_is_one_sentence(tmp_path: Path, data: bytes) -> None:
    """Junk, a cut, deep nesting, a huge file and invalid devices are refused with the file's name."""
    path = tmp_path / "p.json"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=r"is not a device profile \(.*gpucache devices --save") as caught:
        load_profile(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_cannot_be_had_is_said(tmp_path: Path) -> None:
    """A missing file, and a directory in place of a file, are usage errors in both directions."""
    with pytest.raises(UsageError, match="cannot be read"):
        load_profile(tmp_path / "none.json")
    with pytest.raises(UsageError, match="cannot be read"):
        load_profile(tmp_path)
    with pytest.raises(UsageError, match="cannot be written"):
        save_profile(tmp_path / "none" / "p.json", PROFILE)


def test_equal_profiles_do_not_differ() -> None:
    """Facts outside a key (a device's detail, an unavailable device) are not a difference."""
    broken = DEVICE._replace(target=None, toolchain=None)
    assert compare(PROFILE, Profile((broken, DEVICE._replace(detail="other")), PROFILE.environment)) == []


def test_what_would_split_a_cache_is_named() -> None:
    """A field of a toolchain, a target on one side only, and a variable are reported with both values."""
    assert DEVICE.toolchain is not None
    newer = DEVICE.toolchain._replace(fields=(("device name", "a CPU"), ("driver version", "2.0")))
    apart = DEVICE.toolchain._replace(fields=(("device name", "Xeon"), ("driver version", "1.0")))
    other = DEVICE._replace(target=Target("opencl", "intel/cpu"), toolchain=apart)
    assert compare(PROFILE, Profile((DEVICE._replace(toolchain=newer), other), {"POCL_B": "y"})) == [
        ("opencl:intel/cpu", Difference("target", None, "present")),
        ("opencl:pocl/cpu", Difference("driver version", "1.0", "2.0")),
        ("environment", Difference("POCL_CPU", "x", None)),
        ("environment", Difference("POCL_B", None, "y")),
    ]


def _pocl(name: str, version: str, build: str) -> Device:
    fields = (("device name", "a CPU"), ("driver version", version), ("compiler build", build))
    return DEVICE._replace(
        target=Target("opencl", f"{name}/cpu"), toolchain=Toolchain("pocl", fields, ("device name",))
    )


@pytest.mark.parametrize(
    ("right", "differences"),
    [
        pytest.param(
            [_pocl("pocl-3.0", "3.0", "a"), _pocl("pocl-3.1", "3.1", "b")],
            [("opencl:pocl-3.1/cpu", Difference("target", None, "present"))],
            id="another next to it",
        ),
        pytest.param(
            [_pocl("pocl-3.0", "3.0", "c"), _pocl("pocl-3.1", "3.1", "b")],
            [
                ("opencl:pocl-3.1/cpu", Difference("target", None, "present")),
                ("opencl:pocl/cpu", Difference("compiler build", "a", "c")),
            ],
            id="another build of the version",
        ),
        pytest.param(
            [_pocl("pocl", "3.1", "b")],
            [
                ("opencl:pocl/cpu", Difference("driver version", "3.0", "3.1")),
                ("opencl:pocl/cpu", Difference("compiler build", "a", "b")),
            ],
            id="another version",
        ),
        pytest.param(
            [_pocl("pocl-3.0", "3.0", "b"), _pocl("pocl-3.0-2", "3.0", "a")],
            [("opencl:pocl-3.0/cpu", Difference("target", None, "present"))],
            id="two builds of a version",
        ),
    ],
)
def test_a_compiler_is_the_same_under_another_name(
    right: list[Device], differences: list[tuple[str, Difference]]
) -> None:
    """A PoCL that is called by its version next to another PoCL is compared with the one called pocl."""
    assert compare(Profile((_pocl("pocl", "3.0", "a"),), {}), Profile(tuple(right), {})) == differences
