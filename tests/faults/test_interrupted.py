"""Ctrl-C amid entries: the command says how far it came, and its work so far is kept."""

import sys
from pathlib import Path

import pytest

from gpucache.store.directory import DirectoryStore
from tests.children import run_text
from tests.faults.conftest import build_entry

_STRUCK_AT_ENTRY = """
import sys
import gpucache.caches.own
import gpucache.store.removal
from gpucache.cli import main

real, asked = {owner}.{function}, []

def struck(*arguments):
    asked.append(arguments)
    if len(asked) == 3:
        raise KeyboardInterrupt
    return real(*arguments)

{owner}.{function} = struck
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("owner", "function", "words", "told", "left"),
    [
        (
            "gpucache.store.removal.Removal",
            "_removed",
            ["evict", "--all", "--yes"],
            "2 were removed, and the rest stays",
            2,
        ),
        ("gpucache.caches.own", "_judged", ["verify"], "2 of 4 were checked", 4),
    ],
)
def test_an_interrupt_says_how_far_it_came(
    tmp_path: Path, owner: str, function: str, words: list[str], told: str, left: int
) -> None:
    """The finished part is kept, and the next run goes on."""
    store = DirectoryStore(tmp_path / "root", writable=True)
    for seed in "abcd":
        store.publish(build_entry(seed))
    script = _STRUCK_AT_ENTRY.format(owner=owner, function=function)
    done = run_text([sys.executable, "-c", script, "--root", store.root, *words])
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", f"gpucache: interrupted; {told}")
    assert len(list(store.scan())) == left
