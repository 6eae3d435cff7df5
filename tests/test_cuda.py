"""A CUDA program with the library: hits without a compiler, and no failure because of the cache."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpucache.backends.cuda.nvrtc import nvrtc_libraries, version
from gpucache.backends.installation import mark
from gpucache.library import rows
from gpucache.sources.closure_memos import WORTH_FILES
from gpucache.store.directory import DirectoryStore
from tests.children import run_python, run_text
from tests.nvrtc import need_nvrtc
from tests.patience import PATIENCE_S
from tests.store.conftest import memos

pytestmark = pytest.mark.slow

_PROCESS = Path(__file__).with_name("library_process.py")
_SHOW = 'extern "C" __global__ void show(int *out) { *out = 7; }'
_FROM_HEADER = '#include "value.h"\nextern "C" __global__ void show(int *out) { *out = value(); }'
_HEADER = "static __device__ int value() { return 7; }\n"
_TEMPLATE = '#include "value.h"\ntemplate <typename T> __global__ void show(T *out) { *out = value(); }'
_INSTANCES = ["show<int>", "show<float>"]

Outcome = dict[str, Any]
Job = Mapping[str, Any]


@pytest.fixture(scope="module", autouse=True)
def nvrtc() -> None:
    need_nvrtc()


def _environment(root: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """Without a layer in memory, so that every job asks the disk."""
    return {**os.environ, "GPUCACHE_DIR": str(root), "GPUCACHE_MEMORY_BYTES": "0", **settings}


def _start(root: Path, **settings: str) -> subprocess.Popen[str]:
    """A program that has imported everything and waits for its jobs."""
    program = subprocess.Popen(
        [sys.executable, str(_PROCESS), "cuda"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(root, settings),
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    return program


def _finish(program: subprocess.Popen[str], jobs: Sequence[Job]) -> list[Outcome]:
    out, errors = program.communicate(json.dumps(jobs), timeout=PATIENCE_S)
    assert program.returncode == 0, errors
    outcomes: list[Outcome] = json.loads(out)
    return outcomes


def _run(root: Path, *jobs: Job, **settings: str) -> list[Outcome]:
    """The outcomes of jobs in a separate program."""
    return _finish(_start(root, **settings), jobs)


def _gpucache(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_text([sys.executable, "-m", "gpucache", *arguments], env=_environment(root, {}))


def _job(source: str = _SHOW, **more: Any) -> dict[str, Any]:
    """One job; arguments that the process does not know are passed to ``compile_program``."""
    own = {name: more.pop(name) for name in _OWN if name in more}
    return {"source": source, "arguments": {"target": "sm_90", **more}, **own}


_OWN = ("environment", "cwd", "remove_cwd", "compiling", "threads", "forked")


def _compiled(outcomes: Sequence[Outcome]) -> list[int]:
    assert [outcome["error"] for outcome in outcomes] == [None] * len(outcomes)
    return [outcome["compiled"] for outcome in outcomes]


def _tree(folder: Path, header: str = _HEADER) -> Path:
    (folder / "include").mkdir(parents=True)
    (folder / "include" / "value.h").write_text(header, encoding="ascii")
    return folder


def _closures(root: Path) -> list[bytes]:
    """The memos of include closures, among others."""
    return [one for one in memos(root) if one.startswith(b'{"name"')]


def test_what_headers_include_is_remembered_for_the_next_start(tmp_path: Path, root: Path) -> None:
    """``warm`` and a program in another directory share one memo, and an edited header is still noticed."""
    folder = _tree(tmp_path)
    for number in range(WORTH_FILES):
        (folder / f"include/{number}.h").touch()
    includes = "".join(f"#include <{number}.h>\n" for number in range(WORTH_FILES))
    source = folder / "include/show.cu"
    source.write_text(includes + _FROM_HEADER, encoding="ascii")
    assert _gpucache(root, "warm", str(source), "--target", "cuda:sm_90").returncode == 0
    (memo,) = _closures(root)
    job = _job(source.read_text("ascii"), include_path=[str(folder / "include")], cwd=str(tmp_path))
    assert _compiled(_run(root, job)) == [0]
    (folder / "include/7.h").write_text("struct unused {};", encoding="ascii")
    assert _compiled(_run(root, job)) == [1]
    (newer,) = _closures(root)
    assert newer != memo


def test_a_failure_begins_with_what_the_compiler_said(root: Path) -> None:
    """The error's text has the first lines of NVRTC's log under the program's own name, and is bounded."""
    (short,), (long,) = (
        _run(root, _job(f"__global__ void show() {{ {text} }}", name="show.cu"))
        for text in ("oops;", "\n".join(f"oops{number};" for number in range(90)))
    )
    assert short["error"].startswith(
        'CompileError: show.cu does not compile\nshow.cu(1): error: identifier "oops" is undefined\n'
    )
    assert len(long["error"].splitlines()) == 22
    assert long["error"].endswith("\n... and more in the log")


