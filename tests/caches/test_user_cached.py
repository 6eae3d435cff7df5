"""The directories that Python's programs are given on each operating system."""

import pytest
from platformdirs.macos import MacOS
from platformdirs.unix import Unix

from gpucache.caches.places import user_cached


@pytest.mark.parametrize(("system", "like"), [("linux", Unix), ("darwin", MacOS)])
def test_a_place_is_where_platformdirs_has_it(
    system: str, like: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As platformdirs has it without variables but the home directory."""
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    ways = user_cached("app", "author", "below", system=system)
    (found,) = filter(None, (way.find({"HOME": "/home/me"}) for way in ways))
    assert str(found[0]) == f"{like('app', 'author').user_cache_dir}/below"


@pytest.mark.parametrize(
    ("author", "place"), [(None, "app/app/Cache"), ("", "app/Cache"), ("author", "author/app/Cache")]
)
def test_a_place_on_windows_is_below_its_author(author: str | None, place: str) -> None:
    """As ``platformdirs`` takes None for the program and False for none."""
    (way,) = user_cached("app", author, system="win32")
    found = way.find({"LOCALAPPDATA": "/local"})
    assert found is not None and found[0].as_posix() == f"/local/{place}"
