"""A PyOpenCL program with the library: hits that build nothing, and no failure because of the cache."""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from gpucache.keys import digest
from gpucache.model import Entry
from gpucache.native.locate import find
from gpucache.store.directory import DirectoryStore
from gpucache.store.interface import Found
from gpucache.store.root_file import members
from tests.children import run_python, run_text
from tests.pocl import need_pocl

pytestmark = pytest.mark.slow

_PROCESS = Path(__file__).with_name("library_process.py")
_PLATFORMS = {"pocl": "Portable Computing Language", "intel": "Intel(R) OpenCL"}
_SHOW = "kernel void show(global int *out) { out[get_global_id(0)] = V; }"
_FROM_HEADER = f'#include "value.h"\n{_SHOW}'
_HEADER = "#define V 7\n"

_EARLY = """
import json, sys
import pyopencl as cl
from gpucache.backends.opencl import platforms
platforms._IMPLEMENTATIONS.clear()  # PoCL as a compiler of which nothing is known, and so not that it is late
from gpucache.opencl import build_program
context = cl.Context(next(each for each in cl.get_platforms() if each.name.startswith("Port")).get_devices())
print(json.dumps([build_program(context, sys.argv[1], options=["-DV=7"]).source for _ in range(2)]))
"""

_LOCKS = """
import json, sys
import pyopencl as cl
from gpucache.opencl import build_program
from gpucache.store.reading import EntryReader
asked, lock = [], EntryReader.single_flight
EntryReader.single_flight = lambda *words: asked.append(words) or lock(*words)
context = cl.Context(next(each for each in cl.get_platforms() if each.name.startswith("Intel")).get_devices())
build_program(context, sys.argv[1], options=["-DV=7"])
print(json.dumps(bool(asked)))
"""

Outcome = dict[str, Any]
Job = Mapping[str, Any]
Run = Callable[..., list[Outcome]]


@pytest.fixture
def settings(opencl_environment: Mapping[str, str], root: Path, tmp_path: Path) -> dict[str, str]:
    """Without a layer in memory, so that every build reads the disk, and with a place for PoCL alone."""
    own = {"GPUCACHE_DIR": str(root), "GPUCACHE_MEMORY_BYTES": "0", "POCL_CACHE_DIR": str(tmp_path / "pocl")}
    (tmp_path / "pocl").mkdir()
    return {**opencl_environment, **own}


@pytest.fixture
def run(settings: dict[str, str]) -> Run:
    """The outcomes of jobs in a separate program."""

    def run(*jobs: Job, **more: str) -> list[Outcome]:
        outcomes: list[Outcome] = json.loads(
            run_python(
                str(_PROCESS), "opencl", stdin=json.dumps(jobs), env={**settings, **more}
            ).removeprefix("ready\n")
        )
        return outcomes

    return run


_OWN = ("environment", "compiling", "cwd", "launches", "threads")


def _job(platform: str, source: str = _SHOW, **more: Any) -> dict[str, Any]:
    """One job; arguments that the process does not know are passed to ``build_program``."""
    if platform == "pocl":
        need_pocl()
    own = {name: more.pop(name) for name in _OWN if name in more}
    if "value.h" not in source:
        more["options"] = [*more.get("options", ()), "-DV=7"]
    return {"source": source, "platform": _PLATFORMS[platform], "arguments": more, **own}


def _compiled(outcomes: Sequence[Outcome]) -> list[int]:
    """How often each job called the compiler; every one of them computed the right result."""
    assert [outcome["error"] for outcome in outcomes] == [None] * len(outcomes)
    return [outcome["compiled"] for outcome in outcomes]


def _warm(settings: Mapping[str, str], *arguments: str) -> None:
    if "opencl:pocl" in arguments:
        need_pocl()
    done = run_text([sys.executable, "-m", "gpucache", "warm", *arguments], env=settings)
    assert done.returncode == 0, done.stdout + done.stderr


def _build_missed(settings: Mapping[str, str], platform: str) -> None:
    """Build the programs left for later, which happens only on compilers that build late."""
    if platform == "pocl":
        _warm(settings, "--misses")


def _tree(folder: Path, header: str = _HEADER) -> str:
    folder.mkdir()
    (folder / "value.h").write_text(header, encoding="ascii")
    return str(folder)


