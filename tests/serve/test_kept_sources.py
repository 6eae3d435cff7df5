"""``run --keep-sources``: the programs of a command as files, of the last run alone."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.serve.kept_sources import LIST
from tests.serve.conftest import PROGRAM

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="run is for Linux")]
_NVRTC_PROGRAM = Path(__file__).with_name("nvrtc_program.py")
Call = Callable[..., "subprocess.CompletedProcess[str]"]


def _files(folder: Path) -> dict[str, bytes]:
    """The content of each file by its name without the digits of the key."""
    return {
        f"{path.name.partition('-')[0]}.{path.name.partition('.')[2]}": path.read_bytes()
        for path in folder.iterdir()
        if path.name not in (LIST, "mine.txt")
    }


def test_each_program_is_written_on_a_miss_and_on_a_hit(gpucache: Call, tmp_path: Path) -> None:
    """Its source, options and binary; one that does not compile has its log."""
    folder = tmp_path / "sources"
    for _ in range(2):
        done = gpucache("run", "--keep-sources", folder, "--", sys.executable, PROGRAM, "Intel", "2", "oops")
        assert done.returncode == 0
        files = _files(folder)
        assert b"FACTOR" in files["scale.cl"]
        assert files["scale.opencl-binary"].startswith(b"\x7fELF")
        assert any(b"oops" in path.read_bytes() for path in folder.glob("*.log.txt"))
        assert {path.read_text() for path in folder.glob("*.options.txt")} == {
            "-DFACTOR=2\n",
            "-DFACTOR=oops\n",
        }


def test_a_program_of_nvrtc_has_all_its_artifacts(gpucache: Call, tmp_path: Path) -> None:
    """Under one name."""
    pytest.importorskip("cuda.bindings.nvrtc")
    folder = tmp_path / "sources"
    done = gpucache("run", "--keep-sources", folder, "--", sys.executable, _NVRTC_PROGRAM, "core", "plain")
    assert done.returncode == 0, done.stderr
    names = {path.stem for path in folder.glob("*.cu")}
    assert names and names == {path.stem for path in folder.glob("*.cubin")}
    assert names == {path.stem for path in folder.glob("*.ptx")}


def test_files_of_the_run_before_go_and_no_others(gpucache: Call, tmp_path: Path) -> None:
    """A list that says more removes nothing more."""
    folder = tmp_path / "sources"
    run = ("run", "--keep-sources", folder, "--", sys.executable, PROGRAM, "Intel")
    assert gpucache(*run, "2").returncode == 0
    first = {path.name for path in folder.iterdir()}
    (folder / "mine.txt").write_text("mine", encoding="ascii")
    (tmp_path / "outside-0123456789ab.txt").write_text("mine", encoding="ascii")
    with (folder / LIST).open("a", encoding="ascii") as file:
        file.write("mine.txt\n../outside-0123456789ab.txt\n")
    assert gpucache(*run, "3").returncode == 0
    second = {path.name for path in folder.iterdir()}
    assert first & second == {LIST}
    assert "mine.txt" in second and (tmp_path / "outside-0123456789ab.txt").exists()


def test_a_directory_that_cannot_be_used_is_refused_before_the_start(gpucache: Call, tmp_path: Path) -> None:
    """The command is not started."""
    (tmp_path / "file").touch()
    done = gpucache("run", "--keep-sources", tmp_path / "file" / "below", "--", "touch", tmp_path / "started")
    assert done.returncode == 2
    assert not (tmp_path / "started").exists()
