"""JSON documents have exactly the promised names, for every verb."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpucache.answers.document import SCHEMA, Key, keys, record_name
from gpucache.answers.schema import ANSWERS, Document, Error, records
from gpucache.recording.builds import Seen
from gpucache.recording.writing import Writer
from gpucache.remote.removal import SIGN, SIGN_TEXT
from tests.children import run_python
from tests.fleets import asked, device_of, gpu_machine, recorded
from tests.patience import PATIENCE_S
from tests.recording.builds import ONE

if TYPE_CHECKING:
    from gpucache.model import Device
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
    """The outcomes and the summary of a document, which has exactly the keys of its schema."""
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


@pytest.fixture
def here(mixed: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with sources, a recording, a profile, a cache of SYCL and a store."""
    shutil.copytree(mixed.sources, tmp_path / "sources")
    Writer(tmp_path / "recording").build(ONE, Seen(frozenset({("twice", (8,))})), {})
    (tmp_path / "recording" / "0.jsonl").write_text("half a li")
    (tmp_path / "sycl").mkdir()
    (tmp_path / "given/entries/00").mkdir(parents=True)
    (tmp_path / "given/entries/00" / f"{'0' * 64}-unsigned").touch()
    (tmp_path / "given" / SIGN).write_bytes(SIGN_TEXT)
    (tmp_path / "f.cu").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# The form of a command on the filled cache, the number of its outcomes, and values of its summary.
