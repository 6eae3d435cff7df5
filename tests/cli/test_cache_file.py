"""A cache in one file: below ``run``, in the library, for the verbs, and in memory across MPI ranks."""

import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path

import pytest

from gpucache.native.build import BUILT, STARTER
from tests.children import run_text
from tests.clusters import Mpi
from tests.nvrtc import need_nvrtc
from tests.patience import TIME_OUT_MS

_GPUCACHE = (sys.executable, "-m", "gpucache")
_CUDA = """
import sys
from cuda.core import Program, ProgramOptions
source = 'extern "C" __global__ void scale(float *y) { y[threadIdx.x] *= %s; }' % sys.argv[1]
Program(source, "c++", ProgramOptions(arch="sm_90")).compile("cubin")
"""
_OPENCL = """
import os, sys, gpucache
gpucache.install(cache_file=sys.argv[1])
import pyopencl as cl
[device] = next(one.get_devices() for one in cl.get_platforms() if one.name.startswith("Intel"))
source = "__kernel void scale(__global float *y) { y[get_global_id(0)] *= %s; }" % sys.argv[2]
cl.Program(cl.Context([device]), source).build()
exec(sys.argv[3])
"""
_CHILD = """
import multiprocessing, sys, gpucache
from gpucache.cuda import compile_program
def work():
    gpucache.install(cache_file=sys.argv[1])
    compile_program('extern "C" __global__ void a() {}', target="sm_90")
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
"""
_RANKS = """
import gpucache
gpucache.install()
from mpi4py import MPI
import numpy as np, pyopencl as cl
comm = MPI.COMM_WORLD
[device] = next(one.get_devices() for one in cl.get_platforms() if one.name.startswith("Intel"))
context = cl.Context([device])
source = "__kernel void twice(__global float *y) { y[get_global_id(0)] *= 2; }"
if comm.rank == 0:
    cl.Program(context, source).build()
kept = gpucache.restore(comm.bcast(gpucache.bundle() if comm.rank == 0 else None))
program, queue, values = cl.Program(context, source).build(), cl.CommandQueue(context), np.ones(2, np.float32)
buffer = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=values)
program.twice(queue, values.shape, None, buffer)
cl.enqueue_copy(queue, values, buffer)
MPI.COMM_WORLD.gather(None)
print(f"rank {comm.rank} kept {kept} and has {values.tolist()}", flush=True)
"""
Result = subprocess.CompletedProcess[str]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "app.cache"


@pytest.fixture
def run_cuda(file: Path) -> Callable[..., Result]:
    """``gpucache run`` with an NVRTC program and other words before it."""
    need_nvrtc()
    environ = {**os.environ, "GPUCACHE_RUN_TIMEOUT_MS": TIME_OUT_MS}

    def run(factor: object, *words: object, **more: str) -> Result:
        command = [*_GPUCACHE, "run", *(words or ("--cache-file", file)), "--", sys.executable, "-c", _CUDA]
        return run_text([*command, factor], env=environ | more)

    return run


@pytest.fixture
def run_opencl(file: Path, opencl_environment: Mapping[str, str]) -> Callable[..., Result]:
    """A program that installs the file, builds, and does something more."""

    def run(factor: object, *, then: str = "", at: Path = file, **more: str) -> Result:
        environ = {**opencl_environment, "GPUCACHE_LOG": "info", "PYTHONWARNINGS": "ignore", **more}
        return run_text([sys.executable, "-c", _OPENCL, at, factor, then], env=environ)

    return run


def test_run_keeps_the_cache_in_a_file(run_cuda: Callable[..., Result], file: Path) -> None:
    """The line at the end says what the file has; nothing is kept in any other place."""
    miss, hit = run_cuda(2), run_cuda(2)
    assert "0 hits, 1 miss" in miss.stderr and "app.cache written (2 entries, " in miss.stderr
    assert "1 hit, 0 misses" in hit.stderr and "app.cache unchanged (2 entries, " in hit.stderr
    assert ([*file.parent.iterdir()], [*Path(os.environ["XDG_CACHE_HOME"]).iterdir()]) == ([file], [])


