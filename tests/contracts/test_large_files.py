"""A file of gigabytes in a cache: reading it takes no memory of its size and raises nothing."""

import resource
import sys
from pathlib import Path

import pytest

from tests.children import run_text
from tests.contracts.examples import EXAMPLES, open_example

_LARGE = 3 << 30
_ROOM = 900 << 20
"""Address space for Python, its libraries and the parts of a file that are read."""


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_ROOM, _ROOM))


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_is_looked_at_in_little_memory(name: str, tmp_path: Path) -> None:
    """A check of the whole cache ends with findings or notes under a limit that the file is far above."""
    place = EXAMPLES[name].make(tmp_path / "cache")
    for entry in list(open_example(name, place).scan()):
        with EXAMPLES[name].file_of(entry).open("r+b") as file:
            file.truncate(_LARGE)
    command = [sys.executable, "-m", "gpucache", "verify", "--cache", f"{name}:{place}"]
    done = run_text(command, preexec_fn=_limited)
    assert done.returncode in (0, 3), done.stderr
    assert "defect" not in done.stderr and "memory" not in done.stderr