def test_a_program_without_a_kernel_is_told(root: Path) -> None:
    """A template without a named instance gives nothing to launch, and that is logged."""
    silent, named, linked = _run(
        root,
        _job("template <class T> __global__ void show(T *out) { *out = 7; }"),
        _job("template <class T> __global__ void show(T *out) { *out = 7; }", name_expressions=["show<int>"]),
        _job("__device__ int seven() { return 7; }", options=["-rdc=true"]),
    )
    assert _compiled([silent, named, linked]) == [1, 1, 1]
    (warning,) = [line for line in silent["log"] if line.startswith("WARNING")]
    assert "show for cuda:sm_90 compiles to no kernel; name the instances of a template with" in warning
    assert not [line for line in named["log"] + linked["log"] if line.startswith("WARNING")]


def test_a_caller_is_told_of_the_argument_that_names_headers(tmp_path: Path, root: Path) -> None:
    """If an include through a macro cannot be covered, the remedy is the library's argument."""
    (tmp_path / "large.h").write_bytes(b"/" * (64 * 1024**2 + 1))
    source = f"#define HEADER <large.h>\n#ifdef NEVER\n#include HEADER\n#endif\n{_SHOW}"
    (outcome,) = _run(root, _job(source, include_path=[str(tmp_path)]))
    (warning,) = [line for line in outcome["log"] if line.startswith("WARNING")]
    assert outcome["error"] is None
    assert warning.endswith("name the headers with the argument headers=[...]")


def test_what_warm_built_needs_no_compiler(tmp_path: Path, root: Path) -> None:
    """A template that warm compiled is returned without NVRTC: the same bytes, the same lowered names."""
    tree = _tree(tmp_path / "tree")
    (tree / "show.cu").write_text(_TEMPLATE, encoding="ascii")
    (tree / "gpucache.toml").write_text(
        '[[program]]\nsource = "show.cu"\ninclude = ["include"]\ntargets = ["cuda:sm_90"]\n'
        f"name_expressions = {json.dumps(_INSTANCES)}\n",
        encoding="ascii",
    )
    warmed = _gpucache(root, "warm", "--manifest", str(tree / "gpucache.toml"))
    assert warmed.returncode == 0, warmed.stdout + warmed.stderr
    wanted = {"name_expressions": _INSTANCES, "include_path": [str(tree / "include")]}
    hit, fresh = _run(
        root,
        _job(_TEMPLATE, compiling=False, **wanted),
        _job(_TEMPLATE, environment={"GPUCACHE_DISABLE": "1"}, **wanted),
    )
    assert _compiled([hit, fresh]) == [0, 1]
    assert sorted(hit["names"]) == sorted(_INSTANCES)
    assert (hit["code"], hit["names"]) == (fresh["code"], fresh["names"])


