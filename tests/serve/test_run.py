"""``gpucache run`` with real programs: their builds are served, and they never fail because of it."""

import ctypes.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pyopencl
import pytest

from gpucache.answers.run_lines import UNSEEN, unbuilt
from tests.children import run_text
from tests.pocl import PLATFORM, need_pocl
from tests.serve.conftest import PROGRAM, Done, without_us
from tests.unprivileged import needs_root

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="run is for Linux")]
INTEL = "Intel"
SOURCE = "kernel void scale(global float *a) { a[get_global_id(0)] *= FACTOR; }\n"
Call = Callable[..., "subprocess.CompletedProcess[str]"]
Program = Callable[..., Done]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The program's source as a file, for ``warm``."""
    path = tmp_path / "scale.cl"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def intel(gpucache: Call) -> str:
    devices = json.loads(gpucache("devices", "--json").stdout)["outcomes"]
    return str(next(one["target"] for one in devices if one["target"] and "intel" in one["target"]))


def test_a_miss_is_kept_and_hit_by_the_next_run(program: Program, environment: Mapping[str, str]) -> None:
    """Three runs print the same: without us, missing, and hitting."""
    alone = without_us(environment, INTEL, 2, 3)
    missed, hit = program(INTEL, 2, 3), program(INTEL, 2, 3)
    assert [(one.code, one.out) for one in (missed, hit)] == [(0, alone)] * 2
    assert (missed.results, hit.results) == (["kept", "kept"], ["hit", "hit"])
    assert missed.report["summary"]["misses"] == hit.report["summary"]["hits"] == 2
    assert [one["key"] for one in hit.report["outcomes"]] == [one["key"] for one in missed.report["outcomes"]]
    assert "gpucache: 2 builds: 2 hits, 0 misses; " in hit.err


_SLOW_PROBE = """
import sys, time
if "gpucache.probe.child" in sys.orig_argv:
    time.sleep(2.5)
"""


def test_a_header_that_is_removed_after_its_build_is_no_obstacle(program: Program, tmp_path: Path) -> None:
    """The program writes it to a temporary directory, builds, and removes both; its device is known before,
    as the probe has a share of the time that the program waits."""
    (tmp_path / "sitecustomize.py").write_text(_SLOW_PROBE)
    path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    missed, hit = program(INTEL, "header", PYTHONPATH=path), program(INTEL, "header")
    assert (missed.out, hit.out, missed.results, hit.results) == ("256.0\n", "256.0\n", ["kept"], ["hit"])


@pytest.mark.parametrize(("before", "then"), [("", "corei7"), ("corei7", "")], ids=["set", "removed"])
def test_a_variable_that_is_changed_after_the_compiler_was_loaded_keeps_nothing(
    program: Program, before: str, then: str
) -> None:
    """The compiler may have read it before, so nothing is kept for programs that begin with the new value."""
    name = "CL_CONFIG_CPU_TARGET_ARCH"
    given = {name: before} if before else {}
    changed = program(INTEL, f"{name}={then}", 2, **given)
    assert (changed.code, changed.results) == (0, ["left"])
    assert f"the environment variable {name} was changed" in changed.report["outcomes"][0]["reason"]
    assert program(INTEL, 2, **({name: then} if then else {})).results == ["kept"]
    assert program(INTEL, "HOME=/tmp", 2, **({name: then} if then else {})).results == ["hit"]


def test_a_miss_is_explained(program: Program, gpucache: Call) -> None:
    """``inspect --misses`` shows the misses of a run, under the command's name."""
    program(INTEL, 2)
    program(INTEL, 3)
    misses = json.loads(gpucache("inspect", "--misses", "--json").stdout)["outcomes"]
    misses = [one for one in misses if one["kind"] == "miss"]
    assert [(one["program"], one["verdict"]) for one in misses] == [
        ("scale", "key-changed"),
        ("scale", "never-built"),
    ]
    assert {one["command"] for one in misses} == {PROGRAM.name}


def test_what_warm_built_is_hit(program: Program, gpucache: Call, source: Path, intel: str) -> None:
    assert gpucache("warm", source, "-D", "FACTOR=2", "--target", intel).returncode == 0
    assert program(INTEL, 2).results == ["hit"]