def test_what_warm_built_builds_nothing(run: Run, settings: dict[str, str], tmp_path: Path) -> None:
    """Programs warmed on both platforms run in processes where building from source raises."""
    tree = _tree(tmp_path / "tree")
    source = Path(tree, "show.cl")
    source.write_text(_FROM_HEADER, encoding="ascii")
    platforms = ("--target", "opencl:pocl", "--target", "opencl:intel")
    _warm(settings, str(source), *platforms, "-D", "UNUSED", "--local-size", "64")
    wanted: dict[str, Any] = {"include_path": [tree], "local_sizes": [[64]], "options": "-D UNUSED"}
    for platform in _PLATFORMS:
        (outcome,) = run(_job(platform, _FROM_HEADER, compiling=False, launches=[[128, 64]], **wanted))
        assert _compiled([outcome]) == [0]
        assert outcome["values"] == [[7]]


def test_line_ends_of_a_source_do_not_matter(run: Run, settings: dict[str, str], tmp_path: Path) -> None:
    """A build of a file with CR LF is hit by a program that read the file as text."""
    source = Path(tmp_path, "show.cl")
    text = """#define SET(x) \\
  out[0] = x
kernel void show(global int *out) {
  SET(V); // 9 would be a continued comment's \\
  SET(9);
}
"""
    source.write_bytes(text.replace("\n", "\r\n").encode("ascii"))
    _warm(settings, str(source), "--target", "opencl:intel", "-D", "V=7")
    (outcome,) = run(_job("intel", text, compiling=False))
    assert _compiled([outcome]) == [0]
    assert outcome["values"] == [[7]]


def test_pocl_launches_what_warm_built_without_compiling(
    run: Run, settings: dict[str, str], tmp_path: Path
) -> None:
    """At a declared local size PoCL compiles for neither a small nor a large grid; at another it does."""
    source = tmp_path / "show.cl"
    source.write_text(_SHOW, encoding="ascii")
    _warm(settings, str(source), "--target", "opencl:pocl", "-D", "V=7", "--local-size", "64")
    launches = [[64, 64], [131072, 64], [64, 32]]
    (outcome,) = run(_job("pocl", compiling=False, local_sizes=[[64]], launches=launches))
    loaded, *after = outcome["shared_objects"]
    assert loaded > 0
    assert after == [loaded, loaded, loaded + 1]


def test_a_miss_on_a_late_compiler_is_the_plain_build(run: Run, root: Path) -> None:
    """A miss on PoCL requests no binary, which would compile every kernel, and says how to warm it."""
    (outcome,) = run(_job("pocl", launches=[]))
    assert (_compiled([outcome]), outcome["shared_objects"]) == ([1], [0])
    assert outcome["source"] == _SHOW
    assert "'gpucache warm --misses' builds it for the next start" in outcome["log"][0]
    assert not list(root.rglob("*.gpc"))


def test_warm_builds_what_a_program_missed(run: Run, settings: dict[str, str], root: Path) -> None:
    """A program's request on PoCL, with its local sizes, is built by warm --misses: then it hits."""
    wanted: dict[str, Any] = {"local_sizes": [[64], [8, 8]], "launches": [[64, 64], [131072, 64]]}
    assert _compiled(run(_job("pocl", **wanted))) == [1]
    _warm(settings, "--misses")
    assert not list(root.glob("v1/missed/*"))
    (tmp := root.parent / "own").mkdir()
    (outcome,) = run(_job("pocl", compiling=False, **wanted), POCL_CACHE_DIR=str(tmp))
    loaded, *after = outcome["shared_objects"]
    assert after == [loaded, loaded]


def test_what_was_built_for_local_sizes_answers_who_knows_none(
    run: Run, settings: dict[str, str], tmp_path: Path
) -> None:
    """A lookup hits whatever local sizes it names; a missing one is added by warm to the existing ones."""
    source = tmp_path / "show.cl"
    source.write_text(_SHOW, encoding="ascii")
    _warm(settings, str(source), "--target", "opencl:pocl", "-D", "V=7", "--local-size", "64")
    jobs = [_job("pocl", compiling=False, local_sizes=sizes) for sizes in ([], [[64]], [[32]])]
    assert _compiled(run(*jobs)) == [0, 0, 0]
    _warm(settings, "--misses")
    (outcome,) = run(_job("pocl", compiling=False, launches=[[64, 64], [64, 32]]))
    assert len(set(outcome["shared_objects"])) == 1


