"""The report about a cache whose format is not read."""

from pathlib import Path

import pytest

from gpucache.answers.entries import Location
from gpucache.answers.lookup import Verdict
from gpucache.caches.interface import Cache
from gpucache.caches.registry import load_system
from gpucache.errors import UsageError
from tests.caches.opened import PTX

NAME = "nvidia-gl"


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    """A cache where a variable names it, with a kernel, what is not a binary, an empty file and a link."""
    folder = tmp_path / "ab" / "deep"
    folder.mkdir(parents=True)
    (folder / "kernel.ptx").write_bytes(PTX)
    (tmp_path / "list.json").write_text("{}", encoding="ascii")
    (tmp_path / "lock").touch()
    (tmp_path / "link").symlink_to(folder / "kernel.ptx")
    return load_system(NAME).open(Location(NAME, str(tmp_path), "A_VARIABLE", enabled=True))


def test_every_file_is_an_entry_by_its_path(cache: Cache) -> None:
    """With what its bytes say that it is; empty files, of which owners leave many, and links are none."""
    found = {entry.program: (entry.artifact_kind, entry.target) for entry in cache.scan()}
    assert found == {"ab/deep/kernel.ptx": ("ptx", "cuda:compute_90"), "list.json": ("", "")}


def test_why_one_missed_cannot_be_told(cache: Cache) -> None:
    """The answer says so, and a field is refused."""
    (answer,) = cache.explain({})
    assert answer.verdict is Verdict.OPAQUE_KEY and "cannot parse" in answer.detail
    with pytest.raises(UsageError):
        list(cache.explain({"key": (b"abcd",)}))


def test_a_variable_is_taken_at_its_word(cache: Cache, tmp_path: Path) -> None:
    """A directory in which nothing is called as the owner's files is looked at where a variable names it."""
    assert len(list(cache.scan())) == 2 and not load_system(NAME).recognises(tmp_path)
    named = load_system(NAME).open(Location(NAME, str(tmp_path), "--cache", enabled=True))
    assert not list(named.scan())
    assert [finding.kind for one in named.leftovers() for finding in one.findings] == ["unsupported"]
