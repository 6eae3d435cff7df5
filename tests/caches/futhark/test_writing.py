"""Writing cache files."""

import os
import stat
from pathlib import Path

import pytest

from gpucache.caches.futhark.export import write_file
from gpucache.errors import CacheUnusableError, FormatError, GpucacheError, SystemRefusedError
from tests.caches.futhark.build import KEY, PTX, SPIRV, file_bytes


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_written_as_futhark_writes_it(tmp_path: Path) -> None:
    """Byte for byte, with nothing next to it."""
    write_file(tmp_path / "x.cache", KEY, SPIRV)
    assert (tmp_path / "x.cache").read_bytes() == file_bytes(payload=SPIRV)
    assert [path.name for path in tmp_path.iterdir()] == ["x.cache"]


def test_ptx_loses_nvrtcs_nul(tmp_path: Path) -> None:
    """Futhark stores as many bytes as strlen counts."""
    write_file(tmp_path / "x.cache", KEY, PTX + b"\0")
    assert (tmp_path / "x.cache").read_bytes() == file_bytes(payload=PTX)


def test_a_new_file_has_the_mode_of_any_new_file(tmp_path: Path) -> None:
    """The umask decides."""
    old = os.umask(0o027)
    try:
        write_file(tmp_path / "x.cache", KEY, PTX)
    finally:
        os.umask(old)
    assert _mode(tmp_path / "x.cache") == 0o640


def test_a_replaced_file_keeps_its_mode(tmp_path: Path) -> None:
    """A file that replaces another has its mode."""
    path = tmp_path / "x.cache"
    path.write_bytes(file_bytes(payload=b"old"))
    path.chmod(0o604)
    write_file(path, KEY, PTX)
    assert (_mode(path), path.read_bytes()) == (0o604, file_bytes())


def test_an_empty_file_is_replaced(tmp_path: Path) -> None:
    """A program that was killed while it wrote leaves one."""
    path = tmp_path / "x.cache"
    path.touch()
    write_file(path, KEY, PTX)
    assert path.read_bytes() == file_bytes()


def test_a_file_of_something_else_is_not_replaced(tmp_path: Path) -> None:
    """A source given by mistake survives."""
    path = tmp_path / "foo.fut"
    path.write_bytes(b"def main = 1\n")
    with pytest.raises(CacheUnusableError, match="is not a Futhark cache file"):
        write_file(path, KEY, PTX)
    assert path.read_bytes() == b"def main = 1\n"


def test_a_link_is_not_replaced(tmp_path: Path) -> None:
    """Neither the link nor what it leads to changes."""
    (tmp_path / "real").write_bytes(file_bytes(payload=b"old"))
    (tmp_path / "x.cache").symlink_to(tmp_path / "real")
    with pytest.raises(CacheUnusableError, match="is a link"):
        write_file(tmp_path / "x.cache", KEY, PTX)
    assert (tmp_path / "x.cache").is_symlink()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """Futhark does not make it, and neither is it made here."""
    with pytest.raises(CacheUnusableError, match="no does not exist; make it"):
        write_file(tmp_path / "no" / "x.cache", KEY, PTX)


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
def test_a_name_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    """The error names the file and the remedy, and nothing is left."""
    with pytest.raises(GpucacheError, match=r"name another file|shorten its path"):
        write_file(tmp_path / name, KEY, PTX)
    assert list(tmp_path.iterdir()) == []


def test_a_key_of_another_length_is_refused(tmp_path: Path) -> None:
    """Nothing is written for it."""
    with pytest.raises(FormatError):
        write_file(tmp_path / "x.cache", KEY[1:], PTX)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed write the old file is unchanged, and no other file remains."""
    path = tmp_path / "x.cache"
    path.write_bytes(file_bytes(payload=b"old"))

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SystemRefusedError, match="No space left on device"):
        write_file(path, KEY, PTX)
    assert path.read_bytes() == file_bytes(payload=b"old")
    assert [one.name for one in tmp_path.iterdir()] == ["x.cache"]
