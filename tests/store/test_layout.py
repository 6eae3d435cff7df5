"""Names below a root."""

import pytest

from gpucache.model import CacheKey
from gpucache.store import layout


def test_entry_lies_under_its_first_two_digits() -> None:
    """An entry is found by its key alone."""
    key = CacheKey("ab" + "0" * 62)
    assert layout.entry_folder(key) == ("v1", "entries", "ab")
    assert layout.entry_name(key) == f"{key.hex}.gpc"
    assert layout.fits("ab", layout.entry_name(key))


@pytest.mark.parametrize("text", ["", "../../etc/passwd", "AB" + "0" * 62, "a" * 63, "a" * 64 + "\n"])
def test_only_keys_become_paths(text: str) -> None:
    """Any text but 64 lower-case hex digits is kept out of paths."""
    with pytest.raises(ValueError, match="not a cache key"):
        layout.entry_folder(CacheKey(text))


@pytest.mark.parametrize(
    ("folder", "name"),
    [("cd", "ab" + "0" * 62 + ".gpc"), ("ab", "ab.gpc"), ("ab", "ab" + "0" * 62), ("ab", "notes.txt")],
)
def test_other_names_do_not_fit(folder: str, name: str) -> None:
    """A name fits only in the directory of its own key."""
    assert not layout.fits(folder, name)


def test_histories_are_readable_and_unique() -> None:
    """Two programs with similar slugs have separate files, without odd characters in the name."""
    first, second = layout.history_name("My kernel/A"), layout.history_name("my-kernel.a")
    assert first.startswith("my-kernel-a-")
    assert first != second
    assert layout.history_name("../..\udce9").startswith("program-")
    assert len(layout.history_name("x" * 5000)) < 60
