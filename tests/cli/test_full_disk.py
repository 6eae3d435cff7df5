"""A full disk is named as the reason by every command that writes a user's file, and no part of it stays."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.errors import SystemRefusedError
from gpucache.native.locate import locate
from gpucache.recording.builds import Seen
from gpucache.recording.writing import Writer
from gpucache.serve.exported_layer import Layer
from tests.recording.builds import ONE

WHY = "(No space left on device); make room on its disk"


@pytest.fixture
def full_disk(mount: Callable[[str], Path]) -> Path:
    """A disk of 16 KiB, with no room for a byte more; directories can still be made."""
    place = mount("size=16k")
    (place / "filler").write_bytes(bytes(16 << 10))
    return place


def test_a_profile_on_a_full_disk_is_not_written(full_disk: Path, tmp_path: Path) -> None:
    """No empty file is left, which would not be a valid profile."""
    command = [sys.executable, "-m", "gpucache", "--root", str(tmp_path / "root"), "devices", "--save"]
    done = subprocess.run(
        [*command, str(full_disk / "profile.json")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.endswith(f"profile.json cannot be written {WHY}\n")
    assert [path.name for path in full_disk.iterdir()] == ["filler"]


def test_a_recording_on_a_full_disk_is_told(full_disk: Path) -> None:
    """Every build that is not written has that reason."""
    writer = Writer(full_disk / "recording")
    assert writer.build(ONE, Seen(), {ONE.source: b"x"}) == f"the recording cannot be written {WHY}"


@pytest.mark.parametrize("there", [0, 1])
def test_a_layer_on_a_full_disk_is_not_begun(
    full_disk: Path, monkeypatch: pytest.MonkeyPatch, there: int
) -> None:
    """However many of its files fit before the disk is full, it can be exported once there is space."""
    locate("opencl_layer")
    put: Callable[..., None] = Layer._put
    files: list[Path] = []

    def some(layer: Layer, file: Path, data: bytes, mode: int) -> None:
        files.append(file)
        put(layer, file, b"" if len(files) <= there else data or b"x", mode)

    monkeypatch.setattr(Layer, "_put", some)
    layer = Layer(full_disk / "layer")
    with pytest.raises(SystemRefusedError) as raised, layer.writing():
        layer.finish(["opencl"])
    assert str(raised.value) == f"{full_disk}/layer cannot be written {WHY}"
    monkeypatch.undo()
    (full_disk / "filler").unlink()
    subprocess.run(["mount", "-o", "remount,size=4m", str(full_disk)], check=True)
    layer = Layer(full_disk / "layer")
    assert not layer.exists
    with layer.writing():
        assert layer.finish(["opencl"])[0] == 0
