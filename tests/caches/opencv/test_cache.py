"""Files laid by the rules of OpenCV's OpenCL cache, and what is said of those that break them."""

import fcntl
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from tests.caches.opencv.build import DEVICE, SLOTS, put
from tests.caches.opened import PTX, kinds, only, opened

SYSTEM = of_others("opencv")

_TABLE = 4 + 32 + 4
_LINK = _TABLE + 4 * SLOTS


def test_a_file_says_its_source_its_device_and_the_options_of_its_builds(tmp_path: Path) -> None:
    """The digest of its name begins its key."""
    path = put(tmp_path, builds={"-D T=float": PTX, "-D T=half": PTX})
    cache = opened(SYSTEM, tmp_path)
    (entry,) = cache.find(path.stem.rpartition("_")[2])
    assert (entry.program, entry.target) == ("imgproc--resize", DEVICE.rpartition("--")[0])
    assert entry.fields == (("driver", "550_54_14"), ("builds", "2"))
    assert not cache.check(entry).findings and cache.extract(entry) == PTX
    fields = [(one.label, one.value) for one in cache.report(entry).key_fields]
    assert ("options", "-D T=float") in fields and ("options", "-D T=half") in fields


def test_versions_below_one_folder_are_told_apart(tmp_path: Path) -> None:
    """In the home directory every version of OpenCV has its own."""
    put(tmp_path / "4.x" / "opencl_cache")
    put(tmp_path / "5.x" / "opencl_cache")
    (tmp_path / "5.x" / "downloads").mkdir()
    cache = opened(SYSTEM, tmp_path)
    assert sorted(entry.producer for entry in cache.scan()) == ["OpenCV 4.x", "OpenCV 5.x"]
    assert len({entry.key for entry in cache.scan()}) == 2 and not list(cache.leftovers())


def _written(at: int, data: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(path.read_bytes()[:at] + data + path.read_bytes()[at + len(data) :])

    return write


@pytest.mark.parametrize(
    ("damage", "kind", "words"),
    [
        (lambda path: os.truncate(path, 0), FindingKind.TRUNCATED, "fills it"),
        (lambda path: os.truncate(path, 100), FindingKind.TRUNCATED, "in its table"),
        (lambda path: os.truncate(path, path.stat().st_size - 3), FindingKind.TRUNCATED, "within a build"),
        (_written(4, b"x"), FindingKind.MISLABELLED, "digest of its name"),
        (_written(_TABLE - 4, b"\7"), FindingKind.CORRUPT, "no table"),
        (_written(_TABLE, b"\xff\xff\xff\xff"), FindingKind.TRUNCATED, "within a build"),
        (_written(_LINK, _LINK.to_bytes(4, "little")), FindingKind.CORRUPT, "for ever"),
        (_written(_LINK + 12 + len("-D T=float"), b"\0" * 20), FindingKind.MISLABELLED, "to the driver"),
    ],
)
def test_damage_is_reported_with_what_comes_of_it_and_repaired(
    damage: Callable[[Path], object], kind: FindingKind, words: str, tmp_path: Path
) -> None:
    """A repair removes the file, and leaves the others."""
    path, other = put(tmp_path), put(tmp_path, 1)
    damage(path)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = (one for one in cache.scan() if one.path == str(path))
    checked = cache.check(entry)
    assert kinds(checked) == [kind] and words in checked.findings[0].detail
    assert cache.repair(checked, entry).findings[0].repaired
    assert not path.exists() and other.exists()


def test_a_lock_that_is_held_keeps_its_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenCV takes a record lock, which one process has against others."""
    path = put(tmp_path)
    monkeypatch.setattr("gpucache.caches.format._PATIENCE_S", 0)
    held = (
        "import fcntl, sys; file = open(sys.argv[1], 'r+'); fcntl.lockf(file, fcntl.LOCK_EX); "
        "print(flush=True); input()"
    )
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", held, str(tmp_path / ".lock")]
    cache = opened(SYSTEM, tmp_path)
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as program:
        assert program.stdout and program.stdout.readline()
        kept = cache.remove(only(cache), "--all")
        program.communicate(b"\n")
    assert kept is not None and "OpenCV's lock" in kept.reason and path.exists()
    with (tmp_path / ".lock").open("r+") as free:
        fcntl.lockf(free, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert cache.remove(only(cache), "--all") is None


def test_places_are_found_as_opencv_finds_them(tmp_path: Path) -> None:
    """A cache directory counts where it is there, and a word that is no switch is reported."""
    (tmp_path / ".cache").mkdir()
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "none")}
    (location,) = SYSTEM.locations(home)
    assert location.root == str(tmp_path / ".cache" / "opencv") and not location.enabled
    (off,) = SYSTEM.locations({**home, "OPENCV_OPENCL_CACHE_ENABLE": "0"})
    assert not off.enabled and "turns the cache off" in off.problems[0]
    (named,) = SYSTEM.locations({**home, "OPENCV_OPENCL_CACHE_DIR": "disabled"})
    assert "does not turn the cache off" in named.problems[0]
    (location,) = SYSTEM.locations({"HOME": str(tmp_path / "none")})
    assert location.root.endswith("/var/tmp/opencv") and location.decided_by == "default"


def test_builds_that_lie_one_over_the_other_are_not_all_read(tmp_path: Path) -> None:
    """A small file could else stand for more bytes than there is memory."""
    path = put(tmp_path, builds={"-D T=float": PTX, "-D T=half": PTX})
    data = bytearray(path.read_bytes())
    (at,) = struct.unpack_from("<I", data, _TABLE)
    struct.pack_into("<I", data, at + 8, len(data) - at - 12 - len("-D T=float"))
    path.write_bytes(data)
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    assert entry.damage is not None and "overlap" in entry.damage.detail
    assert dict(entry.fields)["builds"] == "1"
