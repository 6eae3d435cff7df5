"""``gpucache warm`` on real compilers."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpucache.engine.workers.pool import Bounds, run_isolated
from tests.store.conftest import left

if TYPE_CHECKING:
    from tests.cli.conftest import Answer, Filled, Run

Write = Callable[..., Path]
Files = Callable[[Path], list[Path]]
VECTOR = 'extern "C" __global__ void vector(float *a) { a[threadIdx.x] += 1; }\n'


def _results(answer: Answer) -> dict[tuple[str, str], str]:
    return {(row["program"], row["target"]): row["result"] for row in answer.document["outcomes"]}


@pytest.fixture
def bounds(monkeypatch: pytest.MonkeyPatch) -> list[Bounds]:
    """The bounds of the workers, each time some were started."""
    seen: list[Bounds] = []

    def record(function: Any, items: Sequence[Any], given: Bounds, running: Any) -> Iterator[Any]:
        seen.append(given)
        return run_isolated(function, items, given, running)

    monkeypatch.setattr("gpucache.engine.warm.rounds.run_isolated", record)
    return seen


def test_a_folder_is_built_for_every_target_at_once(
    mixed: Filled, pocl: str, intel: str, nvrtc: str, entries: Files
) -> None:
    """Every source below a directory is built for each target of its language, broken ones failing alone.

    Their compilers' messages have the user's names, and nothing is left behind.
    """
    assert mixed.answer.code == 3
    assert _results(mixed.answer) == {
        ("twice.cl", pocl): "built",
        ("twice.cl", intel): "built",
        ("twice.cu", nvrtc): "built",
        ("twice.cu", "cuda:compute_80"): "built",
        ("sub/bad.cl", pocl): "failed",
        ("sub/bad.cl", intel): "failed",
        ("sub/bad.cu", nvrtc): "failed",
        ("sub/bad.cu", "cuda:compute_80"): "failed",
    }
    for row in (row for row in mixed.answer.document["outcomes"] if row["result"] == "failed"):
        assert f"{row['program']}:1" in row["log"] or f"{row['program']}(1)" in row["log"]
        assert row["program"] in row["reason"]
        assert not any(trace in row["log"] for trace in ("/tmp", "gpucache-", "default_program", ".tmp"))
    modes = [(stat.S_IMODE(one.stat().st_mode), one.stat().st_uid) for one in entries(mixed.root)]
    assert modes == [(0o600, os.geteuid())] * 4
    assert not left(mixed.root)


def test_a_second_run_asks_no_driver(
    run: Run, write: Write, nvrtc: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The targets that the first run found are reused while their compiler is the same."""
    source = write({"k.cu": VECTOR}) / "k.cu"
    assert run("warm", source, "--target", nvrtc).code == 0
    monkeypatch.setattr("gpucache.probe.ask.ask", lambda *_, **__: pytest.fail("a driver was asked"))
    answer = run("--json", "warm", source, "--target", nvrtc)
    assert list(_results(answer).values()) == ["hit"]


def test_a_hit_survives_a_move_of_the_tree(
    run: Run, cache: Path, mixed: Filled, tmp_path: Path, pocl: str, no_workers: None
) -> None:
    """A copy of the sources elsewhere, with new times, hits the original's builds."""
    moved = tmp_path / "moved"
    shutil.copytree(mixed.sources, moved, copy_function=shutil.copyfile)
    options = ["--target", "cuda:sm_90", "--target", pocl, "--local-size", "64"]
    answer = run("--json", "warm", moved / "twice.cu", moved / "twice.cl", *options)
    assert set(_results(answer).values()) == {"hit"}


def test_where_headers_are_searched_is_told_to_who_asks(run: Run, cache: Path, mixed: Filled) -> None:
    """With -v the directories that are searched for headers are printed on stderr."""
    answer = run("warm", mixed.sources, "--target", "cuda:sm_90", "--check", "-v")
    folders = f"-I {mixed.sources / 'sub'}, -I {mixed.sources}"
    assert answer.err == f"Searching for headers in each source's own directory first: {folders}\n"


def test_check_changes_nothing(run: Run, root: Path, write: Write, nvrtc: str) -> None:
    """An empty cache is exit 3, a filled one 0; a check updates no last use and notes nothing."""
    source = write({"vector.cu": VECTOR}) / "vector.cu"
    command = ("--json", "warm", source, "--target", nvrtc)
    before = run(*command, "--check")
    (row,) = before.document["outcomes"]
    assert (before.code, row["result"], row["verdict"]) == (3, "missing", "never-built")
    assert not root.exists()
    assert run(*command).code == 0

    def held() -> dict[Path, tuple[int, int]]:
        return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in root.rglob("*")}

    files = held()
    assert [run(*command, "--check", *more).code for more in ((), ("-D", "N=2"))] == [0, 3]
    assert held() == files