def test_a_file_that_was_removed_meanwhile_is_written_again(
    run_cuda: Callable[..., Result], file: Path
) -> None:
    """Also after a run with hits alone, whose cache is as it was."""
    run_cuda(2)
    run = [*_GPUCACHE, "run", "--cache-file", file, "--", "sh", "-c", 'rm "$0"; exec "$@"', file]
    gone = run_text([*run, sys.executable, "-c", _CUDA, "2"])
    assert "1 hit, 0 misses" in gone.stderr and "app.cache written (2 entries, " in gone.stderr
    assert "1 hit, 0 misses" in run_cuda(2).stderr


def test_a_file_has_no_counters(run_cuda: Callable[..., Result], file: Path) -> None:
    """Rather than zeros for ever, inspect --stats says so."""
    run_cuda(2)
    told = run_text([*_GPUCACHE, "inspect", "--stats", "--cache", file])
    assert told.returncode == 2 and "a cache in a file has no counters" in told.stderr


_BY_C = [str(BUILT / STARTER), "--by=3", "sh", "-c", "exit 99"]
"""``gpucache`` in C, with something else in place of Python."""


def test_a_hit_from_a_file_starts_no_python(
    run_cuda: Callable[..., Result], file: Path, tmp_path: Path
) -> None:
    """The line is the same, no directory is left, and the first miss starts Python."""
    run_cuda(4)
    before = file.read_bytes()
    by_python = run_cuda(4)
    command = ["--", sys.executable, "-c", _CUDA]
    done = run_text([*_BY_C, "run", "--cache-file", file, *command, 4])
    assert (done.returncode, done.stdout) == (0, by_python.stdout), done.stderr
    assert done.stderr.split("; ")[-1] == by_python.stderr.split("; ")[-1]
    assert run_text([*_BY_C, "run", "-q", f"--cache-file={file}", *command, 4]).stderr == ""
    by_variable = run_text([*_BY_C, "run", *command, 4], env={**os.environ, "GPUCACHE_FILE": str(file)})
    assert (by_variable.returncode, file.read_bytes()) == (0, before)
    assert run_text([*_BY_C, "run", "--cache-file", file, *command, 5]).returncode == 99
    assert run_text([*_BY_C, "run", "--cache-file", tmp_path / "none", *command, 4]).returncode == 99
    assert run_cuda(5).returncode == 0 and len(file.read_bytes()) > len(before)
    told = run_text([*_BY_C, "run", "--cache-file", file, "--", "sh", "-c", "ls -d $GPUCACHE_DIR/v1"])
    assert told.stdout and not Path(told.stdout.strip()).parents[1].exists()


@pytest.mark.parametrize(
    "name", ["v1/rows/../../../x", "/x", "v1/entries/ab/../../x", "v1/tmp/x", "v1/rows/.x"]
)
def test_a_member_that_no_root_has_is_not_unpacked(
    run_cuda: Callable[..., Result], file: Path, tmp_path: Path, name: str
) -> None:
    """C leaves the file to Python, which unpacks what is a root's."""
    run_cuda(4)
    with tarfile.open(file, "a") as tar:
        info = tarfile.TarInfo(name)
        info.size = 1
        tar.addfile(info, BytesIO(b"x"))
    done = run_text([*_BY_C, "run", "--cache-file", file, "--", "true"])
    assert done.returncode == 99
    hit = run_cuda(4)
    assert (hit.returncode, "1 hit" in hit.stderr, (tmp_path / "x").exists()) == (0, True, False)


def test_the_file_does_not_grow(file: Path, tmp_path: Path) -> None:
    """Versions of one source replace each other."""
    need_nvrtc()
    source, sizes = tmp_path / "a.cu", list[int]()
    for factor in range(3):
        source.write_text(f'extern "C" __global__ void a(int *p) {{ *p = {factor}; }}\n', encoding="utf-8")
        command = [*_GPUCACHE, "warm", source, "--target", "cuda:sm_90"]
        run_text(command, env={**os.environ, "GPUCACHE_FILE": str(file)})
        sizes.append(file.stat().st_size)
    assert len(set(sizes)) == 1


def test_the_variable_is_heeded_by_run_and_every_verb(run_cuda: Callable[..., Result], file: Path) -> None:
    """Without the option, the variable names the file."""
    environ = {"GPUCACHE_FILE": str(file)}
    run_cuda(2, "-v", **environ)
    hit = run_cuda(2, "-v", **environ)
    shown = run_text([*_GPUCACHE, "inspect"], env={**os.environ, **environ})
    assert "1 hit, 0 misses" in hit.stderr
    assert str(file) in shown.stdout