def test_a_plain_source_that_warm_built_is_a_hit(tmp_path: Path, root: Path) -> None:
    """A source named on the command line is found again by its content, with the same define."""
    (tmp_path / "show.cu").write_text(_SHOW.replace("7", "N"), encoding="ascii")
    warmed = _gpucache(root, "warm", str(tmp_path / "show.cu"), "--target", "cuda:sm_90", "-D", "N=7")
    assert warmed.returncode == 0, warmed.stdout + warmed.stderr
    source = _SHOW.replace("7", "N")
    jobs = [_job(source, options=options, name="show.cu") for options in ("-D N=7", ["-DN=8"])]
    outcomes = _run(root, *jobs)
    assert _compiled(outcomes) == [0, 1]
    assert "key-changed: the define N: 7 -> 8" in outcomes[1]["log"][0]


@pytest.mark.parametrize("option", ["-DN=7", "-lineinfo"])
def test_line_ends_of_a_source_do_not_matter(root: Path, option: str) -> None:
    """NVRTC returns the same for CR LF and LF, even after a backslash and in a raw string."""
    more = """#define ONE \\
  1
__device__ const char *text = R"(a
b)"; // \\
int no;
__device__ int x = ONE;"""
    text = f"{_SHOW}\n{more}"
    jobs = [_job(source, options=[option]) for source in (text, text.replace("\n", "\r\n"))]
    built, hit = _run(root, *jobs)
    fresh = _run(root.with_name("another"), jobs[1])[0]
    assert _compiled([built, hit, fresh]) == [1, 0, 1]
    assert built["code"] == hit["code"] == fresh["code"]


def test_a_tree_may_move(tmp_path: Path, root: Path) -> None:
    """Another place, time stamp or spelling of -I is a hit; another content is not."""
    tree = _tree(tmp_path / "tree")
    moved = Path(shutil.copytree(tree, tmp_path / "moved"))
    os.utime(moved / "include" / "value.h", (1, 1))
    edited = _tree(tmp_path / "edited", _HEADER.replace("7", "8"))
    (tmp_path / "link").symlink_to(tree / "include")
    include = str(tree / "include")
    outcomes = _run(
        root,
        _job(_FROM_HEADER, include_path=[include]),
        _job(_FROM_HEADER, include_path=["include"], cwd=str(tree), compiling=False),
        _job(_FROM_HEADER, include_path=[f"{include}/"], compiling=False),
        _job(_FROM_HEADER, include_path=["../tree/./include"], compiling=False),
        _job(_FROM_HEADER, include_path=[str(tmp_path / "link")], compiling=False),
        _job(_FROM_HEADER, options=f"-I {include}", compiling=False),
        _job(_FROM_HEADER, options=[f"--include-path={include}"], compiling=False),
        _job(_FROM_HEADER, include_path=[str(moved / "include")], compiling=False),
        _job(_FROM_HEADER, include_path=[str(edited / "include")]),
    )
    assert _compiled(outcomes) == [1, 0, 0, 0, 0, 0, 0, 0, 1]
    assert "the header value.h changed" in outcomes[-1]["log"][0]


_CASES: dict[str, tuple[dict[str, Any], str]] = {
    "a root that is a file": (
        {"environment": {"GPUCACHE_DIR": "{tmp}/file"}},
        "WARNING: programs are compiled uncached: the cache root {tmp}/file is not a directory",
    ),
    "no place for a root": (
        {"environment": {"GPUCACHE_DIR": "{tmp}/file/below"}},
        "WARNING: programs are compiled uncached: the cache root {tmp}/file/below",
    ),
    "a root that others may write": (
        {"environment": {"GPUCACHE_DIR": "{tmp}/open"}},
        "WARNING: programs are compiled uncached: the cache root {tmp}/open cannot be trusted",
    ),
    "GPUCACHE_DISABLE": ({"environment": {"GPUCACHE_DISABLE": "1"}}, "GPUCACHE_DISABLE is set"),
    "GPUCACHE_READ_ONLY": (
        {"environment": {"GPUCACHE_READ_ONLY": "1"}},
        "GPUCACHE_READ_ONLY is set, so it was not kept",
    ),
    "a setting that does not read": (
        {"environment": {"GPUCACHE_MAX_SIZE": "much"}},
        "WARNING: the cache is not used: GPUCACHE_MAX_SIZE: 'much' is not a size",
    ),
    "a current directory that is gone": (
        {"environment": {"GPUCACHE_DIR": "relative"}, "cwd": "{tmp}/gone", "remove_cwd": True},
        "WARNING: the cache is not used: a root is named by a relative path",
    ),
}


