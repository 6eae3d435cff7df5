"""Which header newly shadows which, told from the few files of its name."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.engine import explain as module
from gpucache.engine.explain import shadows
from gpucache.keys import NOT_FOUND, Difference, digest

Tree = Callable[..., Path]


def _changed(old: Path, new: Path) -> Difference:
    before, now = (digest((at / "value.h").read_bytes()) for at in (old, new))
    return Difference("include value.h", before, now)


def test_a_new_header_before_the_old_one_is_said(tree: Tree) -> None:
    """Where the old content still lies further on, both folders are named."""
    first, second = tree("first", value="8"), tree("second", value="7")
    found = shadows([_changed(second, first)], [str(first), str(second)])
    assert found == {"value.h": f"a new value.h in {first} shadows the one in {second}"}


@pytest.mark.parametrize("label", ["source", "include other.h"])
def test_what_is_no_header_here_is_left_alone(tree: Tree, label: str) -> None:
    """Another field, or a header that lies nowhere, gives no sentence."""
    first, second = tree("first", value="8"), tree("second")
    change = _changed(second, first)
    assert shadows([Difference(label, change.left, change.right)], [str(first), str(second)]) == {}


def test_an_edited_header_shadows_nothing(tree: Tree, tmp_path: Path) -> None:
    """Where the old content lies nowhere, or before the new one, nothing is shadowed."""
    first, second = tree("first", value="8"), tree("second")
    assert shadows([_changed(second, first)], [str(first), str(tmp_path / "none")]) == {}
    assert shadows([_changed(second, first)], [str(second), str(first)]) == {}


@pytest.mark.parametrize("missing", [None, NOT_FOUND])
def test_a_header_that_came_or_went_shadows_nothing(tree: Tree, missing: str | None) -> None:
    """A header found on one side only is no shadow, whatever lies in the folders."""
    first, second = tree("first", value="8"), tree("second")
    change = _changed(second, first)
    for left, right in ((missing, change.right), (change.left, missing)):
        assert shadows([Difference(change.label, left, right)], [str(first), str(second)]) == {}


def test_huge_and_strange_files_are_not_read(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file beyond the bound, and a folder of that name, are passed over."""
    first, second = tree("first", value="8"), tree("second")
    folders = [str(first), str(second)]
    change = _changed(second, first)
    monkeypatch.setattr(module, "_MAX_BYTES", 3)
    assert shadows([change], folders) == {}
    monkeypatch.undo()
    (first / "value.h").unlink()
    (first / "value.h").mkdir()
    assert shadows([change], folders) == {}