def test_a_program_without_a_kernel_is_told(run: Run, write: Write, nvrtc: str) -> None:
    """A template without a named instance is built and kept, and every run says that the name is missing."""
    source = write({"show.cu": "template <class T> __global__ void show(T *out) { *out = 7; }"}) / "show.cu"
    for _ in ("built", "found"):
        answer = run("warm", source, "--target", nvrtc)
        assert answer.code == 0
        assert "show.cu for cuda:sm_90: no kernels; if they are templates" in answer.out
        assert "name their instances with --name-expression" in " ".join(answer.out.split())
    named = run("warm", source, "--target", nvrtc, "--name-expression", "show<int>")
    assert (named.code, "no kernel" in named.out) == (0, False)


def test_a_changed_header_is_named_by_check(run: Run, cache: Path, mixed: Filled, tmp_path: Path) -> None:
    """After a header changed, the miss names that header as the key field that changed."""
    changed = tmp_path / "changed"
    shutil.copytree(mixed.sources, changed)
    (changed / "factor.h").write_text("#define FACTOR 3\n", encoding="utf-8")
    answer = run("--json", "warm", "--check", changed / "twice.cu", "--target", "cuda:sm_90")
    (row,) = answer.document["outcomes"]
    assert (answer.code, row["verdict"]) == (3, "key-changed")
    assert "the header factor.h changed" in row["reason"]


def test_cuda_without_a_target_is_skipped_with_the_remedy(run: Run, write: Write, devices: Any) -> None:
    """Without a CUDA device no target is guessed: the item is skipped, and the exit code is 4."""
    if any(device.backend == "cuda" and device.present and device.available for device in devices):
        pytest.skip("a CUDA device is here")
    answer = run("--json", "warm", write({"vector.cu": VECTOR}))
    (row,) = answer.document["outcomes"]
    assert (answer.code, row["result"], row["target"]) == (4, "skipped", None)
    assert "--target cuda:sm_90" in row["reason"]


def test_a_manifest_says_how_each_program_is_built(run: Run, write: Write, nvrtc: str) -> None:
    """Variants, defines and targets of a manifest become one item each, named by their differences."""
    manifest = """
[defaults]
targets = ["cuda:sm_90"]
[[program]]
source = "scale.cu"
name = "scale"
defines = { TYPE = "float" }
variants = { N = [2, 3] }
"""
    source = 'extern "C" __global__ void scale(TYPE *a) { a[threadIdx.x] *= N; }\n'
    folder = write({"gpucache.toml": manifest, "scale.cu": source})
    rows = run("--json", "warm", "--manifest", folder / "gpucache.toml").document["outcomes"]
    assert [(row["program"], row["variant"], row["result"]) for row in rows] == [
        ("scale", "N=2", "built"),
        ("scale", "N=3", "built"),
    ]
    assert len({row["key"] for row in rows}) == 2


@pytest.mark.slow
def test_the_command_line_adds_to_every_program(run: Run, write: Write, nvrtc: str) -> None:
    """-D, -I and --option reach the compiler, and each of them makes another key."""
    source = '#include "n.h"\nextern "C" __global__ void f(int *a) { *a = N + M; }\n'
    folder = write({"f.cu": source, "include/n.h": "#define N 1\n"})
    command = ["--json", "warm", folder / "f.cu", "--target", nvrtc, "-I", folder / "include"]
    keys = set()
    for more in (["-D", "M=1"], ["-DM=2"], ["-D", "M=1", "--option=--use_fast_math"]):
        (row,) = run(*command, *more).document["outcomes"]
        assert row["result"] == "built"
        keys.add(row["key"])
    assert len(keys) == 3


def test_quiet_says_only_what_failed(run: Run, cache: Path, mixed: Filled) -> None:
    """With --quiet hits print nothing, and each failure is one sentence on stderr."""
    answer = run("warm", "-q", mixed.sources, "--target", "cuda:sm_90")
    told = "gpucache: sub/bad.cu for cuda:sm_90: sub/bad.cu does not compile\n"
    assert (answer.code, answer.out, answer.err) == (3, "", told)