def test_what_a_run_built_is_there_for_warm(
    program: Program, gpucache: Call, source: Path, intel: str
) -> None:
    program(INTEL, 2)
    assert gpucache("warm", "--check", source, "-D", "FACTOR=2", "--target", intel).returncode == 0


def test_what_a_run_built_is_hit_by_the_library(program: Program, environment: Mapping[str, str]) -> None:
    """``build_program`` finds a run's entries, and a run those of ``build_program``."""
    code = f"""
import pyopencl as cl, gpucache.opencl as library
platform = next(each for each in cl.get_platforms() if each.name.startswith({INTEL!r}))
context = cl.Context(platform.get_devices()[:1])
for factor in (2, 3):
    library.build_program(context, {SOURCE!r}, options=f"-DFACTOR={{factor}}")
"""
    program(INTEL, 2)
    done = run_text(
        [sys.executable, "-W", "ignore", "-c", code], env={**environment, "GPUCACHE_LOG": "info"}, check=True
    )
    assert [line.split()[1] for line in done.stderr.splitlines()] == ["hit", "miss"]
    assert program(INTEL, 3).results == ["hit"]


@pytest.mark.parametrize("platform", [INTEL, PLATFORM])
def test_a_miss_of_the_library_counts_once(run: Program, gpucache: Call, platform: str) -> None:
    """It passes through the layer to the server, which writes it down, and so may the library."""
    need_pocl()
    code = f"""
import sys, pyopencl as cl, gpucache.opencl as library
platform = next(each for each in cl.get_platforms() if each.name.startswith({platform!r}))
context = cl.Context(platform.get_devices()[:1])
for source in ({SOURCE!r}, "kernel void wrong() {{ none; }}"):
    try:
        library.build_program(context, source, options="-DFACTOR=2")
    except cl.Error:
        print("failed")
"""
    assert run(sys.executable, "-W", "ignore", "-c", code).out == "failed\n"
    stats = json.loads(gpucache("inspect", "--stats", "--json").stdout)["summary"]
    assert (stats["hits"], stats["misses"]) == (0, 2)


def test_pyopencls_mark_against_caches_is_no_part_of_a_key(
    program: Program, gpucache: Call, source: Path, intel: str
) -> None:
    """With its own cache on, PyOpenCL appends a constant of another name to each source."""
    gpucache("warm", source, "-D", "FACTOR=2", "--target", intel)
    assert program(INTEL, 2, PYOPENCL_NO_CACHE="0").results == ["hit"]


def test_options_in_pyopencls_variable_count_once(
    program: Program, gpucache: Call, source: Path, intel: str
) -> None:
    """``warm`` and a run under the same variable have the same keys."""
    extra = {"PYOPENCL_BUILD_OPTIONS": "-DMORE=1 -cl-mad-enable"}
    gpucache("warm", source, "-D", "FACTOR=2", "--target", intel, **extra)
    assert program(INTEL, 2, **extra).results == ["hit"]
    assert program(INTEL, 2).results == ["kept"]


def test_a_late_compiler_is_learned_from(program: Program, gpucache: Call) -> None:
    """PoCL's program is noted and built afterwards for the local size that it launched; then it hits."""
    need_pocl()
    missed = program(PLATFORM, 2)
    assert (missed.results, missed.report["summary"]["learned"]) == (["noted"], 0)
    learned = program(PLATFORM, 2, learn=True)
    assert (learned.results, learned.report["summary"]["learned"]) == (["noted"], 1)
    assert "gpucache: building 1 program with all kernels for the next run; " in learned.err
    hit = program(PLATFORM, 2)
    assert (hit.results, hit.out) == (["hit"], missed.out)
    assert "instead of up to" in hit.err
    (entry,) = json.loads(gpucache("inspect", "scale", "--json").stdout)["outcomes"]
    assert entry["local_sizes"] == ["16"]


