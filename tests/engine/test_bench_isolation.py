"""Places of caches: what is redirected for whom, and what counts as written."""

import os
from pathlib import Path

import pytest

from gpucache.engine.isolation import DRIVERS, make_place
from gpucache.outcomes import Arm
from gpucache.outcomes.growth import growth


@pytest.mark.parametrize("arm", [Arm.COLD, Arm.WARM, Arm.DRIVER, Arm.PYOPENCL, Arm.CUDA_CORE])
def test_every_driver_cache_lies_below_the_folder(tmp_path: Path, arm: Arm) -> None:
    """Each variable names a folder of its own that is there already, below that of the arm."""
    environment = dict(make_place(arm, tmp_path).environment)
    folders = {Path(environment[name] or "") for name in DRIVERS}
    assert len(folders) == len(DRIVERS)
    assert all(folder.is_dir() and folder.is_relative_to(tmp_path) for folder in folders)


def test_only_its_own_arm_has_pyopencls_cache(tmp_path: Path) -> None:
    """PyOpenCL's cache is off but for the peer, for which it is moved, and its switch is unset."""
    environment = dict(make_place(Arm.PYOPENCL, tmp_path).environment)
    assert environment["PYOPENCL_NO_CACHE"] is None
    assert Path(environment["XDG_CACHE_HOME"] or "").is_relative_to(tmp_path)
    other = dict(make_place(Arm.WARM, tmp_path).environment)
    assert (other["PYOPENCL_NO_CACHE"], "XDG_CACHE_HOME" in other) == ("1", False)


def test_what_is_written_is_found_under_the_caches_name(tmp_path: Path) -> None:
    """A file below a variable's folder is that cache's entry, with its size."""
    place = make_place(Arm.COLD, tmp_path)
    before = place.look()
    program = tmp_path / "pocl" / "AB" / "program.bc"
    program.parent.mkdir()
    program.write_bytes(b"bitcode")
    (gained,) = growth(before, place.look())
    assert (gained.cache, gained.entries, gained.size_bytes, gained.names) == (
        "pocl",
        1,
        7,
        ("AB/program.bc",),
    )


def test_empty_and_touched_files_are_no_entries(tmp_path: Path) -> None:
    """PoCL leaves an empty file at every start and touches another; neither is anything written."""
    place = make_place(Arm.WARM, tmp_path)
    program = tmp_path / "pocl" / "program.bc"
    program.write_bytes(b"bitcode")
    before = place.look()
    (tmp_path / "pocl" / "tempfile_ABCD").touch()
    os.utime(program, ns=(1, 1))
    assert growth(before, place.look()) == ()


@pytest.mark.parametrize(
    ("arm", "file"), [(Arm.PYOPENCL, "xdg/pyopencl/binary"), (Arm.CUDA_CORE, "cuda.core/entries/ab/cd")]
)
def test_a_peers_cache_is_watched_as_its_own(tmp_path: Path, arm: Arm, file: str) -> None:
    """What a peer keeps is told apart from what drivers keep."""
    place = make_place(arm, tmp_path)
    before = place.look()
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_bytes(b"x")
    assert [gained.cache for gained in growth(before, place.look())] == [arm.value]