@pytest.fixture(scope="module")
def unusable(tmp_path_factory: pytest.TempPathFactory, nvrtc: None) -> tuple[Path, dict[str, Outcome]]:
    """The outcome of one program in every state of the cache, and in a sound one (``sound``)."""
    tmp = tmp_path_factory.mktemp("unusable")
    (tmp / "file").write_bytes(b"")
    (tmp / "open").mkdir()
    (tmp / "open").chmod(0o777)
    (tmp / "gone").mkdir()
    usual = {"GPUCACHE_DIR": str(tmp / "empty")}
    reset = dict.fromkeys(("GPUCACHE_DISABLE", "GPUCACHE_READ_ONLY", "GPUCACHE_MAX_SIZE"))
    jobs = {
        name: json.loads(json.dumps(case).replace("{tmp}", str(tmp))) for name, (case, _) in _CASES.items()
    }
    for job in jobs.values():
        job["environment"] = {**usual, **reset, **job["environment"]}
    sound = {"environment": {**reset, "GPUCACHE_DIR": str(tmp / "cache")}}
    outcomes = _run(tmp / "cache", *(_job(**job) for job in (sound, *jobs.values())))
    return tmp, dict(zip(("sound", *jobs), outcomes, strict=True))


@pytest.mark.parametrize("name", _CASES)
def test_a_program_never_fails_because_of_the_cache(
    unusable: tuple[Path, dict[str, Outcome]], name: str
) -> None:
    """In any state of the cache the same program is compiled once, and a line says why."""
    tmp, outcomes = unusable
    sentence = _CASES[name][1].replace("{tmp}", str(tmp))
    assert _compiled([outcomes[name]]) == [1]
    assert outcomes[name]["code"] == outcomes["sound"]["code"]
    assert any(sentence in line for line in outcomes[name]["log"]), outcomes[name]["log"]
    assert not (tmp / "empty").exists()


def test_what_cannot_be_keyed_is_compiled_each_time(root: Path) -> None:
    """A program with the time in it is compiled, not kept, and the log names the macro."""
    clock = 'extern "C" __global__ void show(char *out) { *out = __TIME__[0]; }'
    outcomes = _run(root, _job(clock), _job(clock))
    assert _compiled(outcomes) == [1, 1]
    assert "uncacheable: the source uses __TIME__" in outcomes[1]["log"][0]
    assert not list(root.rglob("*.gpc"))


def test_a_damaged_entry_is_compiled_again(root: Path) -> None:
    """A flipped byte is a miss with the verdict corrupt; the entry goes to quarantine and is replaced."""
    assert _compiled(_run(root, _job())) == [1]
    (entry,) = root.rglob("*.gpc")
    sound = entry.read_bytes()
    entry.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    outcomes = _run(root, _job(), _job(compiling=False))
    assert _compiled(outcomes) == [1, 0]
    assert "corrupt: the entry was damaged: " in outcomes[0]["log"][0]
    assert len(list((root / "v1" / "quarantine").iterdir())) == 1
    assert DirectoryStore(root, writable=False).journal_tail(2)[1]["verdict"] == "corrupt"