@pytest.mark.parametrize("platform", _PLATFORMS)
def test_a_program_after_a_miss_is_what_the_compiler_gave(run: Run, platform: str) -> None:
    """After a miss a program has its source and arguments, like one that PyOpenCL built alone."""
    options = ["-cl-kernel-arg-info"]
    missed, plain = run(
        _job(platform, options=options),
        _job(platform, options=options, environment={"GPUCACHE_DISABLE": "1"}),
        PYOPENCL_NO_CACHE="1",
    )
    assert missed["source"] == plain["source"] == _SHOW
    assert missed["argument"] == plain["argument"]


def test_argument_info_is_not_kept_where_binaries_lose_it(run: Run, root: Path) -> None:
    """Intel's binaries lose argument information, so a build that requests it is not cached."""
    jobs = [_job("intel", options=["-cl-kernel-arg-info"]) for _ in range(2)]
    first, second = run(*jobs, PYOPENCL_NO_CACHE="1")
    assert first["argument"] == second["argument"] == "out"
    assert "uncacheable: the build option '-cl-kernel-arg-info'" in second["log"][0]
    assert not list(root.rglob("*.gpc"))


def test_a_hit_on_pocl_answers_about_arguments(run: Run, settings: dict[str, str]) -> None:
    """PoCL's binaries keep argument information, so a hit has the same as the source build."""
    job = _job("pocl", options=["-cl-kernel-arg-info"])
    (built,) = run(job)
    _warm(settings, "--misses")
    (found,) = run({**job, "compiling": False})
    assert found["argument"] == built["argument"] == "out"


@pytest.mark.parametrize("platform", _PLATFORMS)
def test_a_tree_may_move(run: Run, settings: dict[str, str], tmp_path: Path, platform: str) -> None:
    """Another place, time stamp or spelling of -I is a hit; another header, option or order is not."""
    tree = _tree(tmp_path / "tree")
    moved = shutil.copytree(tree, tmp_path / "moved", copy_function=shutil.copyfile)
    edited = _tree(tmp_path / "edited", "#define V 8\n")
    first = run(_job(platform, _FROM_HEADER, include_path=[tree]))
    _build_missed(settings, platform)
    outcomes = first + run(
        _job(platform, _FROM_HEADER, include_path=["tree/"], cwd=str(tmp_path), compiling=False),
        _job(platform, _FROM_HEADER, options=f"-I {tree}", compiling=False),
        _job(platform, _FROM_HEADER, include_path=[str(moved)], compiling=False),
        _job(platform, _FROM_HEADER, include_path=[edited]),
        _job(platform, _FROM_HEADER, include_path=[tree], options="-DA -DB"),
        _job(platform, _FROM_HEADER, include_path=[tree], options="-DB -DA"),
    )
    assert _compiled(outcomes) == [1, 0, 0, 0, 1, 1, 1]
    assert [outcome["values"] for outcome in outcomes] == [[[7]]] * 4 + [[[8]]] + [[[7]]] * 2
    assert "key-changed: the header value.h changed" in outcomes[4]["log"][0]


@pytest.mark.parametrize("platform", _PLATFORMS)
def test_the_current_directory_is_searched_and_keyed(
    run: Run, settings: dict[str, str], tmp_path: Path, platform: str
) -> None:
    """A header in the current directory counts by its content, as the compiler takes it from there."""
    first, second = _tree(tmp_path / "first"), _tree(tmp_path / "second", "#define V 8\n")
    jobs = [_job(platform, _FROM_HEADER, cwd=place) for place in (first, second)]
    outcomes = run(*jobs)
    _build_missed(settings, platform)
    outcomes += run(*jobs)
    assert _compiled(outcomes) == [1, 1, 0, 0]
    assert [outcome["values"] for outcome in outcomes] == [[[7]], [[8]]] * 2


@pytest.mark.parametrize("platform", _PLATFORMS)
@pytest.mark.parametrize(
    ("header", "options", "compiled"),
    [
        pytest.param(_HEADER + "#define HERE __FILE__\n", [], [1, 0, 0], id="mentioned"),
        pytest.param(
            "constant char here[] = __FILE__;\n#define V here[get_local_id(0)] == '/' ? 7 : 8\n",
            [],
            [1, 1, 0],
            id="used",
        ),
        pytest.param(
            "inline int v() { return sizeof(__FILE__) ? 7 : 8; }\n#define V v()\n", [], [1, 1, 0], id="folded"
        ),
        pytest.param(_HEADER, ["-g"], [1, 1, 0], id="debugged"),
    ],
)
def test_only_a_path_in_the_artifact_ties_it(
    run: Run,
    settings: dict[str, str],
    tmp_path: Path,
    platform: str,
    header: str,
    options: list[str],
    compiled: list[int],
) -> None:
    """An artifact with paths has an entry for every place, and is found again at its own."""
    first, second = (_tree(tmp_path / name, header) for name in ("first", "second"))
    jobs = [
        _job(platform, _FROM_HEADER, include_path=[place], options=options)
        for place in (first, second, first)
    ]
    outcomes = []
    for job in jobs:
        outcomes += run(job)
        if outcomes[-1]["compiled"]:
            _build_missed(settings, platform)
    assert _compiled(outcomes) == compiled
    assert [outcome["values"] for outcome in outcomes] == [[[7]]] * 3