def test_jobs_and_timeout_bound_the_workers(run: Run, write: Write, nvrtc: str, bounds: list[Bounds]) -> None:
    """Workers get --jobs and --timeout, and each has a bound on its memory."""
    run("warm", write({"vector.cu": VECTOR}), "--target", nvrtc, "--jobs", "3", "--timeout", "77")
    (given,) = bounds
    assert (given.jobs, given.timeout_s) == (3, 77.0)
    assert given.memory_bytes is not None


def test_shared_entries_can_be_read_by_everyone(
    run: Run, root: Path, write: Write, nvrtc: str, entries: Files
) -> None:
    """A shared cache has entries that any user may read and none may write, and no mark for archivers."""
    run("warm", "--shared", write({"vector.cu": VECTOR}), "--target", nvrtc)
    (entry,) = entries(root)
    assert stat.S_IMODE(entry.stat().st_mode) == 0o644
    assert stat.S_IMODE(entry.parent.stat().st_mode) == 0o755
    assert not (root / "CACHEDIR.TAG").exists()


def test_a_system_root_is_hit_and_not_copied(
    run: Run, mixed: Filled, root: Path, monkeypatch: pytest.MonkeyPatch, no_workers: None
) -> None:
    """An entry of a system root is a hit for a user whose own root is empty."""
    monkeypatch.setenv("GPUCACHE_SYSTEM_DIRS", str(mixed.root))
    answer = run("--json", "warm", mixed.sources / "twice.cu", "--target", "cuda:sm_90")
    assert answer.document["outcomes"][0]["result"] == "hit"
    assert not list(root.rglob("*.gpc"))


