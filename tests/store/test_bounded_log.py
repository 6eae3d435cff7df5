"""The journal where something else is in its place."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpucache.store import layout
from gpucache.store.bounded_log import log
from gpucache.store.root_folder import RootFolder


def _fifo(path: Path) -> None:
    os.mkfifo(path, 0o600)


def _full_of(text: bytes) -> Callable[[Path], None]:
    def put(path: Path) -> None:
        path.write_bytes(text * (3_000_000 // len(text)))
        path.chmod(0o600)

    return put


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
@pytest.mark.parametrize(
    ("put", "is_file"),
    [
        (_fifo, False),
        (Path.mkdir, False),
        *((_full_of(text), True) for text in (b"\n", b"\r", b" \n", b"{}\n")),
    ],
    ids=["fifo", "directory", "empty", "returns", "blank", "braces"],
)
def test_a_journal_that_is_no_file_of_lines_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put: Callable[[Path], None], is_file: bool
) -> None:
    """A reader neither waits for it nor parses it line by line."""
    parsed = 0

    def loads(line: bytes) -> object:
        nonlocal parsed
        parsed += 1
        return json.loads(line)

    root = RootFolder(tmp_path)
    log(root).append([{"kind": "miss"}])
    place = tmp_path.joinpath(*layout.LOG, layout.LOG_NAME)
    place.unlink()
    put(place)
    monkeypatch.setattr("gpucache.store.bounded_log.json", SimpleNamespace(loads=loads))
    assert log(root).records() == [] and parsed <= 1
    for _ in range(2):  # the first may follow the last line
        log(root).append([{"kind": "miss"}])
    assert bool(log(root).records()) == is_file
    assert not is_file or place.stat().st_size < 100


@pytest.mark.skipif(sys.platform == "win32", reason="no such modes")
@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_nothing_is_written_to_a_journal_in_a_place_of_others(tmp_path: Path, mode: int) -> None:
    """Others who may write to its directory might have put it there."""
    kept = log(RootFolder(tmp_path))
    assert kept.append([{"kind": "miss"}])
    tmp_path.joinpath(*layout.LOG).chmod(mode)
    assert not kept.append([{"kind": "miss"}])
    assert tmp_path.joinpath(*layout.LOG, layout.LOG_NAME).read_bytes().count(b"\n") == 1