def test_a_required_hit_raises_at_a_miss(root: Path) -> None:
    """With GPUCACHE_REQUIRE nothing is compiled: the error names program, target and verdict."""
    outcomes = _run(root, _job(name="solver"), _job(options="-time=x"), GPUCACHE_REQUIRE="1")
    assert [outcome["compiled"] for outcome in outcomes] == [0, 0]
    assert outcomes[0]["error"].startswith("CacheMissError: solver for cuda:sm_90 is not in the cache")
    assert "never-built: nothing was ever built as solver" in outcomes[0]["error"]
    assert outcomes[1]["error"].startswith("CacheMissError: show cannot be looked up, ")


def test_a_second_build_comes_from_memory(tmp_path: Path, root: Path) -> None:
    """Within a process a program is found in memory, whatever is on disk, unless that is disabled."""
    elsewhere = {"GPUCACHE_DIR": str(tmp_path / "elsewhere")}
    outcomes = _run(
        root,
        _job(),
        _job(environment=elsewhere),
        _job(environment=elsewhere | {"GPUCACHE_MEMORY_BYTES": "0"}),
        GPUCACHE_MEMORY_BYTES="1M",
    )
    assert _compiled(outcomes) == [1, 0, 1]
    assert outcomes[1]["log"][0].endswith(" in memory")


def test_threads_compile_a_program_once(root: Path) -> None:
    """Eight threads that build one program at once get the same code from one compile."""
    assert _compiled(_run(root, _job(threads=8))) == [1]


def test_a_forked_child_builds(root: Path) -> None:
    """After a fork a child finds its parent's builds in memory, and compiles new programs."""
    other = _SHOW.replace("7", "8")
    built, found, fresh, again = _run(
        root,
        _job(),
        _job(forked=True, compiling=False),
        _job(other, forked=True),
        _job(other, compiling=False),
        GPUCACHE_MEMORY_BYTES="1M",
    )
    _compiled([built, found, fresh, again])
    assert built["code"] == found["code"]
    assert fresh["code"] == again["code"] != built["code"]


def test_processes_compile_a_program_once(root: Path) -> None:
    """Of eight processes that want one program at once, one compiles it and the others get its code."""
    programs = [_start(root) for _ in range(8)]
    for program in programs:
        assert program.stdin is not None
        program.stdin.write(json.dumps([_job()]))
        program.stdin.close()
        program.stdin = None
    outcomes = [_finish_told(program) for program in programs]
    assert sum(_compiled(outcomes)) == 1
    assert len({outcome["code"] for outcome in outcomes}) == 1
    history = DirectoryStore(root, writable=False).history.events("show")
    assert [event.what for event in history] == ["built"]


def _finish_told(program: subprocess.Popen[str]) -> Outcome:
    out, errors = program.communicate(timeout=PATIENCE_S)
    assert program.returncode == 0, errors
    (outcome,) = json.loads(out)
    return dict(outcome)


def test_errors_are_those_of_the_program(root: Path) -> None:
    """A wrong source, target or device raises its own error, as without a cache."""
    broken = 'extern "C" __global__ void show(int *out) { out = ; }'
    outcomes = _run(root, _job(broken, name="solver.cu"), _job(target="sm_1"), _job(target=None))
    assert outcomes[0]["error"].startswith("CompileError: solver.cu does not compile")
    assert outcomes[1]["error"].startswith("TargetError: NVRTC")
    assert outcomes[2]["error"] is None or outcomes[2]["error"].startswith("NoDeviceError: ")