@pytest.mark.parametrize("platform", _PLATFORMS)
def test_a_constant_made_of_the_sources_name_is_not_kept(run: Run, tmp_path: Path, platform: str) -> None:
    """PoCL names the source after a temporary file, Intel by a running number."""
    place = _tree(tmp_path / "first", "#define V (sizeof(__FILE__) ? 7 : 8)\n")
    (outcome,) = run(_job(platform, _FROM_HEADER, include_path=[place]))
    assert outcome["values"] == [[7]]
    assert any("may make a constant of the source's file name" in line for line in outcome["log"])


def test_a_variable_of_the_compiler_is_keyed(run: Run) -> None:
    """A variable that makes Intel compile for another CPU changes the key, and the log names it."""
    assert _compiled(run(_job("intel"))) == [1]
    (outcome,) = run(_job("intel"), CL_CONFIG_CPU_TARGET_ARCH="corei7-avx")
    assert _compiled([outcome]) == [1]
    assert "key-changed: the environment variable CL_CONFIG_CPU_TARGET_ARCH: none -> " in outcome["log"][0]


def test_a_variable_that_changed_after_the_runtime_was_loaded_keeps_nothing(run: Run) -> None:
    """Intel's runtime read it when it was loaded; a program that begins with the new value compiles anew."""
    first, second, third = run(
        _job("intel"),
        _job("intel", environment={"CL_CONFIG_CPU_TARGET_ARCH": "corei7"}),
        _job("intel", environment={"CL_CONFIG_CPU_TARGET_ARCH": None}),
    )
    assert _compiled([first, second, third]) == [1, 1, 0]
    assert any("CL_CONFIG_CPU_TARGET_ARCH was changed" in line for line in second["log"])
    assert _compiled(run(_job("intel"), CL_CONFIG_CPU_TARGET_ARCH="corei7")) == [1]


def test_the_configuration_that_intels_runtime_reads_is_keyed(run: Run, tmp_path: Path) -> None:
    """A cl.cfg in the current directory, at the build or at the start, changes the key."""
    source, settings = _SHOW.replace("V;", "native_sin((float)V) + V;"), tmp_path / "settings"
    settings.mkdir()
    (settings / "cl.cfg").write_text("CL_CONFIG_USE_FAST_RELAXED_MATH = True\n", encoding="ascii")
    plain, configured = (_job("intel", source, cwd=str(place)) for place in (tmp_path, settings))
    assert _compiled(run(plain, configured, plain, configured)) == [1, 1, 0, 0]
    assert _compiled(run(configured, plain, configured)) == [1, 1, 0]


def _publish_garbage(root: Path) -> Path:
    """Put bytes that no driver accepts into the one entry of a root, as a sound entry."""
    store = DirectoryStore(root, writable=True)
    (scanned,) = store.scan()
    found, detail = store.get(scanned.key), store.detail(scanned.key)
    assert isinstance(found, Found)
    assert detail is not None
    garbage = b"\x7fnot a binary of any driver"
    head = found.head._replace(payload_sha256=digest(garbage))
    store.publish(Entry(scanned.key, head, detail, garbage))
    return scanned.path


@pytest.mark.parametrize("platform", _PLATFORMS)
def test_what_the_driver_rejects_is_compiled_again(
    run: Run, settings: dict[str, str], root: Path, platform: str
) -> None:
    """A sound entry with a binary that the driver refuses costs one compile, and is replaced by it."""
    assert _compiled(run(_job(platform))) == [1]
    _build_missed(settings, platform)
    path = _publish_garbage(root)
    size_of_garbage = path.stat().st_size
    outcomes = run(_job(platform))
    _build_missed(settings, platform)
    assert _compiled(outcomes + run(_job(platform, compiling=False))) == [1, 0]
    assert "rejected: the driver rejected the binary" in outcomes[0]["log"][-1]
    assert path.stat().st_size > size_of_garbage
    records = DirectoryStore(root, writable=False).journal_tail(8)
    assert ("show", "rejected") in [(record.get("program"), record.get("verdict")) for record in records]


