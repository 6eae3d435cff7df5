"""Opening a file some directories below an open one, in one step and directory by directory."""

import os
import sys
from pathlib import Path

import pytest

from gpucache import folders
from gpucache.folders import Folder, give_back
from tests.children import run_text

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="has no folders by descriptor")

# Opens a file before it puts itself under a filter and after that. The filter ends the process for
# openat2, as strict ones do for every call that they do not know.
_FILTERED = """
import ctypes, struct, sys
from pathlib import Path
from gpucache.folders import Folder
program = b"".join(struct.pack("=HBBI", *each) for each in (
    (0x20, 0, 0, 0), (0x15, 0, 1, 437), (0x06, 0, 0, 0x80000000), (0x06, 0, 0, 0x7FFF0000)))
kept = ctypes.create_string_buffer(program)
given = struct.pack("=HxxxxxxQ", 4, ctypes.addressof(kept))
libc = ctypes.CDLL(None, use_errno=True)
with Folder.at(Path(sys.argv[1])) as folder:
    folder.open_file("a", "b", "file")
assert libc.prctl(38, 1, 0, 0, 0) == 0
if libc.prctl(22, 2, given) != 0:
    sys.exit(f"no filter: {ctypes.get_errno()}")
with Folder.at(Path(sys.argv[1])) as folder:
    folder.open_file("a", "b", "file")
"""

_AUDITED = """
import sys
from pathlib import Path
from gpucache.folders import Folder
def refuse(event, arguments):
    if event == sys.argv[2] and (event != "import" or arguments[0] == "ctypes"):
        raise RuntimeError(event)
sys.addaudithook(refuse)
with Folder.at(Path(sys.argv[1])) as folder:
    folder.open_file("a", "b", "file")
"""


@pytest.fixture(params=["in one step", "folder by folder"])
def outer(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a file two directories below, opened in either way."""
    if request.param == "folder by folder":
        monkeypatch.setattr(folders, "_openat2", lambda: None)
    outer = tmp_path / "outer"
    (outer / "a" / "b").mkdir(parents=True)
    (outer / "a" / "b" / "file").write_bytes(b"here")
    return outer


def test_file_below_is_opened(outer: Path) -> None:
    """The descriptor is that of the file."""
    with Folder.at(outer) as folder:
        fd = folder.open_file("a", "b", "file")
    assert os.read(fd, 9) == b"here"
    give_back(fd)


@pytest.mark.parametrize("linked", ["a", "a/b", "a/b/file"])
def test_no_link_on_the_way_is_followed(outer: Path, linked: str) -> None:
    """Neither a directory nor the file may be a link, even to a place inside."""
    place = outer / linked
    place.symlink_to(place.rename(place.with_name("moved")).name)
    with Folder.at(outer) as folder, pytest.raises(OSError, match=r"."):
        give_back(folder.open_file("a", "b", "file"))


def test_nothing_above_is_reached(outer: Path) -> None:
    """Two dots name no directory below."""
    with Folder.at(outer / "a") as folder, pytest.raises(NotADirectoryError):
        give_back(folder.open_file("..", "a", "b", "file"))


def test_missing_file_is_missing(outer: Path) -> None:
    with Folder.at(outer) as folder:
        for parts in (("a", "b", "other"), ("a", "other", "file")):
            with pytest.raises(FileNotFoundError):
                folder.open_file(*parts)


def test_no_descriptor_is_left_open(outer: Path) -> None:
    """However it ends, only the descriptor that is returned stays open."""
    before = len(list(Path("/dev/fd").iterdir()))
    with Folder.at(outer) as folder:
        give_back(folder.open_file("a", "b", "file"))
        for parts in (("a", "b", "other"), ("a", "b", "file", "file")):
            with pytest.raises(OSError, match=r"."):
                folder.open_file(*parts)
    assert len(list(Path("/dev/fd").iterdir())) == before


@pytest.mark.skipif(sys.platform != "linux", reason="has no such filters")
def test_filter_of_calls_ends_no_process(outer: Path) -> None:
    """Where a filter would end the process for the one step, it is not tried."""
    done = run_text([sys.executable, "-c", _FILTERED, str(outer)], cwd=Path(__file__).parents[1])
    if done.stderr.startswith("no filter"):
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="has no such call")
@pytest.mark.parametrize("refused", ["import", "ctypes.dlopen", "ctypes.dlsym"])
def test_program_that_forbids_native_calls_is_served(outer: Path, refused: str) -> None:
    """Where an audit hook of the program refuses ctypes, files are opened directory by directory."""
    done = run_text([sys.executable, "-c", _AUDITED, str(outer), refused], cwd=Path(__file__).parents[1])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("path", "taken"),
    [
        ("c" * 247, "c" * 247),
        ("c" * 248, "\\\\?\\" + "c" * 248),
        ("\\\\s\\" + "c" * 248, "\\\\?\\UNC\\s\\" + "c" * 248),
    ],
    ids=["short", "long", "on a server"],
)
def test_a_long_path_is_reached_on_windows(path: str, taken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There a path of more than 260 characters is not found as it is."""
    monkeypatch.setattr(sys, "platform", "win32")
    assert folders._reached(Path(path)) == taken