def test_a_new_local_size_is_learned(program: Program, gpucache: Call, source: Path) -> None:
    """A hit that was launched with a size it is not compiled for is built again for that too."""
    need_pocl()
    devices = json.loads(gpucache("devices", "--json").stdout)["outcomes"]
    pocl = next(one["target"] for one in devices if one["available"] and "pocl" in one["target"])
    gpucache("warm", source, "-D", "FACTOR=2", "--target", pocl, "--local-size", "32")
    learned = program(PLATFORM, 2, learn=True)
    assert (learned.results, learned.report["summary"]["learned"]) == (["hit"], 1)
    assert "; 1 of 1 built for the next run" in learned.err
    (entry,) = json.loads(gpucache("inspect", "scale", "--json").stdout)["outcomes"]
    assert sorted(entry["local_sizes"]) == ["16", "32"]


def test_a_program_that_does_not_compile_fails_as_without_us(
    program: Program, environment: Mapping[str, str]
) -> None:
    """It gets its own compiler's error, and nothing is kept."""
    done = program(INTEL, "+", 2)
    assert done.out == without_us(environment, INTEL, "+", 2)
    assert done.results == ["failed", "kept"]


@pytest.mark.parametrize("variable", ["GPUCACHE_READ_ONLY", "GPUCACHE_DISABLE"])
def test_settings_never_make_a_command_fail(program: Program, root: Path, variable: str) -> None:
    """If nothing can be kept the command compiles, and the reason is reported."""
    done = program(INTEL, 2, **{variable: "1"})
    assert (done.code, done.out) == (0, "128.0\n")
    assert done.results == ["left"]
    assert variable in done.err and not root.exists()


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("GPUCACHE_MAX_SIZE", "much", "the command ran without gpucache: GPUCACHE_MAX_SIZE: "),
        ("GPUCACHE_REQUIRE", "maybe", "GPUCACHE_REQUIRE=maybe is not yes or no; set it to 1 or 0"),
        ("GPUCACHE_LOG", "inof", "GPUCACHE_LOG=inof is not a level; set it to debug, info or warning"),
        (
            "GPUCACHE_RUN_TIMEOUT_MS",
            "5s",
            "GPUCACHE_RUN_TIMEOUT_MS=5s is not a number from 1 to 600000; 5000 is used",
        ),
        ("GPUCACHE_LAYER_TELL", "ture", "GPUCACHE_LAYER_TELL=ture is not yes or no; set it to 1 or 0"),
    ],
)
def test_a_misspelt_value_is_told_and_the_command_runs(
    run: Callable[..., Done], variable: str, value: str, told: str
) -> None:
    """Whatever a variable says, the command is started and has its own exit code."""
    done = run("sh", "-c", "exit 3", **{variable: value})
    assert done.code == 3 and told in done.err


_REQUIRE = {"GPUCACHE_REQUIRE": "1"}


def test_a_miss_fails_where_a_hit_is_required(program: Program) -> None:
    """The program sees a failed build, its log says why, and the exit code is its own."""
    done = program(INTEL, "log", "2", **_REQUIRE)
    assert (done.code, done.results, done.report["summary"]["refused"]) == (0, ["refused"], 1)
    assert done.out.startswith("RuntimeError -11 ")
    assert "GPUCACHE_REQUIRE is set, and this build missed: scale for opencl:" in done.out
    assert ": never-built: nothing was ever built as scale in " in done.out
    assert "1 build: 0 hits, 1 miss" in done.err and "1 failed because GPUCACHE_REQUIRE is set" in done.err
    program(INTEL, 2)
    assert program(INTEL, 2, **_REQUIRE).out == "128.0\n"


@pytest.mark.parametrize("platform", [INTEL, PLATFORM])
def test_a_program_that_did_not_compile_is_refused_as_that(program: Program, platform: str) -> None:
    """A later run that requires a hit says when it failed, and a build between them changes nothing."""
    if platform == PLATFORM:
        need_pocl()
    program(platform, "+")
    program(platform, "2")
    refused = program(platform, "log", "+", **_REQUIRE).report["outcomes"]
    assert [(one["result"], one["verdict"]) for one in refused] == [("refused", "failed")]
    assert refused[0]["reason"].startswith("it did not compile at 20")


