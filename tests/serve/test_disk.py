"""The space that a root takes on disk beside the payloads of its entries: files, directories and bytes."""

import struct
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.children import run_text
from tests.serve.conftest import PROGRAM, Done
from tests.serve.test_nvrtc import installed  # noqa: F401 - a fixture

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="run is for Linux")]
_NVRTC_PROGRAM = PROGRAM.with_name("nvrtc_program.py")
_BLOCK = 4096
_LIBRARY = """
import sys
from gpucache.cuda import compile_program
compile_program(sys.argv[1], target="sm_90", options=["-DN=" + sys.argv[2]])
"""
_SOURCE = 'extern "C" __global__ void k(int *a) { *a = N; }'


def _beyond(root: Path) -> tuple[int, int, int]:
    """The files and directories, the bytes of records, and those of entries beyond their payloads."""
    paths = [root, *root.rglob("*")]
    entries = [path.read_bytes() for path in paths if path.suffix == ".gpc"]
    payloads = sum(struct.unpack_from("<Q", data, 24)[0] for data in entries)
    records = sum(path.stat().st_size for path in paths if path.is_file() and path.suffix != ".gpc")
    return len(paths), records, sum(map(len, entries)) - payloads


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("words", "first", "following"),
    [
        # Root, tag, v1, log, records, entries; of each entry the directory and the file.
        ([(PROGRAM, "Intel", "2"), (PROGRAM, "Intel", "3")], 6 + 2, 2),
        ([(_NVRTC_PROGRAM, "core", "plain"), (_NVRTC_PROGRAM, "core", "lines")], 6 + 4, 4),
    ],
    ids=["opencl", "nvrtc"],
)
def test_a_build_takes_few_blocks_beyond_its_payload(
    run: Callable[..., Done], root: Path, words: Any, first: int, following: int
) -> None:
    """A further one has no file but its entries'; its records are in the files that are there."""
    seen = []
    for one in words:
        assert run(sys.executable, *one).results == ["kept"]
        seen.append(_beyond(root))
    (files, records, described), (more, records_then, described_then) = seen
    assert (files, more - files) == (first, following)
    assert records < 2 * _BLOCK and records_then - records < 1.25 * _BLOCK
    entries = following // 2
    assert described < entries * _BLOCK and described_then - described < entries * _BLOCK


@pytest.mark.usefixtures("installed")
def test_a_build_of_the_library_takes_as_few(environment: Mapping[str, str], root: Path) -> None:
    """Its record of a hit and of headers has some hundred bytes."""
    seen = []
    for number in range(3):
        command = (sys.executable, "-c", _LIBRARY, _SOURCE, str(number))
        assert run_text(command, env=dict(environment)).returncode == 0
        seen.append(_beyond(root))
    files, records, _ = zip(*seen, strict=True)
    assert [b - a for a, b in zip((0, *files), files, strict=False)] == [8, 2, 2]
    assert all(b - a < _BLOCK for a, b in zip((0, *records), records, strict=False))
