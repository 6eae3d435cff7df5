"""The kernels of Triton in a recording: what is read of a file that anyone may have written."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpucache.errors import SourceError, TargetError
from gpucache.recording.kernels import read_kernels, wanted_targets
from gpucache.recording.reading import read_recording

DIGEST = "0" * 64


def kernel(**more: Any) -> dict[str, Any]:
    return {
        "gpucache kernel": 1,
        "name": "scale",
        "triton": "3.9.0",
        "python": "/usr/bin/python3",
        "path": [],
        "environment": {},
        "module": "kernels",
        "qualname": "scale",
        "file": "",
        "language": "TRITON",
        "signature": [["x", "*fp32"]],
        "constants": [],
        "attributes": [],
        "near": [],
        "options": {},
        "target": ["cuda", 90, 32],
        "first_ir": DIGEST,
        "function": DIGEST,
        "source": DIGEST,
        "key": DIGEST,
        "compile_ns": 0,
        **more,
    }


def write(folder: Path, *lines: Any) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "1.kernels").write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    return folder


def test_a_kernel_is_read_once(tmp_path: Path) -> None:
    """However long its compiles took, which two processes measured."""
    found = read_kernels(write(tmp_path / "r", kernel(), kernel(compile_ns=5)))
    assert [one.told_target for one in found.kernels.values()] == ["cuda:sm_90"]


def test_lines_that_cannot_be_read_are_told_and_the_rest_is_kept(tmp_path: Path) -> None:
    """Damage, missing fields, digests that are none, and a kernel that was not recorded."""
    lines: tuple[Any, ...] = ([], kernel(key="../x"), {"name": "y", "unrecorded": "a file of IR"}, kernel())
    found = read_kernels(write(tmp_path / "r", *lines))
    assert len(found.kernels) == 1 and found.unrecorded == (("y", "a file of IR"),)
    assert [one.line for one in found.damage] == [1, 2]


def test_a_directory_that_others_may_write_is_refused(tmp_path: Path) -> None:
    """A worker would import the modules that anyone names there."""
    folder = write(tmp_path / "r", kernel())
    folder.chmod(0o777)
    with pytest.raises(SourceError):
        read_kernels(folder)


def test_a_recording_of_kernels_alone_is_one(tmp_path: Path) -> None:
    """It has no builds and no blobs."""
    assert len(read_recording(write(tmp_path / "r", kernel())).kernels.kernels) == 1


def test_targets_of_other_compilers_are_left_out() -> None:
    """An architecture that is none is an error; without targets there are those recorded."""
    found = wanted_targets((), ["opencl:pocl", "cuda:sm_100a", "hip:gfx1100", "cuda:compute_90"])
    assert found == {"cuda:sm_100": ("cuda", 100, 32), "hip:gfx1100": ("hip", "gfx1100", 32)}
    with pytest.raises(TargetError):
        wanted_targets((), ["cuda:sm_x"])
