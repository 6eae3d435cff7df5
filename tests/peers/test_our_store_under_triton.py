"""Our store as Triton's cache, with kernels that it compiles ahead of time for an absent GPU.

The environment variable GPUCACHE_TEST_TRITON_3_2_PYTHON names an interpreter with that version.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.peers.owners import TRITON_KERNEL
from tests.remote.fleet import PATIENT

_OLD = os.environ.get("GPUCACHE_TEST_TRITON_3_2_PYTHON")
_INSTALLED = importlib.util.find_spec("triton") is not None
_HERE = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not _INSTALLED, reason="Triton is not installed")]

_KERNEL = (
    "import os\n"
    + TRITON_KERNEL
    + """
def compiled(block=64, warps=4):
    if triton.__version__.startswith("3.2"):
        source = ASTSource(scale, {"x": "*fp32", "n": "i32"}, constants={"BLOCK": block})
    else:
        types = {"x": "*fp32", "n": "i32", "BLOCK": "constexpr"}
        source = ASTSource(scale, types, constexprs={"BLOCK": block})
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
"""
)

_TWO = """
for warps in (4, 8):
    first, again = compiled(warps=warps), compiled(warps=warps)
    assert all(os.path.exists(path) for path in first.metadata_group.values())
    print(first.metadata.num_warps, first.asm["cubin"] == again.asm["cubin"])
"""

_LISTENING = """
triton.knobs.compilation.listener = lambda cache_hit, **_: print(cache_hit)
compiled()
"""

# Each process marks its compiles, as two of one key may differ.
_AT_ONCE = """
import multiprocessing
from triton.backends.nvidia.compiler import CUDABackend

plain = CUDABackend.add_stages

def marked(stage, ext, mark):
    def run(source, metadata):
        made = stage(source, metadata)
        metadata["mark"] = mark
        if ext == "ptx":
            return made + f"// mark {mark};"
        return made + f"mark {mark};".encode() if ext == "cubin" else made
    return run

def work(number, barrier, marks):
    def add_stages(self, stages, *others):
        plain(self, stages, *others)
        for ext, stage in stages.items():
            stages[ext] = marked(stage, ext, number)
    CUDABackend.add_stages = add_stages
    for block in (64, 128, 256):
        barrier.wait()
        kernel = compiled(block)
        mark = f"mark {kernel.metadata.mark};"
        assert mark in kernel.asm["ptx"] and kernel.asm["cubin"].endswith(mark.encode())
        marks.put(kernel.metadata.mark)

context = multiprocessing.get_context("fork")
barrier, marks = context.Barrier(8), context.SimpleQueue()
processes = [context.Process(target=work, args=(number, barrier, marks)) for number in range(8)]
for process in processes:
    process.start()
for process in processes:
    process.join()
print([process.exitcode for process in processes])
"""


_LATER = """
for block in (64, 128, 256):
    kernel = compiled(block)
    mark = f"mark {kernel.metadata.mark};"
    if mark in kernel.asm["ptx"] and kernel.asm["cubin"].endswith(mark.encode()):
        print("whole")
"""

# As on a file system without locks, where every process compiles.
_WITHOUT_LOCKS = """
import fcntl

def refused(fd, operation):
    raise OSError("no locks here")

fcntl.flock = refused
"""

# The manager of a compile that fails goes with it, and so does its lock.
_FAILING = """
@triton.jit
def wrong(x):
    tl.store(x, tl.load(x) + tl.static_assert(False))

for _ in range(2):
    try:
        triton.compile(ASTSource(wrong, {"x": "*fp32"}), target=GPUTarget("cuda", 90, 32))
    except Exception as error:
        print("failed")
"""


def _environ(place: Path, **others: str) -> dict[str, str]:
    ours = {
        "TRITON_CACHE_MANAGER": "gpucache.triton:CacheManager",
        "TRITON_CACHE_DIR": str(place / "triton"),
        "GPUCACHE_DIR": str(place / "root"),
        "GPUCACHE_LOG": "info",
        "PYTHONPATH": os.pathsep.join([str(_HERE), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PYTHONWARNINGS": "ignore",
    }
    return {**os.environ, **ours, **others}


def _run(
    place: Path, script: str = _TWO, before: Sequence[str] = (), python: str = sys.executable, **others: str
) -> subprocess.CompletedProcess[str]:
    program = place / "program.py"  # Triton reads the sources of kernels from their files
    program.write_text(_KERNEL + script, encoding="ascii")
    environ = _environ(place, **others)
    command = [*before, python, str(program)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done


def _outcomes(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Hit or miss with its reason, for each kernel that was looked up."""
    lines = [line.removeprefix("gpucache: ") for line in done.stderr.splitlines()]
    told = [line for line in lines if line.startswith(("hit", "miss"))]
    return [line.split(" ")[0] if line.startswith("hit") else line.split(": ")[1] for line in told]