DOCUMENTS: dict[str, tuple[str, int | None, dict[str, object]]] = {
    "devices": ("devices", None, {}),
    "inspect": ("inspect", 0, {"entries": 4, "programs": 2, "damaged": 0}),
    "inspect --list": ("inspect --list", 4, {"entries": 4}),
    "inspect twice.cu": ("inspect WHAT", 2, {"entries": 2}),
    "inspect cuda:sm_90 --extract x": ("inspect WHAT --extract FILE", 1, {"file": "x"}),
    "inspect --cache pocl": ("inspect --cache NAME", 0, {}),
    "inspect --misses": ("inspect --misses", 0, {"count": 0}),
    "inspect --recording recording": ("inspect --recording DIR", 1, {"builds": 1}),
    "inspect --why sources/twice.cu --target cuda:sm_90": ("inspect --why SOURCE", 1, {"hits": 1}),
    "inspect --why sources/twice.cu --target cuda:sm_90 -D N": ("inspect --why SOURCE", 1, {"misses": 1}),
    "inspect --why --cache sycl:sycl --want device=GPU": (
        "inspect --why --want FIELD=VALUE", 1, {"misses": 1},
    ),
    "verify": ("verify", 0, {"checked": 4, "sound": 4, "findings": 0}),
    "evict --all --dry-run": ("evict --dry-run", 4, {"would_remove": 4}),
    "push store --dry-run": ("push URL", 4, {"would_send": 4, "sent": 0, "findings": []}),
    "pull given --cache triton:none": ("pull URL", 0, {"pulled": 0, "groups": []}),
    "key new.key": ("key FILE", 0, {"name": "new", "files": ["new.key", "new.key.pub"]}),
    "export futhark f.cache f.cu --target cuda:sm_90": (
        "export FORMAT OUT SOURCE", 1, {"entries": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("line", DOCUMENTS)
def test_a_document_holds_what_its_schema_says(run: Run, mixed: Filled, here: Path, line: str) -> None:
    """Every verb's document has exactly the keys and forms that gpucache-json(5) lists."""
    asked, count, expected = DOCUMENTS[line]
    rows, summary = _hold(run("--json", *line.split(), at=mixed.root).document, asked)
    assert count is None or len(rows) == count
    assert {name: summary[name] for name in expected} == expected


def test_two_machines(run: Run, tmp_path: Path) -> None:
    """Outcomes of a comparison are the fields that differ, each with the target it is of."""
    here, other = tmp_path / "here.json", tmp_path / "other.json"
    assert run("devices", "--save", here).code == 0
    other.write_text(
        re.sub("Portable Computing Language", "Another Language", here.read_text("utf-8")), "utf-8"
    )
    asked = ("--json", "devices", "--compare", here, other)
    rows, summary = _hold(run(*asked).document, "devices --compare A B")
    assert summary["differences"] == len(rows) > 0


def test_warm(mixed: Filled) -> None:
    """Outcomes of warm are items; only one that was built has a size and a time."""
    rows, _ = _hold(mixed.answer.document, "warm")
    for row in rows:
        built = row["result"] == "built"
        assert (row["size_bytes"] is not None) is (row["compile_ms"] is not None) is built


def test_a_fleet(run: Run, tmp_path: Path, devices: Sequence[Device], nvrtc: str) -> None:
    """Outcomes are builds with their machines; the summary has every machine and the commands."""
    build = asked("one", device_of(nvrtc, devices))
    recording, profile = recorded(tmp_path / "recording", [build]), tmp_path / "node.json"
    gpu_machine(profile, devices, "sm_90")
    options = ("--check", "--recording", recording, "--device-profile", profile)
    document = run("--json", "warm", *options).document
    _, summary = _hold(document, "warm --check --recording DIR --device-profile FILE")
    assert summary["machines"] and summary["commands"]


def test_why_of_two_keys(run: Run, mixed: Filled) -> None:
    """Two keys are compared field by field."""
    keys = [row["key"] for row in run("--json", "inspect", "twice.cu", at=mixed.root).document["outcomes"]]
    asked = ("--json", "inspect", "--why", *keys)
    assert _hold(run(*asked, at=mixed.root).document, "inspect --why KEY KEY")[0]


def test_what_is_damaged_and_then_removed(run: Run, cache: Path, entries: Files) -> None:
    """Findings and removals match their schemas."""
    entries(cache)[0].write_bytes(b"")
    rows, summary = _hold(run("--json", "verify").document, "verify")
    assert (len(rows), summary["sound"], summary["findings"]) == (1, 3, 1)
    rows, summary = _hold(run("--json", "evict", "--all", "--yes").document, "evict")
    assert all(row["removed"] for row in rows) and (summary["removed"], summary["kept"]) == (4, 0)


@pytest.mark.slow
def test_after_misses(run: Run, root: Path, write: Write, nvrtc: str, tmp_path: Path) -> None:
    """Misses, processes, advice, the runs of a command and the cases of bench match their schemas."""
    source = write({"f.cu": SOURCE})
    for options in ((), ("-D", "N=1"), ("-D", "N=2")):
        assert run("warm", source, "--target", nvrtc, *options).code == 0
    program = f"compile_program({SOURCE!r}, target='sm_90', options=['-DN=3'], name='f.cu')"
    environment = {**os.environ, "GPUCACHE_DIR": str(root)}
    run_python("-c", f"from gpucache.cuda import compile_program; {program}", env=environment)
    _, summary = _hold(run("--json", "inspect").document, "inspect")
    assert summary["misses"][0]["differences"] and summary["processes"] and summary["advice"]
    (miss,), _ = _hold(run("--json", "inspect", "--misses").document, "inspect --misses")
    assert (miss["program"], miss["verdict"]) == ("f.cu", "key-changed")
    warm = (sys.executable, "-m", "gpucache", "warm", source, "--target", nvrtc)
    answer = run("--json", "warm", "--into", tmp_path / "into", "--", *warm, at=None)
    rows, summary = _hold(answer.document, "warm -- COMMAND")
    assert summary["settled"] and rows[0]["added"] and not rows[-1]["added"]
    bench = ("--json", "bench", source, "--target", nvrtc, "--runs", "1", "--against", "cuda.core")
    ((case,), _) = _hold(run(*bench).document, "bench")
    assert case["cold"] and case["warm"] and case["ratio"] and case["phases"] and case["arms"]


@pytest.mark.slow
def test_bench_of_checks(run: Run, intel: str) -> None:
    """Outcomes are kernels with a ratio for each mode, and the summary has the mean of each target."""
    answer = run("--json", "bench", "--checks", "--target", intel, "--runs", "1")
    kernels, summary = _hold(answer.document, "bench --checks")
    assert (answer.code, [one["error"] for one in kernels]) == (0, [""] * 6)
    assert [one["target"] for one in summary["means"]] == [intel]


def test_an_error(run: Run) -> None:
    """A command that cannot run returns the error and its exit code."""
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
    """A file name that is not UTF-8 breaks neither the document nor the text."""
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
    """A document whose reader has gone ends the command silently, with exit 0."""
    command = [sys.executable, "-m", "gpucache", "--root", str(mixed.root), "--json", "inspect", "--list"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stderr is not None
        child.stdout.close()
        assert (child.stderr.read(), child.wait(PATIENCE_S)) == (b"", 0)
