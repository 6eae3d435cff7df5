"""Of the opened files only those that are neither covered nor the system's are reported."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.engine.warm.rounds import uncovered

Make = Callable[[Path, Path], object]
NAMES: dict[str, Make] = {
    "a link": lambda name, file: name.symlink_to(file),
    "a hard link": lambda name, file: name.hardlink_to(file),
    "a copy": lambda name, file: shutil.copyfile(file, name),
}


@pytest.fixture
def header(tmp_path: Path) -> Path:
    file = tmp_path / "value.h"
    file.write_text("#define VALUE 1\n", encoding="ascii")
    return file


def _told(opened: Path | str, *, covered: Path | None = None, own: Path | str = "/nonexistent/") -> bool:
    covers = [] if covered is None else [str(covered)]
    return uncovered([str(opened)], covers, lambda: [str(own)]) == (str(opened),)


def test_a_file_of_nobody_is_told(header: Path) -> None:
    """A file that neither the closure nor the compiler knows is reported by the path that was opened."""
    assert _told(header) and _told(f"{header.parent}/../{header.parent.name}/value.h")


def test_a_sandbox_without_the_kernels_file_systems_hides_no_file(
    header: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There ``/sys`` is an ordinary directory, on the same device as the header."""
    monkeypatch.setattr("gpucache.engine.warm.rounds._KERNEL", (str(header.parent), "/nonexistent"))
    assert _told(header)


def test_a_covered_file_is_not_told(header: Path) -> None:
    """A file of the closure is covered, however the compiler spells the way to it."""
    assert not _told(header, covered=header)
    assert not _told(f"{header.parent}/./value.h", covered=header)


@pytest.mark.parametrize(("kind", "told"), [("a link", False), ("a hard link", False), ("a copy", True)])
def test_another_name_of_a_covered_file_is_covered(header: Path, kind: str, told: bool) -> None:
    """A file is covered under all its names; a copy of it may change alone and is not."""
    name = header.with_name("other.h")
    NAMES[kind](name, header)
    assert _told(name, covered=header) is told


def test_what_the_compiler_brings_is_its_own(header: Path) -> None:
    """A file that it names, or one below a directory that it names, also through a link."""
    deep = header.parent / "own" / "include" / "x.h"
    deep.parent.mkdir(parents=True)
    deep.touch()
    link = header.parent / "link"
    link.symlink_to(header.parent / "own")
    assert not _told(header, own=header)
    assert not _told(deep, own=f"{header.parent / 'own'}/") and not _told(deep, own=f"{link}/")
    assert _told(deep, own=header.parent / "own") and _told(header, own=f"{header.parent / 'own'}/")


@pytest.mark.parametrize(
    "path", ["/proc/self/maps", "/dev/null", "/etc/passwd", sys.executable, os.__file__, "/", "/nonexistent"]
)
def test_what_belongs_to_the_system_is_not_told(path: str) -> None:
    """The kernel's files, settings, programs, Python's modules, directories and missing files are not
    reported."""
    assert not _told(path)


@pytest.mark.parametrize(
    ("name", "content"), [("libx.so.1", b"INPUT(x)"), ("x", b"\x7fELF"), ("x", b"!<arch>\n")]
)
def test_what_a_linker_reads_is_not_told(tmp_path: Path, name: str, content: bytes) -> None:
    """Shared objects, scripts under their names, objects and archives."""
    (tmp_path / name).write_bytes(content)
    assert not _told(tmp_path / name)