@pytest.mark.parametrize("named", ["--root", "--cache"])
def test_verbs_take_a_file_as_a_root(run_cuda: Callable[..., Result], file: Path, named: str) -> None:
    """inspect and verify read it and leave it alone; evict removes entries in it."""
    run_cuda(2)
    before = file.read_bytes()
    told = [run_text([*_GPUCACHE, verb, named, file]).stdout for verb in ("inspect", "verify")]
    unchanged = file.read_bytes() == before
    evicted = run_text([*_GPUCACHE, "evict", named, file, "--all", "--yes"])
    left = run_text([*_GPUCACHE, "verify", named, file]).stdout
    assert "GPUCACHE_DIR" not in told[0]
    assert (str(file) in told[0], told[1].split(" ")[0], unchanged) == (True, "2", True)
    assert (evicted.returncode, left.split(" ")[0]) == (0, "0")


def test_warm_fills_a_file_whose_workers_publish_into_it(file: Path, tmp_path: Path) -> None:
    """The workers of one process share its directory."""
    need_nvrtc()
    source = tmp_path / "a.cu"
    source.write_text('extern "C" __global__ void a(int *p) { *p = 1; }\n', encoding="utf-8")
    command = [*_GPUCACHE, "warm", source, "--target", "cuda:sm_90"]
    built = run_text(command, env={**os.environ, "GPUCACHE_FILE": str(file)})
    checked = run_text([*_GPUCACHE, "--root", file, *command[3:], "--check"])
    assert (built.returncode, checked.returncode) == (0, 0), built.stdout + built.stderr


def test_a_damaged_file_is_found_by_verify(run_cuda: Callable[..., Result], file: Path) -> None:
    """verify says where the file is damaged and exits with 5; a run replaces it."""
    run_cuda(2)
    whole = bytearray(file.read_bytes())
    whole[20] ^= 1
    file.write_bytes(whole)
    found = run_text([*_GPUCACHE, "verify", "--cache", file])
    miss = run_cuda(2)
    mended = run_text([*_GPUCACHE, "verify", "--cache", file])
    assert (found.returncode, "is damaged at byte 0" in found.stderr) == (5, True)
    assert ("is damaged at byte 0" in miss.stderr, "0 hits, 1 miss" in miss.stderr) == (True, True)
    assert (miss.returncode, mended.returncode) == (0, 0)


def test_a_file_that_cannot_be_kept_is_said_before_the_start(
    run_cuda: Callable[..., Result], file: Path
) -> None:
    """A missing directory, another file and two places are usage errors, and nothing is run."""
    file.write_text("text\n", encoding="utf-8")
    for words, sentence in (
        (("--cache-file", file.parent / "no" / "a.cache"), "does not exist, so a.cache cannot be kept"),
        (("--cache-file", file), "is not a cache in a file, and stays"),
        (("--cache-file", file, "--root", file.parent), "both name the cache"),
    ):
        done = run_cuda(2, *words)
        assert (done.returncode, sentence in done.stderr) == (2, True), done.stderr
    assert file.read_text(encoding="utf-8") == "text\n"


def test_a_file_that_is_not_trusted_does_not_keep_a_command_from_running(
    run_cuda: Callable[..., Result], file: Path
) -> None:
    """The command runs uncached, as with a root that cannot be used."""
    run_cuda(2)
    file.chmod(0o666)
    done = run_cuda(2)
    assert (done.returncode, "is not trusted" in done.stderr) == (0, True), done.stderr


def test_a_file_that_cannot_be_written_is_said_once(file: Path) -> None:
    """The command ends as without gpucache, also where its directory lets nothing be written at the end."""
    need_nvrtc()
    program = f"{_CUDA}\nimport os; os.mkdir(sys.argv[2])"
    environ = {**os.environ, "GPUCACHE_RUN_TIMEOUT_MS": TIME_OUT_MS}
    command = [*_GPUCACHE, "run", "--cache-file", file, "--", sys.executable, "-c", program, "2", file]
    done = run_text(command, env=environ)
    assert (done.returncode, done.stderr.count("was not written")) == (0, 1), done.stderr


