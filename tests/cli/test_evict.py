"""``gpucache evict`` over a cache with entries of several programs, targets and ages."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import PIPE, Popen
from typing import TYPE_CHECKING
from unittest.mock import ANY

import pytest

from gpucache.store.directory import DirectoryStore
from gpucache.store.scan import allocated
from tests.caches.triton.build import KERNEL, put
from tests.cli.conftest import upgraded
from tests.faults.conftest import build_entry
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from tests.cli.conftest import Answer, Filled, Run

Files = Callable[[Path], list[Path]]
DAY_NS = 86_400 * 10**9


def _rows(answer: Answer) -> list[tuple[str, str]]:
    return sorted((row["program"], row["target"]) for row in answer.document["outcomes"])


@pytest.fixture
def aged(cache: Path) -> Mapping[str, Path]:
    """The files of the cache by target: last used today, 10, 20 and 30 days ago, in the order of targets."""
    store = DirectoryStore(cache, writable=True)
    by_target = {one.head.target: one.path for one in store.scan() if one.head is not None}
    now = time.time_ns()
    for days, target in enumerate(sorted(by_target)):
        used = now - days * 10 * DAY_NS
        os.utime(by_target[target], ns=(used, used))
    return dict(sorted(by_target.items()))


@pytest.fixture
def outdated(cache: Path, nvrtc: str) -> str:
    """The key of an older entry next to that of ``cuda:sm_90``, made by another toolchain 41 days ago."""
    return str(upgraded(cache, nvrtc).key)


def test_what_was_not_used_for_long_goes(run: Run, aged: Mapping[str, Path]) -> None:
    """--older-than removes entries whose last use is longer ago, and leaves the others."""
    answer = run("--json", "evict", "--older-than", "15d")
    assert [target for _, target in _rows(answer)] == sorted(list(aged)[2:])
    assert [path.exists() for path in aged.values()] == [True, True, False, False]


@pytest.mark.parametrize("option", ["--superseded", "--stale"])
def test_what_an_upgrade_left_behind_goes(run: Run, outdated: str, option: str) -> None:
    """The entry of the old toolchain is both superseded and stale; the new one stays."""
    answer = run("--json", "evict", option)
    (row,) = answer.document["outcomes"]
    assert (row["key"], row["rule"], row["removed"]) == (outdated, option.removeprefix("--"), True)
    assert answer.document["summary"]["kept"] == 4


@pytest.mark.parametrize("option", ["--superseded", "--stale"])
def test_what_another_environment_hits_stays(run: Run, cache: Path, outdated: str, option: str) -> None:
    """The older toolchain may be that of another virtual environment, whose program hit its entry today."""
    (path,) = cache.rglob(f"{outdated}.gpc")
    os.utime(path)
    assert run("--json", "evict", option).document["outcomes"] == []


@pytest.mark.parametrize("option", ["--superseded", "--stale"])
def test_what_other_users_may_hit_stays(run: Run, cache: Path, outdated: str, option: str) -> None:
    """Users of a shared root cannot record that they hit an entry."""
    (cache / "v1" / "entries").chmod(0o755)
    assert run("--json", "evict", option).document["outcomes"] == []


@pytest.mark.parametrize(
    "line",
    [
        "inspect", "inspect --list", "inspect --cache all", "verify", "verify --cache all",
        "evict --max-size 5G", "evict --stale", "evict --cache all --max-size 5G", "push store",
        "push store --cache all",
    ],
)  # fmt: skip
@pytest.mark.parametrize("named", ["--root", "GPUCACHE_DIR"])
def test_a_root_that_was_mistyped_is_an_error(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, named: str
) -> None:
    """Else a timer stays green while the disk fills. Programs make that of the variable, which may be new."""
    missing = str(tmp_path / "typo")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUCACHE_DIR", missing)
    answer = run(*line.split(), at=Path(missing) if named == "--root" else None)
    if named == "GPUCACHE_DIR" and line.startswith(("inspect", "push")):
        told = f"gpucache: {missing} (GPUCACHE_DIR) does not exist yet, like an empty cache\n"
        assert (answer.code, answer.err.count(told)) == (0, 1)
    else:
        assert (answer.code, f"{missing} does not exist; check {named}" in answer.err) == (2, True)


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        (["--program", "twice.cl"], 2),
        (["--target", "cuda:sm_90"], 1),
        (["--target", "opencl:intel"], 1),
    ],
)
def test_programs_and_targets_can_be_named(run: Run, cache: Path, filters: list[str], count: int) -> None:
    """--program and --target take the names that inspect shows."""
    summary = run("--json", "evict", *filters).document["summary"]
    assert (summary["removed"], summary["kept"]) == (count, 4 - count)


def test_filters_are_joined_by_and(run: Run, aged: Mapping[str, Path]) -> None:
    """Only entries that every filter selects go: of two old entries the one for the named target."""
    target = list(aged)[3]
    answer = run("--json", "evict", "--older-than", "15d", "--target", target)
    assert [row["target"] for row in answer.document["outcomes"]] == [target]


def test_a_size_takes_the_least_recently_used_down_to_80_percent(run: Run, aged: Mapping[str, Path]) -> None:
    """Over the size the oldest go, one by one, until 80 % of it is met; not one more."""
    sizes = {target: path.stat().st_blocks * 512 for target, path in aged.items()}
    limit = sum(sizes.values()) - 1
    answer = run("--json", "evict", "--max-size", f"{limit}B")
    left, expected = sum(sizes.values()), []
    for target in reversed(list(aged)):
        if left <= 0.8 * limit:
            break
        expected.append(target)
        left -= sizes[target]
    assert [row["target"] for row in answer.document["outcomes"]] == expected
    assert answer.document["summary"]["kept_bytes"] == left


def test_under_the_size_nothing_goes(run: Run, cache: Path) -> None:
    """A size that is not exceeded removes nothing, even if 80 % of it is."""
    size = run("--json", "inspect").document["summary"]["size_bytes"]
    assert run("--json", "evict", "--max-size", f"{size}B").document["summary"]["removed"] == 0


def test_the_size_of_the_settings_is_applied(
    run: Run, aged: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a filter GPUCACHE_MAX_SIZE is the limit."""
    monkeypatch.setenv("GPUCACHE_MAX_SIZE", "1")
    assert run("--json", "evict").document["summary"] == {
        "removed": 4,
        "stripped": 0,
        "freed_bytes": ANY,
        "kept": 0,
        "kept_bytes": 0,
        "left": [],
        "unread": [],
    }


