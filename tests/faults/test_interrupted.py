"""Ctrl-C amid entries: the command says how far it came, and what is done stays done."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.model import Entry
from gpucache.store import DirectoryStore
from tests.patience import PATIENCE_S

_STRUCK_AT_ENTRY = """
import sys
from gpucache.cli import main
from gpucache.store import DirectoryStore

real, asked = getattr(DirectoryStore, {method!r}), []

def struck(*arguments):
    asked.append(arguments)
    if len(asked) == 3:
        raise KeyboardInterrupt
    return real(*arguments)

setattr(DirectoryStore, {method!r}, struck)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("method", "words", "told", "left"),
    [
        ("remove", ["evict", "--all", "--yes"], "2 of 4 were removed, and the rest stays", 2),
        ("check", ["verify"], "2 of 4 were checked", 4),
    ],
)
def test_an_interrupt_says_how_far_it_came(
    tmp_path: Path, make_entry: Callable[..., Entry], method: str, words: list[str], told: str, left: int
) -> None:
    """What was done stays done, and the next run goes on."""
    store = DirectoryStore(tmp_path / "root", writable=True)
    for seed in "abcd":
        store.publish(make_entry(seed))
    script = _STRUCK_AT_ENTRY.format(method=method)
    done = subprocess.run(
        [sys.executable, "-c", script, "--root", store.root, *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", f"gpucache: interrupted; {told}")
    assert len(list(store.scan())) == left
