"""Which header newly shadows another, found from the few files of its name."""

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


def test_nothing_else_is_a_shadow(tree: Tree, tmp_path: Path) -> None:
    """Another field, a missing header, one edited in place, or one found on one side only is not a shadow."""
    first, second = tree("first", value="8"), tree("second")
    change, both = _changed(second, first), [str(first), str(second)]
    for changed, folders in (
        *((change._replace(label=label), both) for label in ("source", "include other.h")),
        (change, [str(first), str(tmp_path / "none")]),
        (change, [str(second), str(first)]),
        *((change._replace(left=missing), both) for missing in (None, NOT_FOUND)),
        *((change._replace(right=missing), both) for missing in (None, NOT_FOUND)),
    ):
        assert shadows([changed], folders) == {}, (changed, folders)


def test_huge_and_strange_files_are_not_read(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file beyond the limit, and a directory of that name, are ignored."""
    first, second = tree("first", value="8"), tree("second")
    folders = [str(first), str(second)]
    change = _changed(second, first)
    monkeypatch.setattr(module, "_MAX_BYTES", 3)
    assert shadows([change], folders) == {}
    monkeypatch.undo()
    (first / "value.h").unlink()
    (first / "value.h").mkdir()
    assert shadows([change], folders) == {}