@pytest.mark.parametrize("filters", [["--all"], ["--older-than", "15d"], ["--max-size", "1k"]])
def test_a_dry_run_removes_nothing(
    run: Run, cache: Path, aged: Mapping[str, Path], entries: Files, filters: list[str]
) -> None:
    """--dry-run shows the entries that a real run then removes, and leaves every file."""
    before = [entry.stat().st_mtime_ns for entry in entries(cache)]
    shown = run("--json", "evict", "--dry-run", *filters)
    assert [entry.stat().st_mtime_ns for entry in entries(cache)] == before
    assert shown.document["summary"]["removed"] == 0
    text = run("evict", "--dry-run", *filters).out
    done = run("--json", "evict", "--yes", *filters)
    assert _rows(done) == _rows(shown)
    assert all(row["key"][:12] in text and row["rule"] in text for row in done.document["outcomes"])
    assert shown.document["summary"]["would_free_bytes"] == done.document["summary"]["freed_bytes"]


def test_all_leaves_no_more_than_which_programs_there_were(run: Run, cache: Path, mixed: Filled) -> None:
    """Memos, journal and histories go with the entries, but a miss still says that they were evicted."""
    DirectoryStore(cache, writable=True).remember(64 * "a", b"a closure")
    answer = run("evict", "--all", "--yes")
    assert answer.code == 0 and answer.out.startswith("4 entries removed, ")
    assert answer.err.startswith("Also removed ")
    assert answer.err.endswith(": leftovers and all records; --misses and --stats begin anew.\n")
    left = {str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file()}
    assert left - {"v1/targets.json"} == {"CACHEDIR.TAG", "v1/removed.jsonl"}
    command = ("warm", "--check", mixed.sources / "twice.cu", "--target", "cuda:sm_90")
    (row,) = run("--json", *command).document["outcomes"]
    assert row["verdict"] == "evicted" and "--all" in row["reason"]


