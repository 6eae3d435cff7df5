"""The parts of PoCL's cache that are not programs."""

from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.answers.verify import Checked
from tests.caches.pocl import build
from tests.payload.build import library

_OLD = build.NOW - 61 * build.MINUTE
_YOUNG = build.NOW - 59 * build.MINUTE


def _left(root: Path) -> dict[str, tuple[FindingKind, str]]:
    found = [one for checked in build.cache(root).leftovers() for one in checked.findings]
    return {one.entry: (one.kind, one.detail) for one in found}


def _repair(root: Path) -> list[Checked]:
    cache = build.cache(root)
    return [cache.repair(checked, None) for checked in list(cache.leftovers())]


def _temporaries(root: Path) -> None:
    for name in ("tempfile_AIaq2O", "tempfile_KLXpbI.so.o"):
        (root / name).write_bytes(library() if "." in name else b"")
    (root / "tempdir_gpucache_00" / "vecadd").mkdir(parents=True)
    (root / "_UNCACHED_abcdef").mkdir()


def test_old_temporaries_are_one_finding_and_removed(tmp_path: Path) -> None:
    """Files and folders of writers that died make one finding, and a repair removes them."""
    _temporaries(tmp_path)
    build.age(tmp_path, _OLD)
    found = _left(tmp_path)
    assert set(found) == {"leftovers"} and found["leftovers"][0] is FindingKind.LEFTOVER
    assert ": 4 (" in found["leftovers"][1]
    assert all(one.repaired for checked in _repair(tmp_path) for one in checked.findings)
    assert list(tmp_path.iterdir()) == []


def test_young_temporaries_stay(tmp_path: Path) -> None:
    """They may be in use."""
    _temporaries(tmp_path)
    build.age(tmp_path, _YOUNG)
    assert _left(tmp_path) == {}
    _repair(tmp_path)
    assert len(list(tmp_path.iterdir())) == 4


def test_leftovers_do_not_count_as_checked(tmp_path: Path) -> None:
    """Leftovers are reported with their paths and are not counted as checked."""
    _temporaries(tmp_path)
    build.age(tmp_path, _OLD)
    places = {checked.entry for checked in build.cache(tmp_path).leftovers() if not checked.counts}
    assert places == {str(tmp_path / "leftovers")}


def test_a_link_among_temporaries_is_not_removed(tmp_path: Path) -> None:
    """A link called like a temporary directory is a stranger, and what it names stays."""
    target = tmp_path / "target"
    target.mkdir()
    (target / "precious").touch()
    root = tmp_path / "root"
    root.mkdir()
    (root / "tempdir_abcdef").symlink_to(target)
    _repair(root)
    assert (target / "precious").exists()
    assert (root / "tempdir_abcdef").is_symlink()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tempfile_0mLoUP.cl", '#include "defs.h"\nKERNEL void scale(GLOBAL int *x) { *x = 3; }\n'),
        ("tempfile_kIgrU8.preproc.cl", "#define __llvm__ 1\n#define __clang__ 1\n"),
        ("tempfile_EtADDU.preproc-ef2ff45d.cl.tmp", "#define __llvm__ 1\n#define __clang__ 1\n"),
    ],
)
def test_sources_whose_kernels_are_macros_are_temporary(name: str, text: str, tmp_path: Path) -> None:
    """PoCL writes a program's source, and what the preprocessor makes of it, a megabyte of macros first."""
    path = tmp_path / name
    path.write_text(text)
    build.age(tmp_path, _OLD)
    path.chmod(0o600)
    assert set(_left(tmp_path)) == {"leftovers"}
    assert all(one.repaired for checked in _repair(tmp_path) for one in checked.findings)
    assert not path.exists()


@pytest.mark.parametrize("text", ["int main(void) { return 0; }\n", "(defun thesis ())\n", "void f() {}\n"])
def test_a_source_of_somebody_elses_stays(text: str, tmp_path: Path) -> None:
    """It has another mode than PoCL's, or no head of a kernel."""
    path = tmp_path / "tempfile_thesis.cl"
    path.write_text(text)
    build.age(tmp_path, _OLD)
    path.chmod(0o644 if text.startswith("void") else 0o600)
    assert not any(one.repaired for checked in _repair(tmp_path) for one in checked.findings)
    assert path.read_text() == text


@pytest.mark.parametrize(
    "name", ["tempfile_thesis.tex", "tempfile_report", "tempdir_backup/notes.txt", "_UNCACHED_recipe/soup.cl"]
)
def test_what_people_call_as_pocl_does_is_a_stranger(name: str, tmp_path: Path) -> None:
    """Words of six letters end their names as well; what they hold tells them apart."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    build.age(tmp_path, _OLD)
    [(kind, detail)] = _left(tmp_path).values()
    assert kind is FindingKind.LEFTOVER
    assert name.partition("/")[0] in detail
    assert not any(one.repaired for checked in _repair(tmp_path) for one in checked.findings)
    assert (tmp_path / name).read_text() == "mine"


def test_failed_builds_are_leftovers_and_go_with_their_folders(tmp_path: Path) -> None:
    """A directory with no more than a log is what a build that failed leaves."""
    folder = build.folder_of(tmp_path)
    folder.mkdir(parents=True)
    (folder / "build.log").write_text("error")
    build.age(tmp_path, _OLD)
    assert set(_left(tmp_path)) == {"leftovers"}
    assert list(build.cache(tmp_path).scan()) == []
    _repair(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_build_in_progress_is_left_alone(tmp_path: Path) -> None:
    """A young directory without a program may be one whose compiler is still at work."""
    folder = build.folder_of(tmp_path)
    folder.mkdir(parents=True)
    build.age(tmp_path, _YOUNG)
    assert _left(tmp_path) == {}
    _repair(tmp_path)
    assert folder.exists()


def test_kernels_without_their_program_are_leftovers(tmp_path: Path) -> None:
    """PoCL would compile the program again and take these kernels as they are."""
    folder = build.program(tmp_path)
    (folder / "program.bc").unlink()
    build.age(tmp_path, _OLD)
    assert set(_left(tmp_path)) == {"leftovers"}
    _repair(tmp_path)
    assert not folder.exists()


def test_strangers_are_named_and_left(tmp_path: Path) -> None:
    """All files of other programs are one finding, and a repair keeps them."""
    for number in range(12):
        (tmp_path / f"photo-{number:02}.jpg").touch()
    folder = build.folder_of(tmp_path)
    folder.mkdir(parents=True)
    (folder / "thesis.tex").touch()
    (folder.parent / "more").mkdir()
    build.age(tmp_path, _OLD)
    found = _left(tmp_path)
    assert {kind for kind, _ in found.values()} == {FindingKind.LEFTOVER} and len(found) == 3
    assert not any(one.repaired for checked in _repair(tmp_path) for one in checked.findings)
    assert (folder / "thesis.tex").exists()
