"""Entries that ``evict --superseded``, ``verify --rebuild`` and ``inspect`` leave alone, and still show."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpucache.model import Entry
from gpucache.store.directory import DirectoryStore
from tests.cli.conftest import entry_files, version_of
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from tests.cli.conftest import Run

pytestmark = pytest.mark.slow

Files = Callable[[Path], list[Path]]
Write = Callable[..., Path]
HEADER_CU = '#include "n.h"\nextern "C" __global__ void vector(float *a) { a[threadIdx.x] += N; }\n'
_SIDE_BY_SIDE = {
    "programs of cuda.core": 'cache = ProgramCache()\ncache[b"a"], cache[b"b"] = b"code", b"other code"',
    "ptx beside cubin": """
for kind in ("cubin", "ptx"):
    compile_program('extern "C" __global__ void k() {}', target="sm_90", artifact_kind=kind)
""",
    "name expressions": """
for wanted in ("k<int>", "k<float>"):
    source = "template <typename T> __global__ void k(T *a) { *a += 1; }"
    compile_program(source, target="sm_90", name_expressions=[wanted], name="k")
""",
}


@pytest.mark.parametrize("script", _SIDE_BY_SIDE.values(), ids=_SIDE_BY_SIDE)
def test_what_stands_side_by_side_is_not_superseded(
    run: Run, root: Path, entries: Files, nvrtc: str, script: str
) -> None:
    """Entries of one program that may both be in use are not versions of one another."""
    imports = "from gpucache.cuda import ProgramCache, compile_program\n"
    subprocess.run(
        [sys.executable, "-c", imports + script],
        env={**os.environ, "GPUCACHE_DIR": str(root)},
        check=True,
        timeout=PATIENCE_S,
    )
    before = entries(root)
    answer = run("--json", "evict", "--superseded")
    assert (answer.code, answer.document["outcomes"]) == (0, [])
    assert len(before) == 2 and entries(root) == before


def test_programs_of_two_projects_are_not_superseded(run: Run, root: Path, write: Write, nvrtc: str) -> None:
    """Each has its own ``main.cu``; an edited one supersedes its own older version alone."""
    text = 'extern "C" __global__ void k(int *a) { *a = 1; }\n'
    keys = []
    for name, now in (("one", text), ("other", text.replace("1", "2")), ("one", text.replace("1", "3"))):
        source = write({"main.cu": now}, name) / "main.cu"
        (built,) = run("warm", source, "--target", nvrtc, "--json").document["outcomes"]
        keys.append(built["key"])
    store = DirectoryStore(root, writable=True)
    entries = {str(one.key): one for one in map(store.check, store.scan()) if isinstance(one, Entry)}
    for path in entry_files(root):
        path.unlink()
    for key, (made, used) in zip(keys, ((9, 8), (9, 8), (5, 0)), strict=True):
        version_of(store, entries[key], made, used)
    answer = run("--json", "evict", "--superseded")
    assert [row["key"] for row in answer.document["outcomes"]] == keys[:1]


@pytest.mark.parametrize("repair", [[], ["--repair"]])
def test_an_edited_header_cannot_be_rebuilt(
    run: Run, root: Path, write: Write, entries: Files, nvrtc: str, repair: list[str]
) -> None:
    """After a header was edited the entry is still sound for its own key: it gets a note, and stays."""
    sources = write({"vector.cu": HEADER_CU, "n.h": "#define N 1\n"})
    assert run("warm", sources / "vector.cu", "--target", nvrtc).code == 0
    before = entries(root)
    write({"n.h": "#define N 2\n"})
    answer = run("--json", "verify", "--rebuild", *repair)
    (note,) = answer.document["summary"]["notes"]
    assert note["note"].startswith("not rebuilt: its headers ")
    assert (answer.code, answer.document["outcomes"], entries(root)) == (0, [], before)


@pytest.mark.parametrize("option", ["-use_fast_math", "-lineinfo", "-G"])
def test_a_rebuild_uses_the_options_of_the_build(run: Run, write: Write, nvrtc: str, option: str) -> None:
    """Defines, directories and options give the same bytes again."""
    sources = write({"vector.cu": HEADER_CU, "include/n.h": "#define N M\n"})
    given = ["-I", sources / "include", "-D", "M=1 + 1", f"--option={option}"]
    assert run("warm", sources / "vector.cu", "--target", nvrtc, *given).code == 0
    answer = run("--json", "verify", "--rebuild")
    summary = answer.document["summary"]
    assert (answer.code, summary["checked"], summary["sound"]) == (0, 1, 1)
    assert summary["notes"] == []


def test_a_damaged_entry_does_not_hide_the_others(run: Run, cache: Path, entries: Files) -> None:
    """A program's document lists its sound entries with their key fields, and the damage of the other."""
    rows = run("--json", "inspect", "twice.cu").document["outcomes"]
    keys = sorted(row["key"] for row in rows)
    damaged = next(path for path in entries(cache) if path.stem == keys[0])
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)
    answer = run("--json", "inspect", "twice.cu")
    found = {row["key"]: row for row in answer.document["outcomes"]}
    assert (answer.code, sorted(found), len(keys)) == (0, keys, 2)
    assert found[keys[0]]["damage"]
    assert all(found[key]["key_fields"] for key in keys[1:])
