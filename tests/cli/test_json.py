"""The documents for machines: exactly the names that are promised, whatever the verb."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Filled, Run

Write = Callable[..., Path]
Files = Callable[[Path], list[Path]]
DOCUMENT = {"schema", "command", "outcomes", "summary"}
DEVICE = {"target", "backend", "name", "driver_version", "available", "present", "detail", "toolchain"}
WARM = {
    "result", "program", "target", "variant", "key", "compile_ms", "size_bytes", "verdict", "reason", "log",
}  # fmt: skip
RESULTS = {"hit", "built", "failed", "missing", "skipped", "poisoned", "interrupted"}
ENTRY = {
    "cache", "key", "program", "target", "variant", "artifact_kind", "size_bytes", "created", "last_used",
    "path", "damage", "fields",
}  # fmt: skip
REMOVAL = ENTRY | {"rule", "removed", "kept_because"}
WHOLE = ENTRY | {
    "key_fields", "payload", "provenance", "compile_ms", "build_log", "tool_version", "lowered_names",
}  # fmt: skip
STATE = {
    "cache", "root", "decided_by", "enabled", "limit_bytes", "problems", "entries", "size_bytes", "files",
    "programs", "damaged", "role", "findings",
}  # fmt: skip
FINDING = {"cache", "entry", "kind", "wrong", "program", "target", "detail", "repaired"}
CASE = {
    "program", "target", "variant", "verdict", "reason", "cold", "warm", "ratio", "phases", "samples",
    "arms", "break_even", "growth", "notes", "redirects",
}  # fmt: skip
SAMPLE = {"arm", "total_ms", "phases", "hit", "missed", "growth", "output", "error"}
SPREAD = {"median_ms", "low_ms", "high_ms", "runs", "outliers"}
BENCHED = {"cases", "faster", "no_difference", "degraded", "failed", "fail_below", "below"}


def _whole(document: Any, command: str) -> tuple[Any, Any]:
    assert set(document) == DOCUMENT
    assert (document["schema"], document["command"]) == (1, command)
    return document["outcomes"], document["summary"]


def test_devices(run: Run) -> None:
    """Outcomes of devices are targets; the summary counts targets, devices and errors."""
    rows, summary = _whole(run("devices", "--json").document, "devices")
    assert all(set(row) == DEVICE for row in rows)
    assert set(summary) == {"targets", "devices", "errors"}
    assert summary["targets"] == sum(row["available"] for row in rows)


def test_warm(mixed: Filled) -> None:
    """Outcomes of warm are items with what is known of each; the summary counts each result."""
    rows, summary = _whole(mixed.answer.document, "warm")
    assert all(set(row) == WARM for row in rows)
    assert set(summary) == RESULTS | {"compile_ms", "size_bytes"}
    assert {result: summary[result] for result in RESULTS} == {
        result: sum(row["result"] == result for row in rows) for result in RESULTS
    }
    for row in rows:
        built = row["result"] == "built"
        assert (row["size_bytes"] is not None) is (row["compile_ms"] is not None) is built
        assert re.fullmatch(r"[0-9a-f]{64}", row["key"])


def test_inspect_of_a_cache(run: Run, mixed: Filled) -> None:
    """The state of a cache is a summary; its entries are outcomes when they are asked for."""
    rows, summary = _whole(run("--json", "inspect", at=mixed.root).document, "inspect")
    assert (rows, set(summary)) == ([], STATE | {"advice", "processes", "misses", "caches"})
    assert all(set(one) == STATE for one in summary["caches"])
    rows, summary = _whole(run("--json", "inspect", "--list", at=mixed.root).document, "inspect")
    assert len(rows) == 4 and all(set(row) == ENTRY for row in rows)
    assert set(summary) == {"entries", "size_bytes"}
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row["created"]) for row in rows)


def test_inspect_of_entries(run: Run, mixed: Filled) -> None:
    """Entries that are selected carry their key fields, each with label and value."""
    rows, _ = _whole(run("--json", "inspect", "twice.cu", at=mixed.root).document, "inspect")
    assert len(rows) == 2 and all(set(row) == WHOLE for row in rows)
    assert all(set(field) == {"label", "value"} for row in rows for field in row["key_fields"])


def test_verify(run: Run, cache: Path, entries: Files) -> None:
    """Outcomes of verify are findings; the summary counts checked, sound and findings."""
    entries(cache)[0].write_bytes(b"")
    rows, summary = _whole(run("--json", "verify").document, "verify")
    assert [set(row) for row in rows] == [FINDING]
    assert set(summary) == {"checked", "sound", "findings", "wrong", "repaired", "notes"}
    assert (summary["checked"], summary["sound"], summary["findings"]) == (4, 3, 1)


def test_evict(run: Run, cache: Path) -> None:
    """Outcomes of evict are the entries it planned to remove, with the rule; planned or done."""
    rows, summary = _whole(run("--json", "evict", "--all", "--dry-run").document, "evict")
    assert all(set(row) == REMOVAL and not row["removed"] for row in rows)
    assert set(summary) == {
        "would_remove",
        "would_free_bytes",
        "removed",
        "freed_bytes",
        "kept",
        "kept_bytes",
    }
    rows, summary = _whole(run("--json", "evict", "--all", "--yes").document, "evict")
    assert all(set(row) == REMOVAL and row["removed"] for row in rows)
    assert set(summary) == {"removed", "freed_bytes", "kept", "kept_bytes"}
    assert (summary["removed"], summary["kept"]) == (4, 0)


def test_bench(run: Run, write: Write, nvrtc: str) -> None:
    """Outcomes of bench are cases: spreads in ms, a ratio of pairs, phases and the samples behind them."""
    source = write({"f.cu": 'extern "C" __global__ void f(int *a) { *a = 1; }\n'})
    answer = run("--json", "bench", source, "--target", nvrtc, "--runs", "1")
    ((case,), summary) = _whole(answer.document, "bench")
    assert set(case) == CASE
    assert set(case["cold"]) == set(case["warm"]) == SPREAD
    assert set(case["ratio"]) == {"median", "low", "high"}
    assert all(set(row) == {"phase", "cold_ms", "warm_ms"} for row in case["phases"])
    assert all(set(sample) == SAMPLE for sample in case["samples"])
    assert set(summary) == BENCHED


@pytest.mark.parametrize("place", [["--json"], []])
def test_global_options_go_before_or_after_the_verb(run: Run, mixed: Filled, place: list[str]) -> None:
    """--json and --root mean the same before and after the verb."""
    after = [] if place else ["--json"]
    answer = run(*place, "inspect", "--root", mixed.root, *after, at=None)
    assert answer.document["summary"]["root"] == str(mixed.root)


def test_a_name_that_is_no_text_is_escaped(run: Run, tmp_path: Path, nvrtc: str) -> None:
    """A file name that is not UTF-8 neither breaks the document nor the text."""
    folder = tmp_path / "odd"
    folder.mkdir()
    (folder / os.fsdecode(b"\xff.cu")).write_bytes(b'extern "C" __global__ void f(int *a) { *a = 1; }\n')
    command = ("warm", folder, "--target", nvrtc)
    answer = run("--json", *command)
    assert answer.out.isascii()
    (row,) = answer.document["outcomes"]
    assert row["program"] == "\udcff.cu"
    assert run(*command).code == answer.code == 0
    assert run("inspect", "--list").code == run("inspect").code == run("verify").code == 0


def test_a_reader_that_goes_away_is_no_failure(mixed: Filled) -> None:
    """A document whose reader has gone ends the command without a word, and with exit 0."""
    for arguments in (["--json", "inspect", "--list"], ["inspect", "--list"]):
        child = subprocess.Popen(
            [sys.executable, "-m", "gpucache", "--root", str(mixed.root), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert child.stdout is not None and child.stderr is not None
        child.stdout.close()
        with child.stderr as stderr:
            assert stderr.read() == b""
        assert child.wait(60) == 0
