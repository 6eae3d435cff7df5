"""The documents for machines: exactly the names that are promised, whatever the verb."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpucache.answers.document import SCHEMA, Key, keys, record_name
from gpucache.answers.schema import ANSWERS, Document, Error, records
from gpucache.answers.warm import WarmResult
from gpucache.recording.builds import Seen
from gpucache.recording.writing import Writer
from tests.patience import PATIENCE_S
from tests.recording.builds import ONE

if TYPE_CHECKING:
    from tests.cli.conftest import Filled, Run

Write = Callable[..., Path]
Files = Callable[[Path], list[Path]]
RECORDS = {record_name(kind): keys(kind) for kind in records()}
ANSWERED = {answered.asked: answered for answered in ANSWERS}
PLAIN: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "number": (int, float),
    "true or false": (bool,),
    "anything": (object,),
}
SOURCE = 'extern "C" __global__ void f(int *a) { *a = 1; }\n'


def _hold(document: Any, asked: str) -> tuple[Any, Any]:
    """The outcomes and the summary of a document that holds what the schema says of it, and no more."""
    answered = ANSWERED[asked]
    _keys(document, keys(Document), asked)
    assert (document["schema"], document["command"]) == (SCHEMA, asked.split()[0])
    _keys(document["summary"], keys(answered.summary), asked)
    form = f"list of {record_name(answered.outcome)}" if answered.outcome else "list of nothing"
    _value(document["outcomes"], form, asked)
    return document["outcomes"], document["summary"]


def _keys(value: Any, keys: Sequence[Key], where: str) -> None:
    assert sorted(value) == sorted(key.name for key in keys), where
    for key in keys:
        _value(value[key.name], key.form.words, f"{where}: {key.name}")


def _value(value: Any, form: str, where: str) -> None:
    """Fail where a value is not of a form."""
    if form.endswith(" or null"):
        if value is not None:
            _value(value, form.removesuffix(" or null"), where)
    elif form.startswith("list of "):
        assert isinstance(value, list), where
        for one in value:
            _value(one, form.removeprefix("list of "), where)
    elif form.startswith("table of "):
        assert isinstance(value, dict), where
        for one in value.values():
            _value(one, form.removeprefix("table of "), where)
    elif form in PLAIN:
        assert isinstance(value, PLAIN[form]), (where, value)
        assert form != "number" or not isinstance(value, bool), where
    else:
        _keys(value, RECORDS[form], where)


def test_devices(run: Run) -> None:
    """Outcomes of devices are targets; the summary counts targets, devices and errors."""
    rows, summary = _hold(run("devices", "--json").document, "devices")
    assert summary["targets"] == sum(row["available"] for row in rows)


def test_two_machines(run: Run, tmp_path: Path) -> None:
    """Outcomes of a comparison are the fields that differ, each with the target it is of."""
    here, other = tmp_path / "here.json", tmp_path / "other.json"
    assert run("devices", "--save", here).code == 0
    other.write_text(
        re.sub("Portable Computing Language", "Another Language", here.read_text("utf-8")), "utf-8"
    )
    rows, summary = _hold(
        run("--json", "devices", "--compare", here, other).document, "devices --compare A B"
    )
    assert summary["differences"] == len(rows) > 0


def test_warm(mixed: Filled) -> None:
    """Outcomes of warm are items with what is known of each; the summary counts each result."""
    rows, summary = _hold(mixed.answer.document, "warm")
    for result in WarmResult:
        assert summary[result] == sum(row["result"] == result for row in rows)
    for row in rows:
        built = row["result"] == "built"
        assert (row["size_bytes"] is not None) is (row["compile_ms"] is not None) is built
        assert re.fullmatch(r"[0-9a-f]{64}", row["key"])


@pytest.mark.slow
def test_warm_by_a_command(run: Run, write: Write, tmp_path: Path, nvrtc: str) -> None:
    """Outcomes of warm with a command are its runs; the summary says whether they came to rest."""
    command = (sys.executable, "-m", "gpucache", "warm", write({"f.cu": SOURCE}), "--target", nvrtc)
    answer = run("--json", "warm", "--into", tmp_path / "into", "--", *command, at=None)
    rows, summary = _hold(answer.document, "warm -- COMMAND")
    assert summary["runs"] == len(rows) > 1
    assert summary["settled"] and rows[0]["added"] and not rows[-1]["added"]


def test_inspect_of_a_cache(run: Run, mixed: Filled, write: Write, nvrtc: str) -> None:
    """The state of a cache is a summary; its entries are outcomes when they are asked for."""
    _hold(run("--json", "inspect", at=mixed.root).document, "inspect")
    rows, _ = _hold(run("--json", "inspect", "--list", at=mixed.root).document, "inspect --list")
    assert len(rows) == 4
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row["created"]) for row in rows)


@pytest.mark.slow
def test_inspect_after_misses(run: Run, write: Write, nvrtc: str) -> None:
    """Misses, processes and advice stand in the summary; the misses alone are outcomes."""
    source = write({"f.cu": SOURCE})
    for options in ((), ("-D", "N=1"), ("-D", "N=2")):
        assert run("warm", source, "--target", nvrtc, *options).code == 0
    _, summary = _hold(run("--json", "inspect").document, "inspect")
    assert summary["misses"][0]["differences"] and summary["processes"] and summary["advice"]
    rows, summary = _hold(run("--json", "inspect", "--misses").document, "inspect --misses")
    assert len(rows) == summary["count"] == 3


def test_inspect_of_a_recording(run: Run, tmp_path: Path) -> None:
    """Every build of a recording is an outcome, and what does not read stands in the summary."""
    Writer(tmp_path / "recording").build(ONE, Seen(frozenset({("twice", (8,))})), {})
    (tmp_path / "recording" / "0.jsonl").write_text("half a li")
    answer = run("--json", "inspect", "--recording", tmp_path / "recording")
    rows, summary = _hold(answer.document, "inspect --recording DIR")
    assert len(rows) == summary["builds"] == len(summary["damage"]) == 1


def test_inspect_of_the_caches_of_others(run: Run) -> None:
    """The caches that are named are in the summary."""
    _, summary = _hold(run("--json", "inspect", "--cache", "pocl").document, "inspect --cache NAME")
    assert [one["cache"] for one in summary["caches"]] == ["pocl"]


def test_inspect_of_entries(run: Run, mixed: Filled, tmp_path: Path) -> None:
    """Entries that are selected carry their key fields; the one whose bytes are written is an outcome."""
    rows, _ = _hold(run("--json", "inspect", "twice.cu", at=mixed.root).document, "inspect WHAT")
    assert len(rows) == 2
    file = tmp_path / "twice.cubin"
    wanted = ("inspect", rows[0]["key"], "--extract", file)
    _, summary = _hold(run("--json", *wanted, at=mixed.root).document, "inspect WHAT --extract FILE")
    assert summary == {"file": str(file), "size_bytes": file.stat().st_size}


def test_why(run: Run, mixed: Filled, nvrtc: str) -> None:
    """Answers say of each program whether it would hit; two keys are compared field by field."""
    asked = ("--json", "inspect", "--why", mixed.sources / "twice.cu", "--target", nvrtc)
    for more, hits in (((), 1), (("-D", "N=1"), 0)):
        rows, summary = _hold(run(*asked, *more, at=mixed.root).document, "inspect --why SOURCE")
        assert (summary["hits"], bool(rows[0]["differences"])) == (hits, not hits)
    found = run("--json", "inspect", "twice.cu", at=mixed.root).document["outcomes"]
    keys = [row["key"] for row in found]
    rows, _ = _hold(run("--json", "inspect", "--why", *keys, at=mixed.root).document, "inspect --why KEY KEY")
    assert rows


def test_whether_another_cache_would_answer(run: Run, tmp_path: Path) -> None:
    """What --want asks of a cache is answered for each cache that is named."""
    (tmp_path / "sycl").mkdir()
    asked = ("--cache", f"sycl:{tmp_path / 'sycl'}", "--why", "--want", "device=GPU")
    rows, summary = _hold(run("--json", "inspect", *asked).document, "inspect --why --want FIELD=VALUE")
    assert (len(rows), summary["misses"]) == (1, 1)


def test_verify(run: Run, cache: Path, entries: Files) -> None:
    """Outcomes of verify are findings; the summary counts checked, sound and findings."""
    entries(cache)[0].write_bytes(b"")
    rows, summary = _hold(run("--json", "verify").document, "verify")
    assert len(rows) == 1
    assert (summary["checked"], summary["sound"], summary["findings"]) == (4, 3, 1)


def test_evict(run: Run, cache: Path) -> None:
    """Outcomes of evict are the entries it planned to remove, with the rule; planned or done."""
    rows, summary = _hold(run("--json", "evict", "--all", "--dry-run").document, "evict --dry-run")
    assert len(rows) == summary["would_remove"] == 4
    rows, summary = _hold(run("--json", "evict", "--all", "--yes").document, "evict")
    assert all(row["removed"] for row in rows)
    assert (summary["removed"], summary["kept"]) == (4, 0)


@pytest.mark.slow
def test_bench(run: Run, write: Write, nvrtc: str) -> None:
    """Outcomes of bench are cases: spreads in ms, a ratio of pairs, phases and the samples behind them."""
    source = write({"f.cu": SOURCE})
    asked = ("--json", "bench", source, "--target", nvrtc, "--runs", "1", "--against", "cuda.core")
    ((case,), _) = _hold(run(*asked).document, "bench")
    assert case["cold"] and case["warm"] and case["ratio"] and case["phases"] and case["arms"]


def test_bench_of_checks(run: Run, intel: str) -> None:
    """Outcomes are kernels with a ratio for each mode, and the summary has the mean of each target."""
    answer = run("--json", "bench", "--checks", "--target", intel, "--runs", "1")
    kernels, summary = _hold(answer.document, "bench --checks")
    assert (answer.code, [one["error"] for one in kernels]) == (0, [""] * 6)
    assert [one["target"] for one in summary["means"]] == [intel]


def test_export(run: Run, write: Write, tmp_path: Path, nvrtc: str) -> None:
    """The outcome of export is the file."""
    source = write({"f.cu": SOURCE}) / "f.cu"
    asked = ("--json", "export", "futhark", tmp_path / "f.cache", source, "--target", nvrtc)
    _, summary = _hold(run(*asked).document, "export FORMAT OUT SOURCE")
    assert summary == {"entries": 1}


def test_an_error(run: Run) -> None:
    """A command that cannot run answers with what is wrong and the exit code."""
    answer = run("--json", "inspect", "no-such-program")
    document = answer.document
    _keys(document.pop("error"), keys(Error), "error")
    assert answer.code == 2
    assert (document["outcomes"], document["summary"]) == ([], {})
    _keys(document, keys(Document), "error")


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
        assert child.wait(PATIENCE_S) == 0