def test_a_required_hit_raises_at_a_miss(run: Run, root: Path) -> None:
    """With GPUCACHE_REQUIRE nothing is compiled after any miss: the error names program and verdict."""
    required = {"GPUCACHE_REQUIRE": "1"}
    never, refused, built = run(
        _job("intel", name="solver", environment=required),
        _job("intel", name="solver", options=["-save-temps"]),
        _job("intel", name="solver", environment={"GPUCACHE_REQUIRE": None}),
    )
    assert never["error"].startswith("CacheMissError: solver for opencl:intel/")
    assert "GPUCACHE_REQUIRE is set: never-built: " in never["error"]
    assert refused["error"].startswith("CacheMissError: solver cannot be looked up")
    assert "uncacheable: the build option '-save-temps'" in refused["error"]
    assert [never["compiled"], refused["compiled"], built["compiled"]] == [0, 0, 1]
    _publish_garbage(root)
    (rejected,) = run(_job("intel", name="solver"), **required)
    assert rejected["compiled"] == 0
    assert "GPUCACHE_REQUIRE is set: rejected: the driver rejected the binary" in rejected["error"]


def test_a_program_never_fails_because_of_the_cache(run: Run, tmp_path: Path) -> None:
    """With a root that is a file, no cache, or no key at all it runs, and a line says why."""
    (tmp_path / "file").write_bytes(b"")
    clock = _SHOW.replace("V;", "V + (__TIME__[0] == 0);")
    unusable, disabled, uncacheable, refused = run(
        _job("intel", environment={"GPUCACHE_DIR": str(tmp_path / "file")}),
        _job("intel", environment={"GPUCACHE_DISABLE": "1"}),
        _job("intel", clock, environment={"GPUCACHE_DISABLE": "0", "GPUCACHE_DIR": str(tmp_path / "cache")}),
        _job("intel", options=["-cl-opt-disable", "-dump-opt-asm=x"]),
        PYOPENCL_NO_CACHE="1",
    )
    outcomes = (unusable, disabled, uncacheable)
    assert _compiled(outcomes) == [1, 1, 1]
    assert [outcome["values"] for outcome in outcomes] == [[[7]]] * 3
    assert unusable["log"][0].startswith("WARNING: programs are compiled uncached: the cache root ")
    assert "not-consulted: GPUCACHE_DISABLE is set" in disabled["log"][0]
    assert "uncacheable: the source uses __TIME__" in uncacheable["log"][0]
    assert refused["log"][0].startswith(
        "WARNING: programs are compiled uncached: show: the build option '-dump-opt-asm=x'"
    )


def test_a_source_that_does_not_compile_raises_as_without_a_cache(run: Run, root: Path) -> None:
    """PyOpenCL's own error is raised, with the compiler's message, and nothing is kept."""
    (outcome,) = run(_job("intel", "kernel void show(global int *out) { out[0] = ; }"))
    assert outcome["error"].startswith("RuntimeError: clBuildProgram failed: BUILD_PROGRAM_FAILURE")
    assert "expected expression" in outcome["error"]
    assert not list(root.rglob("*.gpc"))


@pytest.mark.parametrize("platform", _PLATFORMS)
def test_a_source_that_did_not_compile_is_refused_as_that(run: Run, root: Path, platform: str) -> None:
    """Each start that failed is one miss that says so, and a required hit is refused for that reason."""
    broken = _job(platform, "kernel void show(global int *out) { out[0] = ; }")
    run(broken)
    run(broken)
    (refused,) = run(broken, GPUCACHE_REQUIRE="1")
    assert "GPUCACHE_REQUIRE is set: failed: it did not compile at 20" in refused["error"]
    records = DirectoryStore(root, writable=False).journal_tail(8)
    assert [record["verdict"] for record in records if record["kind"] == "miss"] == ["failed"] * 3


def test_threads_compile_a_program_once(run: Run) -> None:
    """Eight threads that build one program at once all run it, after one compile."""
    (outcome,) = run(_job("intel", threads=8), GPUCACHE_MEMORY_BYTES="1M")
    assert _compiled([outcome]) == [1]
    assert outcome["values"] == [[7]]


