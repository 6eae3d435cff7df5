"""Which files are recognised as unchanged by their status alone."""

import os
import sys
from pathlib import Path

import pytest

from gpucache.host import file_stamps
from gpucache.host.file_stamps import is_settled
from tests.children import run_text

_S = 10**9
_OVERLAYS = """
mount -t tmpfs none "$1" || exit 77
cd "$1" && mkdir lower upper work one two && mount -t tmpfs none lower || exit 77
mkdir lower/in beside && echo other > lower/in/header.h && echo same > beside/header.h
mount -t overlay none -o "lowerdir=$1/beside,upperdir=$1/upper,workdir=$1/work" one || exit 77
mount -t overlay none -o "lowerdir=$1/lower/in:$1/beside" two || exit 77
exec "$2" -c "$3" one two
"""
_ASK = """
import os, sys
from gpucache.host.file_stamps import is_settled
for place in sys.argv[1:]:
    path = place + "/header.h"
    print(is_settled(path, os.stat(path), os.stat(path).st_ctime_ns + 3600 * 10**9))
"""


@pytest.mark.parametrize(
    ("kind", "local"),
    [
        pytest.param(0xEF53, True, id="ext4"),
        pytest.param(0x6969, False, id="NFS"),
        pytest.param(0x65735546, False, id="FUSE"),
        pytest.param(0x01021994, False, id="tmpfs"),
        pytest.param(0x73717368, False, id="SquashFS"),
        pytest.param(0, False, id="unknown"),
    ],
)
def test_a_file_is_known_where_its_file_system_sets_the_time_of_each_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: int, local: bool
) -> None:
    """A server's times are late, an image's are its maker's, and tmpfs misses writes by a mapping."""
    monkeypatch.setattr(file_stamps, "_local", {})
    monkeypatch.setattr(file_stamps, "_kind_of", lambda _: kind)
    status = tmp_path.stat()
    assert is_settled(tmp_path, status, status.st_ctime_ns + 3600 * _S) is local


def test_a_file_is_known_when_pages_of_a_mapping_are_surely_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later write through it then changes the time; and a time in the future proves nothing."""
    file = tmp_path / "header.h"
    file.touch()
    os.utime(file, (1, 1))
    status = file.stat()
    monkeypatch.setattr(file_stamps, "_local", {status.st_dev: True})
    ages = {age: is_settled(file, status, status.st_ctime_ns + age * _S) for age in (-3600, 0, 36, 61)}
    assert ages == {-3600: False, 0: False, 36: False, 61: True}


@pytest.mark.skipif(sys.platform != "linux", reason="needs overlays")
def test_a_file_of_an_overlay_is_known_where_it_is_on_the_file_system_that_is_written(
    tmp_path: Path,
) -> None:
    """The other layers may be on any file system, which the overlay does not report."""
    command = ["unshare", "-rm", "sh", "-c", _OVERLAYS, "sh", str(tmp_path), sys.executable, _ASK]
    done = run_text(command)
    if done.returncode in (1, 77, 127) and not done.stdout:
        pytest.skip(f"no overlay can be mounted here: {done.stderr}")
    assert done.stdout.split() == ["True", "False"], done.stderr


def test_an_inode_number_of_another_layer_is_not_taken_for_a_file_of_the_overlay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If an overlay gives files of all layers one device, the number of the layer is in the inode."""
    status = tmp_path.stat()
    monkeypatch.setattr(file_stamps, "_local", {status.st_dev: True})
    times = {name: getattr(status, name) for name in ("st_atime_ns", "st_mtime_ns", "st_ctime_ns")}
    for number, known in ((status.st_ino, True), (status.st_ino | 1 << 62, False)):
        numbered = os.stat_result((status.st_mode, number, *status[2:]), times)
        assert is_settled(tmp_path, numbered, status.st_ctime_ns + 3600 * _S) is known