def test_a_bound_is_kept_after_publishing(
    run: Run, cache: Path, write: Write, nvrtc: str, entries: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With GPUCACHE_MAX_SIZE set, a new build evicts the least recently used entries."""
    for entry in entries(cache):
        os.utime(entry, (10**9, 10**9))
    monkeypatch.setenv("GPUCACHE_MAX_SIZE", "16K")
    assert run("warm", write({"vector.cu": VECTOR}), "--target", nvrtc).code == 0
    (left,) = run("--json", "inspect", "--list").document["outcomes"]
    assert left["program"] == "vector.cu"


@pytest.mark.slow
def test_each_program_gets_its_own_local_sizes(run: Run, write: Write, pocl: str, root: Path) -> None:
    """A worker that built for one local size builds the next program for the sizes that one declares."""
    folder = write(
        {
            "one.cl": "__kernel void one(__global float *a) { a[get_global_id(0)] *= 2; }\n",
            "two.cl": "__kernel void two(__global float *a) { a[get_global_id(1)] *= 2; }\n",
            "gpucache.toml": '[[program]]\nsource = "one.cl"\nlocal_sizes = [[64]]\n'
            '[[program]]\nsource = "two.cl"\nlocal_sizes = [[16, 16]]\n',
        }
    )
    answer = run("warm", "--manifest", folder / "gpucache.toml", "--target", pocl, "--jobs", "1")
    assert answer.code == 0, answer.out
    payloads = {name: _payload(run, name, root) for name in ("one.cl", "two.cl")}
    assert b"64-1-1-goffs0-smallgrid" in payloads["one.cl"]
    assert b"16-16-1-goffs0-smallgrid" in payloads["two.cl"]
    assert b"64-1-1-goffs0" not in payloads["two.cl"]


def _payload(run: Run, program: str, root: Path) -> bytes:
    file = root.parent / f"{program}.bin"
    assert run("inspect", program, "--extract", file).code == 0
    return file.read_bytes()


def test_what_is_evicted_at_once_is_told(
    run: Run, write: Callable[..., Path], nvrtc: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build that is gone at the end is missing, with the limit that removed it, and exit 3."""
    monkeypatch.setenv("GPUCACHE_MAX_SIZE", "9K")
    sources = write({f"{name}.cu": VECTOR.replace("vector", name) for name in "abc"})
    answer = run("warm", sources, "--target", nvrtc, "--jobs", "1", "--json")
    results = sorted(outcome["result"] for outcome in answer.document["outcomes"])
    assert answer.code == 3 and results == ["built", "missing", "missing"]
    gone = next(one for one in answer.document["outcomes"] if one["result"] == "missing")
    assert gone["verdict"] == "evicted" and "GPUCACHE_MAX_SIZE" in gone["reason"]


def test_an_entry_has_one_size_everywhere(run: Run, cache: Path, mixed: Filled) -> None:
    """Built, hit, listed and planned for eviction: each shows the blocks that the entry takes on disk."""
    built = _sizes(mixed.answer.document)
    assert len(built) > 3
    assert built == _sizes(run("inspect", "--list", "--json").document)
    assert built == _sizes(run("evict", "--all", "--dry-run", "--json").document)
    hits = run("warm", mixed.sources, "--target", "cuda:sm_90", "--check", "--json").document
    assert _sizes(hits).items() <= built.items()


def _sizes(document: Any) -> dict[str, int]:
    outcomes = (one for one in document["outcomes"] if one["size_bytes"] is not None)
    return {one["key"]: one["size_bytes"] for one in outcomes}


def test_a_source_that_is_too_large_fails_alone(run: Run, write: Write, nvrtc: str) -> None:
    """A file of more than 64 MiB is not a program, and its neighbours are built."""
    folder = write({"vector.cu": VECTOR, "large.cu": ""})
    os.truncate(folder / "large.cu", (64 << 20) + 1)
    answer = run("--json", "warm", str(folder), "--target", nvrtc)
    assert answer.code == 3
    assert _results(answer) == {("large.cu", nvrtc): "failed", ("vector.cu", nvrtc): "built"}
    reasons = [row["reason"] for row in answer.document["outcomes"] if row["result"] == "failed"]
    assert "is larger than 64.0 MiB" in reasons[0]
    assert run("--json", "warm", "--check", str(folder), "--target", nvrtc).code == 3


NAME = "a\x1b[31m\nFAKE\x9b31m\r\u202e.cu"


@pytest.mark.skipif(os.name != "posix", reason="no other system has such names")
def test_a_name_neither_breaks_a_line_nor_moves_a_cursor(run: Run, write: Write, nvrtc: str) -> None:
    """Names of files, of targets and of entries are always shown on one line."""
    folder = write({NAME: VECTOR, f"bad{NAME}": "no\n"})
    source = str(folder / NAME)
    for arguments in (
        ("-v", "warm", str(folder), "--target", nvrtc),
        ("-v", "warm", source, "--target", nvrtc),
        ("--quiet", "warm", str(folder), "--target", nvrtc),
        ("warm", "--check", str(folder), "--target", nvrtc, "-D", "X=1\nFAKE"),
        ("inspect", "--list"),
        ("inspect", "--misses"),
        ("inspect", NAME),
        ("inspect", "--why", source, "--target", nvrtc, "-D", "X=7"),
        ("verify", NAME),
        ("evict", "--dry-run", "--all"),
        ("-v", "evict", "--program", NAME, "--yes"),
    ):
        answer = run(*arguments)
        told = answer.out + answer.err
        assert not {*"\x1b\x9b\r\u202e"} & set(told), arguments
        assert not any(line.lstrip().startswith("FAKE") for line in told.splitlines()), (arguments, told)


@pytest.mark.parametrize(("platform", "suffix"), [("intel", "cl"), ("pocl", "cl"), ("nvrtc", "cu")])
@pytest.mark.parametrize("option", ["-D1A=3", "-frobnicate"])
def test_a_wrong_option_is_not_blamed_on_the_source(
    run: Run, write: Write, request: pytest.FixtureRequest, platform: str, suffix: str, option: str
) -> None:
    """The compiler's message follows."""
    target = request.getfixturevalue(platform)
    source = write({f"plain.{suffix}": "void nothing() {}"}) / f"plain.{suffix}"
    answer = run("warm", source, "--target", target, f"--option={option}")
    assert answer.code == 3
    assert (
        f"a build option of {source.name} is not valid" in answer.out and "does not compile" not in answer.out
    )


def test_parts_are_apart_and_together_all(run: Run, write: Write, nvrtc: str) -> None:
    """Every program is of one part, whichever machine asks, and a part that is none is refused."""
    folder = write({f"k{one}.cu": f'extern "C" __global__ void k{one}() {{}}\n' for one in range(9)})
    found = []
    for part in (1, 2, 3):
        document = run("warm", folder, "--target", nvrtc, "--check", "--part", f"{part}/3", "--json").document
        found.append({row["program"] for row in document["outcomes"]})
    assert len(set.union(*found)) == sum(map(len, found)) == 9
    assert run("warm", folder, "--target", nvrtc, "--part", "4/3").code == 2
    (folder / "alone").mkdir()
    (folder / "k0.cu").rename(folder / "alone/k0.cu")
    said = [run("warm", folder / "alone", "--target", nvrtc, "--part", f"{part}/2").err for part in (1, 2)]
    assert sum("has nothing to build" in one for one in said) == 1
