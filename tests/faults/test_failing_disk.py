"""Disks and servers that fail while they are read: the rest is reported, and nothing is lost or invented."""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpucache.host import os_errors
from gpucache.store.directory import DirectoryStore
from tests.children import run_text
from tests.faults.conftest import build_entry

needs_strace = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed, which makes system calls fail"
)
pytestmark = [pytest.mark.slow, needs_strace]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A cache of three entries, each in its own directory."""
    store = DirectoryStore(tmp_path / "root", writable=True)
    for seed in "abc":
        store.publish(build_entry(seed))
    return store.root


def _failing(
    place: Path, call: str, error: int, *words: object, root: Path
) -> subprocess.CompletedProcess[str]:
    """Run gpucache on a root while a system call on one place always fails."""
    failing = ("-e", f"trace={call}", "-e", f"inject={call}:error={errno.errorcode[error]}")
    tracer = ("strace", "-f", "--seccomp-bpf", "-qq", "-o", os.devnull, "-P", place, *failing)
    return run_text(
        [*map(str, tracer), sys.executable, "-m", "gpucache", "--root", str(root), *map(str, words)]
    )


def _folders(root: Path) -> list[Path]:
    return sorted((root / "v1" / "entries").iterdir())


@pytest.mark.parametrize("error", [errno.EIO, errno.ESTALE])
@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("inspect", "--list"), 5, lambda answer: len(answer["outcomes"]) == 2),
        (("inspect",), 5, lambda answer: answer["summary"]["entries"] == 2),
        (("verify",), 5, lambda answer: answer["summary"]["wrong"] == 2),  # their keys are made up
        (("verify", "--repair"), 5, lambda answer: answer["summary"]["checked"] == 2),
        (("evict", "--all", "--yes"), 5, lambda answer: answer["summary"]["removed"] == 2),
    ],
)
def test_a_folder_that_cannot_be_listed_is_told_and_stops_nothing(
    root: Path, error: int, words: tuple[str, ...], code: int, told: Callable[[Any], bool]
) -> None:
    """The other entries are reported, the directory is named, and exit 5 says so, whatever else is wrong."""
    folder = _folders(root)[0]
    done = _failing(folder, "getdents64", error, *words, "--json", root=root)
    assert (done.returncode, told(json.loads(done.stdout))) == (code, True), done
    assert (
        f"{folder} cannot be read: {os.strerror(error)}; {os_errors.remedy(OSError(error, ''))}"
        in done.stderr
    )
    assert done.stderr.count("\n") == 1
    assert list(folder.iterdir())


@pytest.mark.parametrize("words", [("inspect",), ("verify",), ("evict", "--dry-run", "--program")])
def test_what_is_named_may_be_in_a_folder_that_cannot_be_listed(root: Path, words: tuple[str, ...]) -> None:
    """The entry may exist: the message names the directory, and the exit code is 5."""
    folder = _folders(root)[0]
    (entry,) = folder.iterdir()
    done = _failing(folder, "getdents64", errno.EIO, *words, entry.stem, root=root)
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr.startswith(f"gpucache: {folder} cannot be read: Input/output error; ")
    assert done.stderr.endswith("; it may have the entries you named\n") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("error", [errno.EIO, errno.ESTALE])
def test_a_folder_of_all_entries_that_cannot_be_listed_is_one_sentence(root: Path, error: int) -> None:
    """Without the listing nothing is known of the cache; the error blames neither stdout nor gpucache."""
    entries = root / "v1" / "entries"
    done = _failing(entries, "getdents64", error, "inspect", "--list", root=root)
    assert (done.returncode, done.stdout) == (5, "")
    sentence = f"{entries} cannot be read: {os.strerror(error)}; {os_errors.remedy(OSError(error, ''))}"
    assert done.stderr == f"gpucache: {sentence}\n"


def test_a_disk_that_became_read_only_is_named_by_evict(root: Path) -> None:
    """Each entry stays, with the reason and the remedy, and the exit code is 3."""
    done = _failing(_folders(root)[0], "unlinkat", errno.EROFS, "evict", "--all", "--yes", root=root)
    assert done.returncode == 3
    assert f"was not removed: {root} is on a read-only file system; mount it writable" in done.stdout
    assert "2 entries removed" in done.stdout and "1 stay" in done.stdout


@pytest.mark.parametrize("error", [errno.EIO, errno.ESTALE])
def test_an_entry_that_a_disk_hides_is_no_finding(root: Path, error: int) -> None:
    """verify reports it as not checked, and neither repair nor a rule of evict touches it;
    --all includes it.
    """
    entry = next(_folders(root)[0].iterdir())
    words = f"it cannot be read: {os.strerror(error)}; {os_errors.remedy(OSError(error, ''))}"
    for verb in (("verify",), ("verify", "--repair")):
        done = _failing(entry, "pread64", error, "--json", *verb, root=root)
        answer = json.loads(done.stdout)
        assert [one["note"] for one in answer["summary"]["unchecked"]] == [words]
        assert all(one["kind"] != "untrusted" for one in answer["outcomes"])
    done = _failing(entry, "pread64", error, "evict", "--max-size", "1B", root=root)
    assert done.returncode == 3 and f"was not removed: {words}" in done.stdout
    assert entry.exists()
    done = _failing(entry, "pread64", error, "--json", "evict", "--all", "--yes", root=root)
    assert (done.returncode, entry.exists()) == (0, False)