_FIRST = ["never-built", "hit", "key-changed", "hit"]


@pytest.mark.parametrize("python", [sys.executable, _OLD], ids=["installed", "3.2"])
def test_a_second_start_hits_and_runs_no_compiler(tmp_path: Path, python: str | None) -> None:
    """The same kernels come only from the entries, into a new directory of Triton's."""
    if python is None:
        pytest.skip("GPUCACHE_TEST_TRITON_3_2_PYTHON is not set")
    first = _run(tmp_path, python=python)
    assert _outcomes(first) == _FIRST and first.stdout == "4 True\n8 True\n"
    assert "num_warps 4 -> 8" in first.stderr
    shutil.rmtree(tmp_path / "triton")
    trace = tmp_path / "trace"
    strace = shutil.which("strace")
    before = [strace, "-f", "--seccomp-bpf", "-e", "trace=execve", "-o", str(trace)] if strace else []
    second = _run(tmp_path, before=before, python=python)
    assert _outcomes(second) == ["hit"] * 4 and second.stdout == first.stdout
    ran = trace.read_text().splitlines() if strace else []
    assert not [line for line in ran if "ptxas" in line and "--version" not in line and "execve(" in line]


def test_what_is_kept_of_a_kernel_says_what_it_is(tmp_path: Path) -> None:
    """Entries have program, target and options, by which two are compared; the binary can be extracted."""
    _run(tmp_path)
    gpucache = [sys.executable, "-m", "gpucache", "--root", str(tmp_path / "root")]

    def told(*arguments: str) -> str:
        done = subprocess.run([*gpucache, *arguments], capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        return done.stdout

    keys = [path.stem for path in (tmp_path / "root").rglob("*.gpc")]
    shown = told("inspect", keys[0])
    assert "scale for cuda:sm_90" in shown and "scale.cubin" in shown and "num_warps" in shown
    assert "num_warps" in told("inspect", "--why", *keys)
    assert "2 entries checked: no fault found" in told("verify", "--strict")
    told("inspect", keys[0], "--extract", str(tmp_path / "binary"))
    assert (tmp_path / "binary").read_bytes().startswith(b"\x7fELF")
    assert "2 hits, 2 misses" in told("inspect")


def _changed(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def _gone(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("damage", [_changed, _gone])
def test_a_damaged_directory_of_triton_is_not_served(tmp_path: Path, damage: object) -> None:
    """The kernel is still hit, with the bytes of its entry."""
    _run(tmp_path)
    assert callable(damage)
    for file in (tmp_path / "triton").rglob("*.cubin"):
        damage(file)
    script = "import hashlib; print(hashlib.sha256(compiled().asm['cubin']).hexdigest())"
    served = _run(tmp_path, script).stdout
    shutil.rmtree(tmp_path / "triton")
    assert _run(tmp_path, script).stdout == served


def test_a_damaged_entry_is_compiled_again(tmp_path: Path) -> None:
    """And reports that."""
    _run(tmp_path)
    for file in (tmp_path / "root").rglob("*.gpc"):
        _changed(file)
    assert _outcomes(_run(tmp_path)) == ["corrupt", "hit", "corrupt", "hit"]


def test_processes_that_want_a_kernel_at_once_compile_it_once(tmp_path: Path) -> None:
    """The others hit."""
    done = _run(tmp_path, _AT_ONCE)
    assert done.stdout == f"{[0] * 8}\n"
    assert sorted(_outcomes(done)) == ["hit"] * 21 + ["key-changed"] * 2 + ["never-built"]


def test_processes_that_compile_a_kernel_at_once_never_mix_their_files(tmp_path: Path) -> None:
    """Whatever the others write, each has the metadata, the PTX and the binary of one compile."""
    assert _run(tmp_path, _WITHOUT_LOCKS + _AT_ONCE).stdout == f"{[0] * 8}\n"
    later = _run(tmp_path, _LATER)
    assert later.stdout == "whole\n" * 3 and _outcomes(later) == ["hit"] * 3


def test_without_a_root_triton_uses_its_own_cache(tmp_path: Path) -> None:
    """It hits there at the second start, and the reason is logged once."""
    (tmp_path / "root").write_bytes(b"")
    assert _run(tmp_path).stdout == "4 True\n8 True\n"
    second = _run(tmp_path, _LISTENING)
    assert second.stdout == "True\n" and second.stderr.count("is not a directory") == 1


def test_a_directory_that_cannot_be_written_costs_no_hit(tmp_path: Path) -> None:
    """The files are in a directory of the process, which is removed with it; the reason is logged once."""
    (tmp_path / "triton").write_bytes(b"")
    (tmp_path / "tmp").mkdir()
    assert _run(tmp_path, TMPDIR=str(tmp_path / "tmp")).stdout == "4 True\n8 True\n"
    second = _run(tmp_path, TMPDIR=str(tmp_path / "tmp"))
    assert _outcomes(second) == ["hit"] * 4 and not [*(tmp_path / "tmp").iterdir()]
    assert second.stderr.count("cannot be kept where it looks for them") == 1


def test_triton_reads_what_ours_left(tmp_path: Path) -> None:
    """A program without our manager hits in the same directory."""
    _run(tmp_path)
    script = "triton.knobs.compilation.listener = lambda cache_hit, **_: print(cache_hit)\ncompiled()"
    assert (
        _run(tmp_path, script, TRITON_CACHE_MANAGER="triton.runtime.cache:FileCacheManager").stdout
        == "True\n"
    )


def test_files_that_are_no_kernel_are_kept_alone(tmp_path: Path) -> None:
    """Such as a library for the host, even if two have one key; each is served as it was stored."""
    script = """
from triton.runtime.cache import get_cache_manager
manager = get_cache_manager("00" * 32)
for name, data in (("a.so", b"\\x7fELF\\xff"), ("b.json", "text")):
    path = manager.get_file(name) or manager.put(data, name)
    print(name, open(path, "rb").read())
"""
    told = "a.so b'\\x7fELF\\xff'\nb.json b'text'\n"
    assert _run(tmp_path, script).stdout == told
    second = _run(tmp_path, script)
    assert (second.stdout, _outcomes(second)) == (told, ["hit", "hit"])


def test_another_machine_hits_what_a_store_has(tmp_path: Path) -> None:
    """With GPUCACHE_REMOTE, into a root that is empty."""
    store = tmp_path / "store"
    store.mkdir()
    remote = {"GPUCACHE_REMOTE": str(store), "GPUCACHE_REMOTE_WRITE": "1", **PATIENT}
    assert _outcomes(_run(tmp_path, **remote)) == _FIRST
    for name in ("root", "triton"):
        shutil.rmtree(tmp_path / name)
    assert _outcomes(_run(tmp_path, **remote)) == ["hit"] * 4


def test_a_compile_that_fails_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Its lock is free for the next compile, also in the same process."""
    assert _run(tmp_path, _FAILING).stdout == "failed\nfailed\n"
    assert not [*(tmp_path / "root").rglob("*.lock")]


def test_a_program_runs_where_neither_cache_can_be_written(tmp_path: Path) -> None:
    """From files of the process."""
    for name in ("root", "triton"):
        (tmp_path / name).write_bytes(b"")
    assert _run(tmp_path).stdout == "4 True\n8 True\n"


def test_a_required_hit_fails_the_compile(tmp_path: Path) -> None:
    """With GPUCACHE_REQUIRE=1 a miss is an error."""
    script = (
        "from gpucache.errors import CacheMissError\ntry: compiled()\nexcept CacheMissError: print('missed')"
    )
    assert _run(tmp_path, script, GPUCACHE_REQUIRE="1").stdout == "missed\n"


def test_another_build_of_ptxas_under_its_version_hits_nothing(tmp_path: Path) -> None:
    """Triton's key has the version that ptxas tells, and no more of it."""
    import triton

    tool = Path(shutil.copy(Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas", tmp_path))
    found = []
    for added in (b"", b"", b"\0"):
        with tool.open("ab") as file:
            file.write(added)
        found += _outcomes(_run(tmp_path, "compiled()", TRITON_PTXAS_PATH=str(tool)))
        shutil.rmtree(tmp_path / "triton")
    assert found == ["never-built", "hit", "opaque-key"]
