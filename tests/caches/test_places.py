"""The problem with the place of a cache, on real mounts where this user may make them."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gpucache.caches import places
from gpucache.caches.places import Home, Mount, Var, distrust, problems
from gpucache.caches.registry import of_others

_MOVE = "set X_CACHE_DIR"
_ASK = """
import sys
from pathlib import Path
from gpucache.caches.places import problems
print(*problems(Path(sys.argv[1]), move="set X_CACHE_DIR", runs=True), sep="\\n")
"""


def _mounted(script: str, folder: Path) -> str:
    """The problems of a directory, ``$F`` in a script that mounts something there in its own namespace."""
    unshare = shutil.which("unshare")
    if unshare is None or os.geteuid() != 0:
        pytest.skip("mounting needs unshare and the administrator")
    ask = f'set -e; {script}; exec {sys.executable} -c "$ASK" $F'
    environ = {**os.environ, "F": str(folder), "ASK": _ASK}
    done = subprocess.run(
        [unshare, "-m", "sh", "-c", ask], env=environ, capture_output=True, text=True, check=False
    )
    if "mount:" in done.stderr or "unshare:" in done.stderr:
        pytest.skip(f"this machine does not allow it: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("mount -t tmpfs -o size=256m tmpfs $F", "it is in memory (tmpfs) and is lost at the next start"),
        ("mount -t tmpfs -o size=256m,noexec tmpfs $F", "is mounted noexec"),
        ("mount -t tmpfs -o size=256m,ro tmpfs $F", "it is on a read-only file system"),
        ("mount -t tmpfs -o size=1m tmpfs $F", "are free on its file system or quota"),
        ("mount -t tmpfs -o size=256m,nr_inodes=100 tmpfs $F", "more files fit on its file system"),
        (
            "mount -t tmpfs tmpfs $F; mkdir $F/l $F/u $F/w $F/m; "
            "mount -t overlay -o lowerdir=$F/l,upperdir=$F/u,workdir=$F/w overlay $F/m; F=$F/m",
            "it is in the container's own layer",
        ),
    ],
)
def test_a_real_mount_is_told(script: str, words: str, tmp_path: Path) -> None:
    """Each kind of place that loses or refuses a cache is named, with the remedy."""
    said = [line for line in _mounted(script, tmp_path).splitlines() if words in line]
    assert len(said) == 1 and _MOVE in said[0]


def test_a_good_place_has_nothing_wrong(tmp_path: Path) -> None:
    """A directory of one's own, outside /tmp, is not complained of."""
    assert [one for one in problems(tmp_path, move=_MOVE) if "/tmp" not in one and "memory" not in one] == []


@pytest.mark.parametrize(("point", "lost"), [("/", True), ("/tmp", True), ("{}", False)])
def test_a_disk_mounted_below_tmp_is_not_emptied_with_it(
    point: str, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache below /tmp is lost on reboot only if it is on the file system of /tmp."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        disk = Mount(point.format(folder), "ext4", frozenset())
        monkeypatch.setattr("gpucache.caches.places.mounts", lambda: (disk,))
        said = problems(Path(folder), move=_MOVE)
    assert any("lost on reboot" in one for one in said) is lost


def test_a_missing_place_that_its_owner_makes_is_fine(tmp_path: Path) -> None:
    """A cache that was never used has no directory, which is no problem."""
    assert problems(tmp_path / "new", move=_MOVE) == ()


def test_a_missing_place_that_nobody_makes_is_told(tmp_path: Path) -> None:
    """Where the owner wants the directory to be there, the line that makes it is given."""
    [said] = problems(tmp_path / "new", move=_MOVE, makes=False)
    assert f"mkdir -p {tmp_path / 'new'}" in said


def test_a_place_below_a_file_is_told(tmp_path: Path) -> None:
    """A path that leads through a file can hold nothing, and asking does not raise."""
    (tmp_path / "file").write_bytes(b"")
    assert isinstance(problems(tmp_path / "file" / "cache", move=_MOVE), tuple)


def test_a_place_that_others_may_write_is_told(tmp_path: Path) -> None:
    """A directory that every user can write is reported."""
    tmp_path.chmod(0o777)
    assert any("others may write" in one for one in problems(tmp_path, move=_MOVE))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="giving files away needs root")
def test_root_names_the_user_whose_files_it_trusts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An init container checks the cache of the user for whom it runs."""
    os.chown(tmp_path, 12345, -1)
    assert "belongs to uid 12345" in distrust(tmp_path.stat(), move=_MOVE)
    monkeypatch.setenv("GPUCACHE_OWNER_UID", "12345")
    assert not distrust(tmp_path.stat(), move=_MOVE)


def test_each_operating_system_has_its_own_places() -> None:
    """Where an owner has none for it, those of Linux count."""
    linux, windows = (Home(".cache/x"),), (Var("LOCALAPPDATA", "x"),)
    assert places.on(linux, windows=windows, system="win32") == windows
    assert places.on(linux, windows=windows, system="darwin") == linux
    assert places.on(linux, windows=windows, system="linux") == linux


def test_programs_built_on_chromium_are_found_in_sandboxes(tmp_path: Path) -> None:
    """Those of Flatpak and snap keep their profiles in their own directories."""
    below = (
        ".config/BraveSoftware/Brave-Browser",
        ".var/app/com.slack.Slack/config/Slack",
        ".var/app/com.brave.Browser/config/BraveSoftware/Brave-Browser",
        "snap/code/current/.config/Code",
    )
    for one in below:
        (tmp_path / one / "GPUCache").mkdir(parents=True)
    (tmp_path / ".config/other").mkdir()
    found = of_others("chromium").locations({"HOME": str(tmp_path)})
    assert {one.root for one in found[1:]} == {str(tmp_path / one) for one in below}


@pytest.mark.parametrize("above", ["", "app/", "organisation/app/"])
def test_qt_has_one_cache_for_all_programs_or_one_for_each(above: str, tmp_path: Path) -> None:
    """Qt 6.12 has the second, below the names that a program gives itself."""
    place = tmp_path / above / "qtshadercache-x86_64-little_endian-lp64"
    place.mkdir(parents=True)
    found = [one.root for one in of_others("qt").locations({"XDG_CACHE_HOME": str(tmp_path)})]
    assert found == [str(place)]
