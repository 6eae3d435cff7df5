"""The parts of PoCL's cache that are not programs."""

from collections.abc import Callable
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


def _failed(root: Path) -> None:
    build.folder_of(root).mkdir(parents=True)
    (build.folder_of(root) / "build.log").write_text("error")


def _kernels(root: Path) -> None:
    (build.program(root) / "program.bc").unlink()


def _source(name: str, text: str) -> Callable[[Path], object]:
    return lambda root: (root / name).write_text(text)


_MACROS = "#define __llvm__ 1\n#define __clang__ 1\n"
_LEFT: dict[str, Callable[[Path], object]] = {
    "temporary files and directories": _temporaries,
    "a failed build": _failed,
    "kernels without their program, which PoCL would take as they are": _kernels,
    "a source": _source("tempfile_0mLoUP.cl", '#include "d.h"\nKERNEL void f(GLOBAL int *x) { *x = 3; }\n'),
    "a preprocessed source": _source("tempfile_kIgrU8.preproc.cl", _MACROS),
    "an unfinished one": _source("tempfile_EtADDU.preproc-ef2ff45d.cl.tmp", _MACROS),
}


@pytest.mark.parametrize("name", _LEFT)
@pytest.mark.parametrize("old", [True, False])
def test_what_was_left_is_one_finding_and_removed_once_it_is_old(
    name: str, old: bool, tmp_path: Path
) -> None:
    """Younger things may be in use; none counts as checked."""
    _LEFT[name](tmp_path)
    build.age(tmp_path, _OLD if old else _YOUNG)
    there = sorted(tmp_path.rglob("*"))
    assert [checked.counts for checked in build.cache(tmp_path).leftovers()] == [False] * old
    assert set(_left(tmp_path)) == ({"leftovers"} if old else set()) and not list(
        build.cache(tmp_path).scan()
    )
    assert all(one.repaired for checked in _repair(tmp_path) for one in checked.findings)
    assert sorted(tmp_path.rglob("*")) == ([] if old else there)


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


@pytest.mark.parametrize("text", ["int main(void) { return 0; }\n", "(defun thesis ())\n", "void f() {}\n"])
def test_a_source_of_somebody_elses_stays(text: str, tmp_path: Path) -> None:
    """It has no word for a kernel."""
    path = tmp_path / "tempfile_thesis.cl"
    path.write_text(text)
    build.age(tmp_path, _OLD)
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