@pytest.mark.parametrize("words", [("option", "2"), ("kill", "2")])
def test_what_is_not_served_or_not_reached_is_a_miss_as_well(
    environment: Mapping[str, str], words: tuple[str, ...]
) -> None:
    """Passed builds and builds without a server fail likewise."""
    done = run_text(
        [sys.executable, "-m", "gpucache", "run", "--", sys.executable, PROGRAM, INTEL, *words],
        env={**environment, **_REQUIRE},
    )
    assert done.stdout == "RuntimeError -11\n", done.stderr


def test_hits_and_misses_are_told_as_the_library_tells_them(program: Program) -> None:
    """With GPUCACHE_LOG each is printed when it is known."""
    missed, hit = (program(INTEL, 2, GPUCACHE_LOG=level) for level in ("info", "debug"))
    assert re.search(
        r"^gpucache: miss scale for opencl:\S+: never-built: .*; compiled in \d+ ms$", missed.err, re.M
    )
    assert re.search(r"^gpucache: hit scale for opencl:\S+: [0-9a-f]{12} in /", hit.err, re.M)


@needs_root
def test_another_users_cache_is_not_used(program: Program, root: Path) -> None:
    """The command compiles, and the reason is reported."""
    root.mkdir()
    os.chown(root, 65534, 65534)
    done = program(INTEL, 2)
    assert (done.code, done.out, done.results) == (0, "128.0\n", ["left"])
    assert str(root) in done.err and not list(root.iterdir())


@needs_root
def test_a_full_disk_is_told_and_harms_nobody(program: Program, tmp_path: Path) -> None:
    """The command compiles, and the reason is reported."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k,mode=0700", "tmpfs", str(disk)])
    if mounted.returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        done = program(INTEL, 2, GPUCACHE_DIR=str(disk / "root"))
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert (done.code, done.out, done.results) == (0, "128.0\n", ["left"])
    assert "No space left on device; make room on its disk" in done.err


def test_a_command_outlives_a_killed_server(environment: Mapping[str, str], root: Path) -> None:
    """Its later builds are compiled as without us, and it ends normally."""
    done = run_text(
        [sys.executable, "-m", "gpucache", "run", "--", sys.executable, PROGRAM, INTEL, "2", "kill", "3"],
        env=environment,
    )
    assert done.returncode == -9
    assert done.stdout == "128.0\n192.0\n"


def test_a_service_that_forks_is_served_in_its_children(program: Program, run: Callable[..., Done]) -> None:
    """The children of a command use the same server."""
    program(INTEL, 2)
    command = f"{sys.executable} {PROGRAM} {INTEL} 2 & {sys.executable} {PROGRAM} {INTEL} 2; wait"
    assert run("sh", "-c", command).results == ["hit", "hit"]


def test_a_cache_that_answered_before_us_is_named(program: Program) -> None:
    """PyOpenCL's own cache returns binaries: our layer was loaded, and nothing was built from source."""
    assert program(INTEL, 2, PYOPENCL_NO_CACHE="0").results == ["kept"]
    again = program(INTEL, 2, PYOPENCL_NO_CACHE="0")
    assert again.err.startswith("gpucache: no build from source was seen; 1 program was loaded from a binary")
    assert (again.report["summary"]["loaded"], again.report["summary"]["binaries"]) == (True, 1)


def test_a_loader_that_was_reached_is_not_doubted(run: Callable[..., Done]) -> None:
    """A program that loads OpenCL and builds nothing has loaded our layer, too; a failed one is reported."""
    done = run(sys.executable, "-c", "import pyopencl; pyopencl.get_platforms()")
    assert done.err == f"gpucache: {unbuilt(0, loaded=True)}\n"
    done = run(sys.executable, "-c", "import pyopencl; pyopencl.get_platforms(); raise SystemExit(2)")
    assert done.err == "gpucache: no build from source was seen before the command ended with exit code 2\n"


