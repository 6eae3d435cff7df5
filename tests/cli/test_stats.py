"""The totals of hits, misses and saved time; their forms; and when they begin again."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpucache.answers.run_lines import command_name
from gpucache.store.bounded_log import LOG_CAP
from gpucache.store.directory import DirectoryStore

if TYPE_CHECKING:
    from tests.cli.conftest import Run

_HIT = {"kind": "process", "hits": 3, "misses": 1, "saved_ns": 2_500_000_000}
_MISS = {"kind": "miss", "program": "k.cu", "target": "cuda:sm_90"}


@pytest.fixture
def store(root: Path) -> DirectoryStore:
    """A journal of two starts of one program and one of another."""
    store, now = DirectoryStore(root, writable=True), time.time_ns()
    store.journal({**_HIT, "when_ns": now, "command": "app.py", "pid": 1})
    store.journal({**_HIT, "when_ns": now, "command": "app.py", "pid": 2})
    store.journal({**_MISS, "when_ns": now, "command": "app.py", "verdict": "never-built"})
    store.journal({**_MISS, "when_ns": now, "command": "sim", "verdict": "evicted"})
    return store


def test_totals_are_by_reason_program_and_day(run: Run, store: DirectoryStore) -> None:
    """Hits and saved time are of processes, misses of misses, and each is in its program and day."""
    summary = run("inspect", "--stats", "--json").document["summary"]
    assert (summary["hits"], summary["misses"], summary["saved_ms"]) == (6, 2, 5000)
    assert summary["reasons"] == {"never-built": 1, "evicted": 1}
    assert summary["programs"]["app.py"] == {"hits": 6, "misses": 1, "saved_ms": 5000}
    assert [day["misses"] for day in summary["days"].values()] == [2]
    assert "75.0 %" in run("inspect", "--stats").out


def test_size_is_beside_its_limit(run: Run, store: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is a number in the document, and null without one."""
    assert run("inspect", "--stats", "--json").document["summary"]["limit_bytes"] is None
    monkeypatch.setenv("GPUCACHE_MAX_SIZE", "2G")
    assert run("inspect", "--stats", "--json").document["summary"]["limit_bytes"] == 2 << 30
    assert "0 (0 B of " in run("inspect", "--stats").out


def test_places_are_shown(run: Run, store: DirectoryStore, root: Path) -> None:
    """The cache's directory, and each settings file with whether it exists."""
    summary = run("inspect", "--stats", "--json").document["summary"]
    assert summary["root"] == str(root)
    assert "/etc/gpucache.toml" in summary["settings_files"] and len(summary["settings_files"]) == 2
    lines = run("inspect", "--stats").out.splitlines()
    assert f"cache                 {root}" in lines
    assert [line for line in lines if line.startswith("settings file") and line.endswith("(none)")]


def test_zero_counts_from_now_on(run: Run, store: DirectoryStore) -> None:
    """What was counted is shown once more, and is no part of later totals; misses are still listed."""
    assert run("inspect", "--stats", "--zero", "--json").document["summary"]["hits"] == 6
    summary = run("inspect", "--stats", "--json").document["summary"]
    assert (summary["hits"], summary["misses"], summary["programs"]) == (0, 0, {})
    assert summary["since"] and run("inspect", "--misses", "--json").document["summary"] == {"count": 2}


def test_counters_of_prometheus_never_fall(run: Run, store: DirectoryStore) -> None:
    """When the journal drops its older half, the totals of that are kept."""

    def counted() -> dict[str, float]:
        out = run("inspect", "--stats", "--format", "prometheus").out
        rows = (line.rsplit(" ", 1) for line in out.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in rows}

    before = counted()
    assert before["gpucache_hits_total"] == 6 and before["gpucache_saved_seconds_total"] == 5
    assert before['gpucache_misses_total{reason="evicted"}'] == 1
    file = store.root / "v1" / "log.jsonl"
    line = json.dumps({**_MISS, "when_ns": 1, "command": "sim", "verdict": "evicted", "detail": "x" * 1000})
    count = LOG_CAP // len(line)
    with file.open("a", encoding="utf-8") as journal:
        journal.write(f"{line}\n" * count)
    store.journal({**_HIT, "when_ns": 2, "command": "app.py", "pid": 3})
    assert file.stat().st_size < LOG_CAP * 2 // 3
    after = counted()
    assert after["gpucache_hits_total"] == 9
    assert after['gpucache_misses_total{reason="evicted"}'] == 1 + count
    assert after['gpucache_misses_total{reason="never-built"}'] == 1


def test_markdown_has_tables(run: Run, store: DirectoryStore) -> None:
    """Rows are those of a Markdown table, a bar in a name ends no cell, and no name is markup."""
    store.journal({**_HIT, "when_ns": time.time_ns(), "command": "a|b", "pid": 9})
    detail = "the option -DN=__X__ -> f<int>"
    store.journal({**_MISS, "when_ns": time.time_ns(), "verdict": "key-changed", "detail": detail})
    told = run("inspect", "--misses", "--format", "markdown").out
    assert "key-changed: the option -DN=\\_\\_X\\_\\_ -> f\\<int>" in told
    lines = run("inspect", "--stats", "--format", "markdown").out.splitlines()
    assert (
        "| program | hits | misses | compile time of hits |" in lines and "| --- | --: | --: | --: |" in lines
    )
    assert "| a\\|b | 3 | 0 | 2.50 s |" in lines


def test_a_form_of_another_verb_is_refused(run: Run) -> None:
    """Prometheus' text is of counters, and --zero of --stats."""
    for words in ("verify --format prometheus", "inspect --format prometheus", "inspect --zero"):
        assert run(*words.split()).code == 2
    assert run("verify", "--format", "json", "--root", "/nowhere").document["error"]


def test_colours_are_as_asked(run: Run, store: DirectoryStore) -> None:
    """A pipe has colours only with --color always."""
    assert "\x1b[" in run("inspect", "--stats", "--color", "always").out
    assert "\x1b[" not in run("inspect", "--stats", "--color", "auto").out


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("python app.py 3", "app.py"),
        ("/usr/bin/python3 -u /srv/app.py", "app.py"),
        ("python -m pkg.tool x", "pkg.tool"),
        ("python -W ignore -X dev app.py", "app.py"),
        ("python -c code", "python"),
        ("./sim input", "sim"),
        ("python", "python"),
    ],
)
def test_a_script_gives_its_name(words: str, name: str) -> None:
    """A command of Python is known by its script or module."""
    assert command_name(words.split()) == name
