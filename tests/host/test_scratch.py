"""Temporary directories: gone at the end, and after a kill gone when the next process makes its own."""

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from gpucache.host import scratch as scratch_module
from gpucache.host.scratch import MARK, scratch
from tests.children import folders_without_end, run_text

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="Windows has no locks that a killed process frees"
)


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This test's directory for temporary files, not swept yet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(scratch_module, "_swept", set())
    return tmp_path


def test_a_folder_is_there_and_then_gone(parent: Path) -> None:
    """It can be used during the block, and goes with its contents."""
    with scratch("test") as place:
        (place / "folder").mkdir()
        (place / "folder" / "file").touch()
        assert place.parent == parent
    assert not list(parent.iterdir())


def test_a_folder_needs_no_place_for_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If Python finds no place for files, as with ``ulimit -f 0``, a place for directories is used."""

    def none() -> str:
        raise FileNotFoundError

    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "gettempdir", none)
        patch.setenv("TMPDIR", str(tmp_path))
        with scratch("test") as place:
            assert place.parent == tmp_path


def test_one_in_use_is_left_to_its_process(parent: Path) -> None:
    """A sweep by another process removes nothing of a living one."""
    with scratch("test") as place:
        code = "import sys; from gpucache.host.scratch import sweep; sweep(sys.argv[1])"
        subprocess.run([sys.executable, "-c", code, str(parent)], check=True)
        assert (place / MARK).exists()


_KILLED = """
import os, signal, sys
from gpucache.host.scratch import scratch
with scratch("test") as place:
    (place / "large").touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_swept(parent: Path) -> None:
    """The next process that makes a directory removes it; one with a similar name stays, links too."""
    done = subprocess.run(
        [sys.executable, "-c", _KILLED], env={**os.environ, "TMPDIR": str(parent)}, check=False
    )
    (left,) = parent.iterdir()
    assert done.returncode == -signal.SIGKILL and (left / "large").exists()
    notes = parent / "gpucache-notes"
    notes.mkdir()
    outside = parent / "outside"
    outside.mkdir()
    (outside / MARK).touch()
    (parent / "gpucache-link").symlink_to(outside)
    with scratch("test"):
        assert not left.exists()
    assert {path.name for path in parent.iterdir()} == {"gpucache-notes", "outside", "gpucache-link"}
    assert (outside / MARK).exists()


def test_what_a_dying_child_still_wrote_is_swept(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that a child still writes to at the end is removed by the next sweep."""
    remove = os.rmdir

    def late(path: str) -> None:
        monkeypatch.setattr(os, "rmdir", remove)
        Path(path, "late").touch()
        remove(path)

    with scratch("test", str(parent)) as place:
        (place / "early").touch()
        monkeypatch.setattr(os, "rmdir", late)
    assert sorted(path.name for path in place.iterdir()) == [MARK, "late"]
    scratch_module._swept.clear()
    scratch_module.sweep(str(parent))
    assert not list(parent.iterdir())


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="this Python removes them")
def test_a_folder_of_a_thousand_folders_is_left(parent: Path) -> None:
    """A program may make them; a failed removal stops no process."""
    with ExitStack() as ends:
        with scratch("test", str(parent)) as place:
            ends.enter_context(folders_without_end(place))
        assert (place / MARK).exists()


_STRUCK = """
import os, shutil, signal
from gpucache.host.scratch import scratch
remove = shutil.rmtree
def strike(*arguments, **options):
    os.kill(os.getpid(), signal.SIGINT)
    remove(*arguments, **options)
shutil.rmtree = strike
try:
    with scratch("test") as place:
        (place / "folder").mkdir()
        raise KeyboardInterrupt
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_second_interrupt_does_not_stop_the_tidying(parent: Path) -> None:
    """An interrupt during the removal of a directory waits until that is done."""
    done = run_text([sys.executable, "-c", _STRUCK], env={**os.environ, "TMPDIR": str(parent)})
    assert (done.stdout, done.stderr, list(parent.iterdir())) == ("interrupted\n", "", [])