def test_what_was_evicted_says_so_when_it_is_missed(run: Run, cache: Path, mixed: Filled) -> None:
    """The next miss of an evicted entry names the eviction and its rule."""
    run("evict", "--target", "cuda:sm_90")
    answer = run("--json", "warm", "--check", mixed.sources / "twice.cu", "--target", "cuda:sm_90")
    (row,) = answer.document["outcomes"]
    assert row["verdict"] == "evicted" and "target cuda:sm_90" in row["reason"]


def test_damaged_entries_can_be_evicted(run: Run, cache: Path, entries: Files) -> None:
    """An entry that cannot be parsed is not an obstacle to removing all."""
    entries(cache)[0].write_bytes(b"nonsense")
    assert run("evict", "--all", "--yes").code == 0
    assert entries(cache) == []


def test_a_read_only_cache_is_not_evicted_from(
    run: Run, cache: Path, entries: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With GPUCACHE_READ_ONLY nothing goes, and the command says why with exit 5."""
    monkeypatch.setenv("GPUCACHE_READ_ONLY", "1")
    answer = run("evict", "--all", "--yes")
    assert (answer.code, len(entries(cache))) == (5, 4)
    assert "GPUCACHE_READ_ONLY" in answer.err


def _driver_cache(root: Path) -> Path:
    """A cache of the CUDA driver, last written a day ago."""
    for name in ("index", "A/B/0000000000000c"):
        path = root / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(b"cubin")
        os.utime(path, (time.time() - 86_400,) * 2)
    return root


@pytest.mark.parametrize("options", [("--max-size", "1B"), ("--all", "--yes")])
def test_a_dry_run_says_what_a_run_does(options: tuple[str, str], run: Run, tmp_path: Path) -> None:
    """Also if the run refuses: a driver's cache goes whole or not at all, and not among foreign files."""
    jit = _driver_cache(tmp_path / "jit")
    (jit / "thesis.tex").write_text("a year of work")
    asked = ("--json", "evict", "--cache", f"cuda:{jit}", *options)
    planned, done = run(*asked, "--dry-run"), run(*asked)
    assert planned.code == done.code == 3
    assert planned.document["outcomes"] == done.document["outcomes"]
    assert planned.document["outcomes"][0]["kept_because"]
    assert (jit / "thesis.tex").exists() and (jit / "A" / "B" / "0000000000000c").exists()


@pytest.mark.parametrize("filters", [("--max-size", "1B"), ("--older-than", "0s")])
def test_a_filter_for_other_systems_asks_on_a_terminal(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filters: tuple[str, str]
) -> None:
    """Their entries are not ours to remove unasked; a timer has no terminal."""
    place = put(tmp_path / "triton")
    asked = io.StringIO("n\n")
    monkeypatch.setattr(asked, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", asked)
    line = ("evict", "--cache", f"triton:{tmp_path / 'triton'}", *filters)
    answer = run(*line)
    assert answer.code != 0 and f"triton in {tmp_path / 'triton'}: 1 entry" in answer.err
    assert place.exists()
    assert run(*line, "--yes").code == 0
    assert not place.exists()


def test_unlike_compares_fields_of_our_own_entries(run: Run, cache: Path) -> None:
    """Our own entries have their toolchain's fields; an unknown field is an error with the known ones."""
    going = run("evict", "--unlike", "NVRTC version=0", "--dry-run", "--json").document["outcomes"]
    assert going and all(one["target"].startswith("cuda:") for one in going)
    answer = run("evict", "--unlike", "nvrtc=13", "--dry-run")
    assert answer.code == 2 and "--unlike takes one of" in answer.err and "NVRTC version" in answer.err


def test_a_cache_that_is_named_twice_is_one(run: Run, cache: Path) -> None:
    """A cache that several names lead to is shown, checked and evicted once."""
    once = run("inspect", "--list", "--json", "--cache", "all").document["outcomes"]
    twice = run("inspect", "--list", "--json", "--cache", "gpucache", "--cache", "all").document["outcomes"]
    assert once == twice and {one["cache"] for one in once} >= {"gpucache"}
    state = run("inspect", "--json", "--cache", "gpucache", "--cache", "all").document["summary"]
    assert state["cache"] == "gpucache" and "gpucache" not in [one["cache"] for one in state["caches"]]


@pytest.mark.slow
def test_two_evictions_at_once_remove_each_entry_once(tmp_path: Path) -> None:
    """An entry removed by the other run is neither counted twice nor kept, and both end well."""
    store = DirectoryStore(tmp_path, writable=True)
    for number in range(300):
        store.publish(build_entry(str(number)))
    command = [sys.executable, "-m", "gpucache", "--root", str(tmp_path), "--json", "evict", "--all", "--yes"]
    both = [Popen(command, stdout=PIPE, text=True) for _ in range(2)]
    said = [json.loads(one.communicate(timeout=PATIENCE_S)[0])["summary"] for one in both]
    assert [one.returncode for one in both] == [0, 0]
    assert (sum(one["removed"] for one in said), [one["kept"] for one in said]) == (300, [0, 0])
    assert list(store.scan()) == []


def test_records_give_way_to_a_limit(run: Run, cache: Path) -> None:
    """Files next to the entries are shown, and removed beyond a quarter of the limit; entries, rows stay."""
    store = DirectoryStore(cache, writable=True)
    for number in range(40):
        store.remember(f"{number:064x}", b"a closure")
    before = run("--json", "inspect").document["summary"]
    answer = run("evict", "--max-size", f"{before['size_bytes']}B")
    after = run("--json", "inspect").document["summary"]
    rows_bytes = allocated((cache / "v1" / "records.row").stat())
    assert before["beside_bytes"] > before["size_bytes"] / 4 >= after["beside_bytes"] - rows_bytes
    assert before["entries"] == after["entries"]
    assert ": leftovers and the oldest records." in answer.err
    assert run("evict", "--max-size", f"{before['size_bytes']}B").err == ""


def test_keep_binaries_leaves_what_programs_load(run: Run, tmp_path: Path) -> None:
    """A dry run predicts the freed size; a second run finds no more; a system without such files refuses."""
    place = put(tmp_path)
    before = {path.name for path in place.iterdir()}
    command = ("--json", "evict", "--keep-binaries", "--cache", f"triton:{tmp_path}")
    foreseen = run(*command, "--dry-run").document["summary"]
    assert {path.name for path in place.iterdir()} == before and foreseen["would_strip"] == 1
    done = run(*command)
    (row,) = done.document["outcomes"]
    assert (row["stripped"], row["removed"], row["rule"]) == (True, False, "--keep-binaries")
    assert done.document["summary"]["freed_bytes"] == foreseen["would_free_bytes"] > 0
    assert before - {path.name for path in place.iterdir()} == {f"{KERNEL}.source", f"{KERNEL}.ttir"}
    assert run(*command).document["summary"]["stripped"] == 0
    for refused in (("--all", "--cache", f"triton:{tmp_path}"), ("--cache", f"numba:{tmp_path}"), ()):
        assert run("evict", "--keep-binaries", *refused).code == 2