_BELOW = {
    "file is gone": ("sh", "-c", 'rm "${GPUCACHE_RUN_SOCKET%/*}/notes"; exec "$@"', "sh"),
    "FIFO": (
        "sh",
        "-c",
        'cd "${GPUCACHE_RUN_SOCKET%/*}"; rm notes; mkfifo notes; cd "$OLDPWD"; exec "$@"',
        "sh",
    ),
    "read-only root": ("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
}


@pytest.mark.parametrize("below", _BELOW)
def test_hits_are_counted_where_no_file_can_be_written(
    program: Program, run: Callable[..., Done], below: str
) -> None:
    """What a command cannot write into the file next to the socket it says at the socket."""
    assert program(INTEL, 2, 3).results == ["kept", "kept"]
    unusable = not shutil.which("bwrap") or run_text([*_BELOW["read-only root"], "true"]).returncode
    if unusable and below == "read-only root":
        pytest.skip("bubblewrap is not installed, or may not be used")
    done = run(*_BELOW[below], sys.executable, PROGRAM, INTEL, 2, 3)
    assert (done.results, done.report["summary"]["loaded"]) == (["hit", "hit"], True)
    assert "gpucache: 2 builds: 2 hits, 0 misses; " in done.err


def test_a_command_that_fails_and_loads_nothing_is_told_so_in_a_line(run: Callable[..., Done]) -> None:
    """Its own error is the likely reason, and comes before."""
    told = "no OpenCL, NVRTC or hipRTC build was seen before the command ended with exit code 3"
    assert run("sh", "-c", "exit 3").err == f"gpucache: {told}\n"


_TWO_LOADERS = """
import ctypes, sys
import pyopencl as cl
platform = next(each for each in cl.get_platforms() if each.name.startswith("Intel"))
context = cl.Context(platform.get_devices()[:1])
other = ctypes.CDLL(sys.argv[1])  # after the context has been made, and it is never asked for platforms
handle, source = ctypes.c_void_p(context.int_ptr), ctypes.c_char_p(b"kernel void k(global int *a) {}")
context.devices
other.clCreateProgramWithSource.restype = ctypes.c_void_p
program = other.clCreateProgramWithSource(handle, 1, ctypes.byref(source), None, None)
sys.exit(other.clBuildProgram(ctypes.c_void_p(program), 0, None, None, None, None))
"""


def test_a_second_loader_in_a_process_is_reached(run: Callable[..., Done]) -> None:
    """A library may be linked to its own loader, and only get handles of PyOpenCL's."""
    other = ctypes.util.find_library("OpenCL")
    if other is None or not list(Path(pyopencl.__file__).parent.rglob("libOpenCL*")):
        pytest.skip("there are no two loaders here")
    assert [run(sys.executable, "-c", _TWO_LOADERS, other).results for _ in range(2)] == [["kept"], ["hit"]]


def test_a_run_in_a_run_asks_the_inner_one(run: Callable[..., Done], environment: Mapping[str, str]) -> None:
    """The library is loaded once, and the outer server is not asked."""
    inner = [sys.executable, "-m", "gpucache", "run", "--", sys.executable, PROGRAM, INTEL, "2"]
    assert run(*inner).results == []
    done = run(*inner)
    assert done.results == []
    [inner_line, outer_line] = done.err.splitlines()
    assert "1 build: 1 hit" in inner_line and inner_line.endswith("an outer 'gpucache run' was not asked")
    assert outer_line == f"gpucache: {UNSEEN}"


_ENDS_FIRST = """
import os, pathlib, sys, time
import pyopencl
pyopencl.Context(pyopencl.get_platforms()[0].get_devices()[:1])
while not list(pathlib.Path(os.environ["TMPDIR"]).glob("gpucache-probe-*/.*")):
    time.sleep(0.01)
os.kill(os.getpid(), int(sys.argv[1]))
"""


@pytest.mark.parametrize("number", [0, signal.SIGTERM])
def test_a_command_that_ends_before_its_devices_are_known_leaves_nothing(
    run: Callable[..., Done], tmp_path: Path, number: int
) -> None:
    """The probe in progress ends with the command, and its directory is removed."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = run(sys.executable, "-c", _ENDS_FIRST, int(number), TMPDIR=str(temporary))
    assert done.code == -number and not list(temporary.iterdir())