def test_a_program_that_does_not_compile_is_compiled_once(root: Path) -> None:
    """In every state of the cache NVRTC is called once, or not at all if a hit is required."""
    broken = 'extern "C" __global__ void show(int *out) { out = ; }'
    states = [
        {"GPUCACHE_DISABLE": "0"},
        {"GPUCACHE_DISABLE": "1"},
        {"GPUCACHE_DISABLE": "0", "GPUCACHE_READ_ONLY": "1"},
        {"GPUCACHE_READ_ONLY": "0", "GPUCACHE_DIR": os.devnull},
        {"GPUCACHE_REQUIRE": "1"},
    ]
    jobs = [_job(broken, environment=state, options=given) for state in states for given in ("-w", "-time=x")]
    outcomes = _run(root, *jobs)
    *compiled, required, unkeyed = outcomes
    assert [outcome["compiled"] for outcome in compiled] == [1] * 8
    assert {outcome["error"].partition(":")[0] for outcome in compiled} == {"CompileError"}
    assert (required["compiled"], unkeyed["compiled"]) == (0, 0)


def test_a_source_that_did_not_compile_is_refused_as_that(root: Path) -> None:
    """With GPUCACHE_REQUIRE the reason is that it failed, until it compiles."""
    broken = _job('extern "C" __global__ void show(int *out) { out = ; }')
    _run(root, broken)
    (refused,) = _run(root, {**broken, "environment": {"GPUCACHE_REQUIRE": "1"}})
    assert "GPUCACHE_REQUIRE is set: failed: it did not compile at 20" in refused["error"]


_PROGRAM_CACHE = """
import json, logging, sys
from cuda.core import Program, ProgramOptions
from gpucache.cuda import ProgramCache

class Spying(ProgramCache):
    def __getitem__(self, key):
        try:
            found = super().__getitem__(key)
        except KeyError:
            answers.append("miss")
            raise
        answers.append("hit")
        keys.append(key)
        return found

answers, keys = [], []
cache = Spying()

def compiled():
    program = Program('extern "C" __global__ void show() {}', "c++", ProgramOptions(arch="sm_90"))
    return program.compile("cubin", cache=cache).code
"""


def _program_cache(root: Path, script: str) -> Any:
    return json.loads(run_python("-c", _PROGRAM_CACHE + script, env=_environment(root, {})))


def test_cuda_core_keeps_its_programs(root: Path) -> None:
    """cuda.core's second compile is a hit on the bytes of the first, in entries that verify finds sound."""
    script = "print(json.dumps([compiled() == compiled(), answers, len(cache)]))"
    assert _program_cache(root, script) == [True, ["miss", "hit"], 1]
    verified = _gpucache(root, "--json", "verify")
    assert verified.returncode == 0, verified.stdout
    summary = json.loads(verified.stdout)["summary"]
    assert (summary["checked"], summary["sound"], summary["findings"]) == (1, 1, 0)


@pytest.mark.skipif(rows.library() is None, reason="the C library is not built")
def test_a_hit_of_cuda_core_imports_next_to_nothing(root: Path) -> None:
    """C finds the entry under the key by which it was kept, and the hit is counted."""
    script = (
        "compiled(); print(json.dumps([answers, sorted(one for one in sys.modules if 'gpucache' in one)]))"
    )
    missed, _ = _program_cache(root, script)
    hit, light = _program_cache(root, script)
    assert (missed, hit) == (["miss"], ["hit"])
    assert light == [
        *("gpucache", "gpucache.cuda", "gpucache.cuda.program_cache", "gpucache.framing", "gpucache.host"),
        *("gpucache.host.environment", "gpucache.library", "gpucache.library.rows", "gpucache.native"),
        "gpucache.native.locate",
    ]
    counted = [json.loads(line) for line in (root / "v1/log.jsonl").read_text().splitlines()]
    assert [one.get("hits") for one in counted][-1] == 1


