"""``gpucache inspect`` on entries of real compilers."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpucache.store.directory import DirectoryStore
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from tests.cli.conftest import Filled, Run

Files = Callable[[Path], list[Path]]


def _built(mixed: Filled) -> list[Any]:
    return [row for row in mixed.answer.document["outcomes"] if row["result"] == "built"]


def test_an_empty_cache_is_said_to_be_empty(run: Run, root: Path) -> None:
    """A missing cache still has a row; named explicitly, its root and the origin of that are shown."""
    assert "No misses are recorded" in run("inspect").out
    answer = run("inspect", "--cache", "gpucache")
    assert answer.code == 0 and f"{root} (decided by default)" in answer.out
    assert "0 of 0 programs" in answer.out
    assert not root.exists()


@pytest.mark.parametrize("variable", ["GPUCACHE_DIR", "XDG_CACHE_HOME"])
def test_the_state_says_what_decided_the_root(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """The root comes from the option, the variable or the default, and the state names which."""
    monkeypatch.setenv(variable, str(tmp_path / "place"))
    (tmp_path / "place").mkdir()
    summary = run("--json", "inspect", at=None).document["summary"]
    ours = variable == "GPUCACHE_DIR"
    assert summary["decided_by"] == ("GPUCACHE_DIR" if ours else "default")
    assert Path(summary["root"]) == tmp_path / "place" / ("" if ours else "gpucache")


def test_the_state_counts_what_is_there(run: Run, mixed: Filled, entries: Files) -> None:
    """Entries, programs and allocated bytes are counted; a build by warm is not a miss."""
    answer = run("--json", "inspect", at=mixed.root)
    summary = answer.document["summary"]
    allocated = sum(entry.stat().st_blocks * 512 for entry in entries(mixed.root))
    assert (summary["entries"], summary["programs"], summary["damaged"]) == (4, 2, 0)
    assert summary["size_bytes"] == allocated
    assert summary["misses"] == summary["processes"] == []
    assert answer.document["outcomes"] == []


def test_the_key_fields_of_an_entry_are_all_there(run: Run, mixed: Filled) -> None:
    """The document of one entry has the key fields as the store keeps them, in order."""
    row = next(row for row in _built(mixed) if row["target"].startswith("opencl:pocl"))
    (entry,) = run("--json", "inspect", row["key"][:12], at=mixed.root).document["outcomes"]
    store = DirectoryStore(mixed.root, writable=False)
    detail = store.detail(store.find(row["key"])[0])
    assert detail is not None
    assert [(field["label"], field["value"]) for field in entry["key_fields"]] == [
        (field.label, field.value) for field in detail.key_fields
    ]
    labels = [field["label"] for field in entry["key_fields"]]
    assert {"language", "source", "include factor.h"} <= set(labels)


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (["twice.cl"], 2),
        (["twice.cu"], 2),
        (["cuda:sm_90"], 1),
        (["twice.cl", "twice.cu"], 4),
        (["twice.cl", "--target", "opencl:intel"], 1),
        (["--target", "opencl:intel"], 1),
    ],
)
def test_programs_and_targets_select_entries(run: Run, mixed: Filled, words: list[str], count: int) -> None:
    """Words name programs or targets, and --target narrows the selection."""
    assert len(run("--json", "inspect", *words, at=mixed.root).document["outcomes"]) == count


def test_extract_writes_what_the_compiler_returned(run: Run, mixed: Filled, tmp_path: Path) -> None:
    """The bytes written have the SHA-256 that the entry carries."""
    file = tmp_path / "artifact"
    answer = run("inspect", "cuda:sm_90", "--extract", file, at=mixed.root)
    (entry,) = run("--json", "inspect", "cuda:sm_90", at=mixed.root).document["outcomes"]
    assert answer.code == 0
    assert hashlib.sha256(file.read_bytes()).hexdigest() == entry["payload"]["SHA-256"]
    assert file.read_bytes().startswith(b"\x7fELF")
    assert str(file) in answer.err and "cubin" in answer.err


def test_bytes_of_an_unknown_kind_are_extracted_and_never_loaded(
    run: Run, root: Path, tmp_path: Path
) -> None:
    """A program may give cuda.core's cache any bytes, and gets the same ones back in every way."""
    script = 'from gpucache.cuda import ProgramCache\nProgramCache()[b"key"] = b"neither cubin nor PTX"'
    environment = {**os.environ, "GPUCACHE_DIR": str(root)}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, timeout=PATIENCE_S)
    (entry,) = run("--json", "inspect", "--list").document["outcomes"]
    file = tmp_path / "artifact"
    assert run("inspect", entry["key"], "--extract", file).code == 0
    assert file.read_bytes() == b"neither cubin nor PTX"
    answer = run("--json", "verify", "--load")
    (note,) = answer.document["summary"]["notes"]
    assert answer.code == 0 and "bytes of a kind that no driver takes" in note["note"]


def test_extract_needs_one_entry(run: Run, mixed: Filled, tmp_path: Path) -> None:
    """If several entries are named nothing is written."""
    file = tmp_path / "artifact"
    answer = run("inspect", "twice.cl", "--extract", file, at=mixed.root)
    assert (answer.code, file.exists()) == (2, False)
    assert "--extract needs one entry" in answer.err


def test_inspecting_is_no_use(run: Run, cache: Path, entries: Files, tmp_path: Path) -> None:
    """State, list, one entry whole and an extraction leave every entry's last use alone."""
    before = [entry.stat().st_mtime_ns for entry in entries(cache)]
    for words in ([], ["--list"], ["twice.cl"], ["--misses"], ["cuda:sm_90", "--extract", tmp_path / "x"]):
        assert run("inspect", *words).code == 0
    assert [entry.stat().st_mtime_ns for entry in entries(cache)] == before


def test_a_damaged_entry_is_listed_as_such(run: Run, cache: Path, entries: Files) -> None:
    """A truncated entry is counted and listed with its damage, and showing it in full is exit 3."""
    entry = entries(cache)[0]
    entry.write_bytes(entry.read_bytes()[:1000])
    assert run("--json", "inspect").document["summary"]["damaged"] == 1
    (row,) = (row for row in run("--json", "inspect", "--list").document["outcomes"] if row["damage"])
    assert row["damage"].startswith("truncated") and row["key"] == entry.stem
    whole = run("inspect", entry.stem)
    assert whole.code == 3
    assert whole.err.startswith("gpucache: the entry ") and whole.err.count("\n") == 1


def test_another_root_can_be_named(run: Run, mixed: Filled) -> None:
    """--cache takes the root of any of our caches."""
    assert run("--json", "inspect", "--cache", mixed.root).document["summary"]["entries"] == 4


def test_a_cache_is_drawn(run: Run, mixed: Filled, tmp_path: Path) -> None:
    """The picture is written, and the state is printed as without it."""
    pytest.importorskip("matplotlib")
    answer = run("inspect", "--plot", tmp_path / "growth.svg", at=mixed.root)
    assert (answer.code, answer.out) == (0, run("inspect", at=mixed.root).out)
    drawn = (tmp_path / "growth.svg").read_text(encoding="utf-8")
    size = re.search(r"Growth: ([\d.]+ KiB) of entries", drawn)
    assert size and size[1] in answer.out