def test_every_device_of_a_context_gets_its_binary(run: Run, settings: dict[str, str], root: Path) -> None:
    """A context of two unlike devices takes two entries, and the program runs on both."""
    both = {"POCL_DEVICES": "pthread basic"}
    (built,) = run(_job("pocl"), **both)
    _warm({**settings, **both}, "--misses")
    (found,) = run(_job("pocl", compiling=False), **both)
    assert _compiled([built, found]) == [1, 0]
    assert built["values"] == found["values"] == [[7], [7]]
    assert len(list(root.rglob("*.gpc"))) == 2


def test_one_build_gives_every_device_its_binary(settings: dict[str, str], root: Path) -> None:
    """A compiler that does not build late is called once for all devices, and each gets an entry."""
    need_pocl()
    done = run_text([sys.executable, "-c", _EARLY, _SHOW], env={**settings, "POCL_DEVICES": "pthread basic"})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [_SHOW, _SHOW]
    assert len(list(root.rglob("*.gpc"))) == 2


def test_a_miss_that_cannot_be_noted_is_told(run: Run, root: Path) -> None:
    """If a late compiler's miss cannot be noted either, the program runs, and one line says so."""
    (root / "v1").mkdir(parents=True)
    (root / "v1" / "missed").touch()
    first, second = run(_job("pocl"), _job("pocl"))
    assert _compiled([first, second]) == [1, 1]
    told = [line for line in (*first["log"], *second["log"]) if line.startswith("WARNING: ")]
    assert len(told) == 1
    assert f"could not be noted for 'gpucache warm --misses': {root}" in told[0]


@pytest.mark.parametrize("in_file", [False, True])
def test_what_was_missed_is_built_after_the_programs_end(
    settings: dict[str, str], root: Path, tmp_path: Path, in_file: bool
) -> None:
    """With GPUCACHE_LEARN a separate process builds the misses, for which the program's end does not wait."""
    file = tmp_path / "app.cache"
    settings |= {"GPUCACHE_FILE": str(file)} if in_file else {}
    python, ended = tmp_path / "python", tmp_path / "ended"
    os.mkfifo(ended)
    python.write_text(f'#!/bin/sh\n"{sys.executable}" "$@"\necho "$@" > "{ended}"\n', encoding="ascii")
    python.chmod(0o755)
    need_pocl()
    script = "import sys; sys.executable = sys.argv.pop(1)\n" + _EARLY.replace("platforms._IMPL", "#")
    done = run_text([sys.executable, "-c", script, python, _SHOW], env={**settings, "GPUCACHE_LEARN": "1"})
    assert (done.returncode, json.loads(done.stdout)) == (0, [_SHOW, _SHOW]), done.stderr
    assert f"--root {file if in_file else root} --quiet warm --misses" in ended.read_text(encoding="ascii")
    names = [member.path for member, _ in members(BytesIO(file.read_bytes()))] if in_file else []
    names += [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
    assert sum(name.endswith(".gpc") for name in names) == 1
    assert not any(name.startswith("v1/missed/") for name in names)


@pytest.mark.parametrize("asks", [False, True])
def test_a_miss_below_run_leaves_its_lock_to_the_server(settings: dict[str, str], asks: bool) -> None:
    """The layer asks the server, which waits for that lock before it answers."""
    below = {"OPENCL_LAYERS": find("opencl_layer")[0], "GPUCACHE_RUN_SOCKET": "/nowhere/s"}
    said = run_python("-c", _LOCKS, _SHOW, env={**settings, **(below if asks else {})})
    assert json.loads(said) is not asks


@pytest.mark.skipif(bool(find("opencl_layer")[1]), reason=find("opencl_layer")[1])
def test_processes_below_run_compile_a_program_of_the_library_once(
    settings: dict[str, str], tmp_path: Path
) -> None:
    """The server lets one of them compile, and the others hit, in it or by the library."""
    report = tmp_path / "report"
    at_once = f'for one in 1 2 3 4; do {shlex.quote(sys.executable)} -c "$0" "$1" & done; wait'
    command = ("run", "--report", report, "--", "sh", "-c", at_once, _LOCKS, _SHOW)
    run_python("-m", "gpucache", *command, env={**settings, "GPUCACHE_RUN_TIMEOUT_MS": "600000"})
    summary = json.loads(report.read_text())["summary"]
    assert (summary["builds"] - summary["hits"], summary["hits"] + summary["within"]) == (1, 3)