def test_a_command_that_a_signal_ends_has_its_builds_kept(file: Path) -> None:
    """The file is written before this process ends by the same signal."""
    need_nvrtc()
    program = f"{_CUDA}\nimport os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    environ = {**os.environ, "GPUCACHE_RUN_TIMEOUT_MS": TIME_OUT_MS}
    command = [*_GPUCACHE, "run", "--cache-file", file, "--", sys.executable, "-c", program, "2"]
    done = run_text(command, env=environ)
    assert (done.returncode, "written (2 entries" in done.stderr) == (-signal.SIGKILL, True)


def test_install_keeps_the_cache_of_a_program_in_a_file(
    run_opencl: Callable[..., Result], file: Path
) -> None:
    """It is written when the program ends, and read by the next."""
    miss, hit = run_opencl(2), run_opencl(2)
    assert ("miss scale" in miss.stderr, "hit scale" in hit.stderr, file.exists()) == (True, True, True)


@pytest.mark.parametrize(
    ("then", "written"),
    [
        ("import gpucache.opencl; gpucache.opencl.flush(); os._exit(0)", True),
        ("import gpucache.library.missing as m; m.LATER.wait(); os.kill(os.getpid(), 9)", False),
        ("sys.exit(7)", True),
    ],
    ids=["flush", "killed", "exit"],
)
def test_flush_and_every_exit_write_the_file(
    run_opencl: Callable[..., Result], file: Path, then: str, written: bool
) -> None:
    """A process that is killed loses its news, and its directory is removed by a later one."""
    run_opencl(2, then=then)
    assert file.exists() == written
    assert ("hit scale" in run_opencl(2).stderr) == written


def test_a_child_of_multiprocessing_writes_the_file(file: Path) -> None:
    """It ends without the functions that Python calls at an exit."""
    need_nvrtc()
    done = run_text([sys.executable, "-c", _CHILD, file])
    shown = run_text([*_GPUCACHE, "verify", "--cache", file])
    assert (done.returncode, shown.stdout.split(" ")[0]) == (0, "1"), done.stderr


def test_a_file_that_cannot_be_used_is_no_error_of_the_program(
    run_opencl: Callable[..., Result], tmp_path: Path
) -> None:
    """The program runs uncached, and its log says why once."""
    done = run_opencl(2, at=tmp_path / "no" / "app.cache")
    assert (done.returncode, done.stderr.count("does not exist, so app.cache cannot be kept there")) == (0, 1)


def test_export_root_writes_the_file_of_a_program(
    run_cuda: Callable[..., Result], file: Path, tmp_path: Path
) -> None:
    """A run hits in it from the first start, and a program without entries is refused."""
    root = tmp_path / "root"
    run_cuda(2, "--root", root)
    made = run_text([*_GPUCACHE, "--root", root, "export", "root", file, "--program", "scale"])
    none = run_text([*_GPUCACHE, "--root", root, "export", "root", file, "--program", "other"])
    hit = run_cuda(2)
    assert (made.returncode, none.returncode, "has no entries of other" in none.stderr) == (0, 2, True)
    assert "1 hit, 0 misses" in hit.stderr


@pytest.mark.slow
def test_ranks_without_a_disk_hit_in_the_bundle_of_one(
    tmp_path: Path, opencl_environment: Mapping[str, str]
) -> None:
    """Rank 0 compiles and broadcasts; three ranks see every disk read-only, may not miss, and hit."""
    if shutil.which("bwrap") is None:
        pytest.skip("bwrap is not installed")
    mpi = Mpi(tmp_path, [])
    environ = {
        **opencl_environment, **mpi.environ, "GPUCACHE_LOG": "info", "PYTHONWARNINGS": "ignore",
    }  # fmt: skip
    python = [sys.executable, "-c", _RANKS]
    sandbox = ["bwrap", "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc"]
    for name, value in {"GPUCACHE_DIR": "/gpucache", "GPUCACHE_REQUIRE": "1"}.items():
        sandbox += ["--setenv", name, value]
    if run_text([*sandbox, "true"]).returncode:
        pytest.skip("bwrap may not make a namespace here")
    command = ["mpiexec", "-n", "1", *python]
    for _ in range(3):
        command += [":", "-n", "1", *sandbox, *python]
    done = run_text(command, env=environ)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} kept 1 and has [2.0, 2.0]" for rank in range(4)]
    assert (done.stderr.count("miss twice"), done.stderr.count("hit twice")) == (1, 4)
    assert done.stderr.count("in memory") >= 3
