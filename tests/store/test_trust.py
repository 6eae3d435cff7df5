"""Which roots and files are trusted."""

import os
from pathlib import Path

import pytest

from gpucache.errors import CacheUnusableError
from gpucache.store.directory import DirectoryStore
from gpucache.store.interface import Absent
from gpucache.store.trust import Root, RootRefused, root_state
from tests.store.conftest import build_entry

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only the administrator can give files away")


def _refusal(root: Path) -> str:
    state = root_state(root)
    assert isinstance(state, RootRefused)
    return state.reason


def test_own_root_is_usable(tmp_path: Path) -> None:
    """A directory of one's own that no other user can write to is used, also through one's own link."""
    tmp_path.chmod(0o755)
    (tmp_path / "link").symlink_to(tmp_path)
    assert root_state(tmp_path) == Root.USABLE
    assert root_state(tmp_path / "link") == Root.USABLE


def test_missing_root_is_no_fault(tmp_path: Path) -> None:
    """A root that does not exist yet is distinguished from one that is refused."""
    assert root_state(tmp_path / "none" / "yet") == Root.MISSING


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777, 0o702])
def test_root_others_can_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    """A root that group or others can write to, sticky or not, is refused; the remedy is named."""
    tmp_path.chmod(mode)
    assert f"chmod go-w {tmp_path}" in _refusal(tmp_path)


def test_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """A file in place of the root is named with the remedy, and every verb ends in our own error."""
    root = tmp_path / "file"
    root.write_text("mine")
    store = DirectoryStore(root, writable=True)
    assert "GPUCACHE_DIR" in _refusal(root)
    with pytest.raises(CacheUnusableError):
        store.publish(build_entry())
    with pytest.raises(CacheUnusableError):
        list(store.scan())
    assert isinstance(result := store.get(build_entry().key), Absent) and result.reason
    assert root.read_text() == "mine"


def test_dangling_link_is_refused(tmp_path: Path) -> None:
    """A root that is a link to nothing is not created at the link's target."""
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CacheUnusableError, match="link to nothing"):
        DirectoryStore(tmp_path / "link", writable=True).publish(build_entry())
    assert not (tmp_path / "elsewhere").exists()


@needs_root
def test_root_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """Another user's root is not used, nor is another user's link to one's own."""
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 12345, 12345)
    (tmp_path / "mine").mkdir(0o700)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    os.chown(tmp_path / "link", 12345, 12345, follow_symlinks=False)
    assert "uid 12345" in _refusal(tmp_path / "theirs")
    assert "uid 12345" in _refusal(tmp_path / "link")


def test_refused_root_gives_no_hit(root: Path, store: DirectoryStore) -> None:
    """An entry is not served from a root that others could have written to."""
    store.publish(build_entry())
    root.chmod(0o777)
    result = store.get(build_entry().key)
    assert isinstance(result, Absent) and "chmod" in (result.reason or "")