@pytest.mark.skipif(rows.library() is None, reason="the C library is not built")
def test_no_changed_byte_of_an_entry_is_served_by_its_key(root: Path) -> None:
    """Every byte of a small entry is flipped, and it is cut at every length; another key's entry is none."""
    library = rows.library()
    assert library is not None
    assert _program_cache(root, "cache[b'a'] = b'code'; print(len(cache))") == 1
    (entry,) = root.rglob("*.gpc")
    key, sound, place = bytes.fromhex(entry.stem), entry.read_bytes(), os.fsencode(root)
    assert library.entry(place, key, writes=False)[1:] == (b"code",)
    for at in range(len(sound)):
        for damaged in (sound[:at], sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :]):
            entry.write_bytes(damaged)
            assert library.entry(place, key, writes=False) == ()
    entry.write_bytes(sound)
    other = entry.parent.with_name("00") / f"{'0' * 64}.gpc"
    other.parent.mkdir()
    other.write_bytes(sound)
    assert library.entry(place, bytes(32), writes=False) == ()


@pytest.mark.skipif(rows.library() is None, reason="the C library is not built")
def test_a_hit_without_memory_is_not_for_c_to_answer(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where Python reads an entry, no exception reaches the program."""
    library = rows.library()
    assert library is not None
    assert _program_cache(root, "cache[b'a'] = b'code'; print(len(cache))") == 1
    (entry,) = root.rglob("*.gpc")

    def fail(at: int, size: int) -> bytes:
        raise MemoryError

    monkeypatch.setattr("ctypes.string_at", fail)
    assert library.entry(os.fsencode(root), bytes.fromhex(entry.stem), writes=False) == ()


def test_cuda_core_is_not_served_a_damaged_entry(root: Path) -> None:
    """A flipped byte is a miss for cuda.core, which compiles and stores a sound entry in its place."""
    assert _program_cache(root, "compiled(); print(len(cache))") == 1
    (entry,) = root.rglob("*.gpc")
    sound = entry.read_bytes()
    entry.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    script = "compiled(); compiled(); print(json.dumps([answers, len(cache)]))"
    assert _program_cache(root, script) == [["miss", "hit"], 1]


def test_cuda_core_can_forget(root: Path) -> None:
    """Entries of cuda.core can be removed one by one or all at once; those of other programs stay."""
    assert _compiled(_run(root, _job())) == [1]
    script = """
cache[b"a"] = cache["b"] = b"code"
counts = [len(cache)]
del cache[b"b"]
counts.append(len(cache))
try:
    del cache["b"]
except KeyError:
    counts.append("gone")
cache.clear()
print(json.dumps([*counts, len(cache), cache.get(b"a")]))
"""
    assert _program_cache(root, script) == [2, 1, "gone", 0, None]
    assert _compiled(_run(root, _job(compiling=False))) == [0]


def test_cuda_core_forgets_all_at_once(root: Path) -> None:
    """The rows of a root are read once, not once for each entry."""
    script = """
from gpucache.store.records import Records
forgotten, forget = [], Records.forget
Records.forget = lambda self, keys: (forgotten.append(len(keys)), forget(self, keys))
cache["a"] = cache["b"] = b"code"
cache.clear()
print(json.dumps(forgotten))
"""
    assert _program_cache(root, script) == [2]


@pytest.mark.parametrize("disabled", ["0", "1"])
def test_a_key_or_value_of_another_type_is_refused_as_cuda_core_does(root: Path, disabled: str) -> None:
    """Values that cuda.core's own caches refuse are refused with their words, even if nothing is kept."""
    script = f"""
import os
from cuda.core.utils import InMemoryProgramCache

def refused(cache, call):
    try:
        call(cache)
    except TypeError as error:
        return str(error)

calls = [
    *(lambda cache, key=key: cache[key] for key in (5, None, 1.5, memoryview(b"a"))),
    *(lambda cache, key=key: cache.update([(key, b"code")]) for key in (5, None)),
    *(lambda cache, key=key: cache.__delitem__(key) for key in (5, None)),
    *(lambda cache, value=value: cache.update({{"a": value}}) for value in ("text", None, 5)),
]
os.environ["GPUCACHE_DISABLE"] = "{disabled}"
caches = (InMemoryProgramCache(), ProgramCache())
print(json.dumps([[refused(one, call) for call in calls] for one in caches]))
"""
    theirs, ours = _program_cache(root, script)
    assert ours == theirs


def test_cuda_core_never_fails_because_of_the_cache(tmp_path: Path) -> None:
    """If nothing can be stored cuda.core compiles each time, and counts no entries."""
    (tmp_path / "file").write_bytes(b"")
    script = "print(json.dumps([compiled() == compiled(), answers, len(cache)]))"
    assert _program_cache(tmp_path / "file", script) == [True, ["miss", "miss"], 0]


_UPGRADED = """
import ctypes, sys
from pathlib import Path
folder, door = sys.argv[1:]
for name in ("libnvrtc.so.*[0-9]", "libnvrtc-builtins.so.*[0-9]"):
    for file in sorted(Path(folder).glob(name)):
        if "alt" not in file.name and ("builtins" not in name or door != "late"):
            ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)
print("loaded", flush=True)
sys.stdin.readline()
source = 'extern "C" __global__ void k(int *o) { *o = 5; }'
from gpucache.cuda import ProgramCache, compile_program, flush
if door == "ProgramCache":
    from cuda.core import Program, ProgramOptions
    Program(source, "c++", ProgramOptions(arch="sm_80")).compile("cubin", cache=ProgramCache())
else:
    compile_program(source, target="sm_80")
flush()
"""


def _another_build(file: Path) -> None:
    """Put a library of another build id in the place of one, as an upgrade does."""
    build_id = bytes.fromhex(mark(file))
    data = file.read_bytes()
    assert data.count(build_id) == 1
    new = file.with_suffix(".new")
    new.write_bytes(data.replace(build_id, build_id[:-1] + bytes([build_id[-1] ^ 1])))
    new.replace(file)


@pytest.mark.skipif(sys.platform != "linux", reason="loaded libraries are found on Linux")
@pytest.mark.parametrize("door", ["compile_program", "ProgramCache", "late"])
def test_a_compiler_that_was_replaced_while_its_process_lives_has_its_own_entries(
    tmp_path: Path, door: str
) -> None:
    """New processes do not hit what an old one compiles by the library that it had loaded."""
    (tmp_path / "lib").mkdir()
    known = [path for path in nvrtc_libraries(version()) if path is not None]
    files = [Path(shutil.copy(path, tmp_path / "lib")) for path in known]
    environ = {**os.environ, "GPUCACHE_DIR": str(tmp_path / "root"), "LD_LIBRARY_PATH": str(tmp_path / "lib")}
    command, pipe = [sys.executable, "-c", _UPGRADED, str(tmp_path / "lib"), door], subprocess.PIPE
    entries = []
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environ) as old:
        assert old.stdout is not None and old.stdout.readline() == "loaded\n"
        for file in files:
            _another_build(file)
        old.communicate("\n", timeout=PATIENCE_S)
    assert old.returncode == 0
    entries.append({path.name for path in tmp_path.rglob("*.gpc")})
    done = run_text(command, env=environ, input="\n")
    assert done.returncode == 0, done.stderr
    entries.append({path.name for path in tmp_path.rglob("*.gpc")} - entries[0])
    assert [len(some) for some in entries] == [1, 1]


def test_a_program_below_run_has_the_keys_of_one_without(tmp_path: Path) -> None:
    """There our own library has the name of NVRTC, and its build tells nothing about the compiler."""
    program = f"from gpucache.cuda import compile_program; compile_program({_SHOW!r}, target='sm_90')"
    below = _gpucache(tmp_path, "run", "-q", "--", sys.executable, "-c", program)
    assert below.returncode == 0, below.stderr
    environ = _environment(tmp_path, {"GPUCACHE_REQUIRE": "1"})
    alone = run_text([sys.executable, "-c", program], env=environ)
    assert (alone.returncode, alone.stderr) == (0, "")
