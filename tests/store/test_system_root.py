"""Reasons why a system root is not read, each with its remedy."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpucache.store.directory import DirectoryStore
from gpucache.store.system_root import refused_root
from tests.store.conftest import build_entry

pytestmark = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can look as another user"
)
_STRANGER = 65534
_OTHER = 54321


@pytest.fixture
def root() -> Iterator[Path]:
    """A shared root of the administrator with one entry, in a directory that every user can reach."""
    ground = Path(tempfile.mkdtemp(prefix="gpucache-test-"))
    ground.chmod(0o755)
    DirectoryStore(ground / "root", writable=True, shared=True).publish(build_entry())
    yield ground / "root"
    shutil.rmtree(ground)


@contextmanager
def _stranger() -> Iterator[None]:
    os.seteuid(_STRANGER)
    try:
        yield
    finally:
        os.seteuid(0)


def _told(root: Path) -> str:
    with _stranger():
        return str(refused_root(root))


def test_a_link_of_the_administrator_to_a_shared_root_is_followed(root: Path) -> None:
    """As one that leads to the newest of several."""
    (root.parent / "newest").symlink_to(root)
    with _stranger():
        assert refused_root(root.parent / "newest") is None


def test_a_shared_root_is_read(root: Path) -> None:
    """A shared root can be read by every user, and so can an empty one."""
    with _stranger():
        assert refused_root(root) is None
        assert refused_root(root.parent) is None


@pytest.mark.parametrize("inner", [".", "v1", "v1/entries", "v1/entries/*"])
def test_a_private_folder_is_named_with_its_mode(root: Path, inner: str) -> None:
    """A mode that excludes others, of the root or of a directory below, gives the place and two remedies."""
    (folder,) = root.glob(inner) if inner != "." else [root]
    folder.chmod(0o700)
    place = "it" if folder == root else str(folder)
    assert _told(root) == (
        f"the system root {root} is not used, as {place} is closed to this user (mode 0700, of uid 0); "
        f"fill it with 'gpucache warm --shared', or run 'chmod -R go+rX {root}'"
    )


def test_a_private_entry_is_named(root: Path) -> None:
    """Entries that only their owner may read, in directories that all may enter, are noticed too."""
    (entry,) = root.rglob("*.gpc")
    entry.chmod(0o600)
    assert "is closed to this user" in _told(root) and f"chmod -R go+rX {root}" in _told(root)


@pytest.mark.parametrize("what", ["root", "entry"])
def test_another_owner_is_named(root: Path, what: str) -> None:
    """A file that belongs to neither root nor this user is not trusted, and chown is the remedy."""
    (entry,) = root.rglob("*.gpc")
    os.chown(root if what == "root" else entry, _OTHER, _OTHER)
    told = _told(root)
    assert f"it belongs to uid {_OTHER}" in told and f"chown -R root {root}" in told


def test_a_root_that_others_may_write_to_is_named(root: Path) -> None:
    """A mode that lets others write is reported, and chmod is the remedy."""
    root.chmod(0o777)
    told = _told(root)
    assert "others may write to it (mode 0777)" in told and f"chmod -R go-w {root}" in told


def test_a_place_that_is_no_cache_is_named(root: Path) -> None:
    """A path that does not exist, or a file, is a mistake in the variable."""
    (root / "file").write_bytes(b"")
    for name, problem in {"none": "it does not exist", "file": "it is not a directory"}.items():
        assert _told(root / name).endswith(f"as {problem}; correct GPUCACHE_SYSTEM_DIRS")


def test_a_root_below_a_private_folder_is_told(root: Path) -> None:
    """If a directory above excludes this user, nothing is claimed of the root itself."""
    root.parent.chmod(0o700)
    assert "this user may not pass through a directory above it" in _told(root)
