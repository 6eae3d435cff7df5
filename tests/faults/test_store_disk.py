"""Disks that are full, read-only or another user's: a program runs uncached, and nothing is left behind."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Child = subprocess.Popen[str]
Start = Callable[[str, Path], Child]
NOBODY = 65534
pytestmark = pytest.mark.skipif(os.name != "posix", reason="speaks of POSIX modes and limits")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only the administrator can act as two users")

# Modes do not bind the administrator: become somebody they do bind, after all is imported.
_DROP = f"""
import errno
from gpucache.answers.evict import Kept
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
"""


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that other users can reach, unlike pytest's own; it is theirs if we may give it."""
    place = Path(tempfile.mkdtemp(prefix="gpucache-test-"))
    yield place
    for path in [place, *place.rglob("*")]:
        if path.is_dir():
            path.chmod(0o700)
    shutil.rmtree(place)


def _said(child: Child) -> list[str]:
    said, _ = child.communicate()
    assert child.returncode == 0
    return said.split()


def test_read_only_folder(start: Start, open_place: Path) -> None:
    """A read-only cache still gives hits; publishing raises OSError, the rest is silent."""
    if os.geteuid() == 0:
        os.chown(open_place, NOBODY, NOBODY)
    script = """
store.publish(build_entry())
for place in (root, *[path for path in root.rglob("*") if path.is_dir()]):
    place.chmod(0o500)
say(type(store.get(build_entry().key)).__name__)
try:
    store.publish(build_entry("b"))
except OSError as error:
    say(errno.errorcode[error.errno])
with store.single_flight(build_entry().key, 3600) as held:
    say(held)
store.journal({"a": 1})
(scanned,) = store.scan()
say(store.remove(scanned, "old").reason)
say(store.quarantine(scanned, "odd"))
"""
    said = _said(start(_DROP + script, open_place / "cache"))
    assert said[:3] == ["Found", "EACCES", "False"]
    assert " ".join(said[3:]).startswith("it cannot be removed from")
    assert said[-1] == "False"


def test_file_size_limit(start: Start, tmp_path: Path) -> None:
    """A write that is cut short raises OSError and leaves no half entry."""
    script = """
import errno, resource, sys
sys.dont_write_bytecode = True  # which the limit would cut
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    store.publish(build_entry(payload=bytes(5000)))
except OSError as error:
    say(errno.errorcode[error.errno])
from tests.store.conftest import left
say(len(left(root)))
store.publish(build_entry())
say(type(store.get(build_entry().key)).__name__)
"""
    assert _said(start(script, tmp_path / "cache")) == ["EFBIG", "0", "Found"]
