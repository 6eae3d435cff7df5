"""Programs found and read on disk."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.errors import SourceError
from gpucache.model import Language
from gpucache.sources.disk import discover, load_program
from tests.children import folders_without_end

Tree = Callable[..., Path]


def test_a_program_is_its_bytes_and_where_they_came_from(tree: Tree) -> None:
    """The source is kept byte for byte, with name, language and path."""
    path = tree({"x.cl": b"\xff\r\n"}) / "x.cl"
    program = load_program(path, "x", Language.OPENCL_C)
    assert (program.name, program.language, program.source, program.path) == (
        "x",
        Language.OPENCL_C,
        b"\xff\r\n",
        path,
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gone.cl", "there is no source"),
        ("x.cl/y", "there is no source"),
        (".", "is a directory"),
        ("large.cl", r"larger than 64\.0 MiB"),
        pytest.param(
            "pipe.cl",
            "not a regular file",
            marks=pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes"),
        ),
    ],
)
def test_what_is_no_source_is_refused(tree: Tree, name: str, words: str) -> None:
    """A missing or too large file, a directory or a pipe is refused with a sentence."""
    root = tree({"x.cl": b"", "large.cl": b""})
    os.truncate(root / "large.cl", 64 * 1024**2 + 1)
    if name == "pipe.cl":
        os.mkfifo(root / name)
    with pytest.raises(SourceError, match=words):
        load_program(root / name, "x", Language.OPENCL_C)


def test_a_folder_of_a_thousand_folders_is_refused(tree: Tree) -> None:
    """A tree that is too deep to walk is refused in one sentence."""
    root = tree({})
    with folders_without_end(root), pytest.raises(SourceError, match=r"is too deep|has no sources"):
        discover([root])


def test_an_unreadable_source_and_folder_are_refused(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file or directory that may not be read is reported with the system's reason."""
    root = tree({"d/x.cl": b""})

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(root))

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(SourceError, match="Permission denied"):
        load_program(root / "d/x.cl", "x", Language.OPENCL_C)
    with pytest.raises(SourceError, match="cannot be listed"):
        discover([root])


def test_folders_give_their_sources_sorted(tree: Tree) -> None:
    """Kernels below a directory are found by suffix; hidden directories and linked ones are skipped."""
    files: dict[str, bytes | str] = {"b.cl": b"", "a/y.hip": b"", "a/z.cu": b"", "a/n.h": b""}
    root = tree({**files, ".git/h.cl": b"", "link": "a", "linked.cl": "b.cl", "broken.cl": "gone"})
    assert discover([root]) == [root / "a/y.hip", root / "a/z.cu", root / "b.cl", root / "linked.cl"]


def test_named_files_come_first_come_once_whatever_their_suffix(tree: Tree) -> None:
    """The order of the arguments is kept, and a file named twice counts once."""
    root = tree({"x.txt": b"", "d/y.cl": b""})
    assert discover([root / "x.txt", root / "d", root / "d/y.cl"]) == [root / "x.txt", root / "d/y.cl"]


@pytest.mark.parametrize(("name", "words"), [("gone", "there is no source"), ("empty", "has no sources")])
def test_a_path_that_gives_nothing_is_refused(tree: Tree, name: str, words: str) -> None:
    """A missing path and a directory without sources are errors, not an empty list."""
    root = tree({"empty/readme.md": b""})
    with pytest.raises(SourceError, match=words):
        discover([root / name])
