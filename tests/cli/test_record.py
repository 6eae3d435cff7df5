"""``record``: the builds of an unmodified command are written down, and built elsewhere by warm."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import gpucache as package
from gpucache.errors import NoDeviceError
from gpucache.native.locate import locate
from gpucache.recording.reading import read_recording
from gpucache.serve.environment import TIMEOUT
from tests.children import run_text
from tests.patience import PATIENCE_S, TIME_OUT_MS
from tests.unprivileged import as_nobody, needs_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Gpucache = Callable[..., subprocess.CompletedProcess[str]]

try:
    locate("opencl_layer")
    _LACKING = ""
except NoDeviceError as error:
    _LACKING = str(error)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(_LACKING), reason=_LACKING)]

PROGRAM = """
import sys
import numpy as np
import pyopencl as cl
import gpucache
platform = next(each for each in cl.get_platforms() if sys.argv[1] in each.name)
context = cl.Context(platform.get_devices()[:1])
queue = cl.CommandQueue(context)
for option in sys.argv[3:] or ["-DN=2"]:
    source = open("twice.cl").read()
    if sys.argv[2] == "library":
        from gpucache.opencl import build_program
        program = build_program(context, source, options=["-Iinc", option])
    else:
        program = cl.Program(context, source).build(["-Iinc", option])
    out = np.zeros(32, np.int32)
    buffer = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, out.nbytes)
    program.twice(queue, (32,), (16,), buffer)
    cl.enqueue_copy(queue, out, buffer)
    print(out.sum(), flush=True)
"""
SOURCE = """#include "factor.h"
kernel void twice(global int *out) { out[get_global_id(0)] = FACTOR * N; }
"""
NVRTC = """
import hashlib, sys
from cuda.bindings import nvrtc

def done(answer):
    assert int(answer[0]) == 0, answer
    return answer[1] if len(answer) == 2 else None

source = b'''#include "factor.h"
#include "mem.h"
namespace { template<class T> __global__ void k(T *a) { *a = M; } }  // NVRTC writes app.cu into its name
extern "C" __global__ void first() {}  // and the time, if no other file could name anything here
'''
header = b"#include <factor.h>\\n#define M FACTOR\\n"
program = done(nvrtc.nvrtcCreateProgram(source, b"app.cu", 1, [header], [b"mem.h"]))
done(nvrtc.nvrtcAddNameExpression(program, b"k<float>"))
options = [b"-arch=" + sys.argv[1].encode(), b"-Iinc", *(word.encode() for word in sys.argv[2:])]
done(nvrtc.nvrtcCompileProgram(program, len(options), options))
size, get = nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN
if b"-dlto" in options:
    size, get = nvrtc.nvrtcGetLTOIRSize, nvrtc.nvrtcGetLTOIR
cubin = b" " * done(size(program))
done(get(program, cubin))
print(hashlib.sha256(cubin).hexdigest(), done(nvrtc.nvrtcGetLoweredName(program, b"k<float>")).decode())
"""
PLATFORMS = {"pocl": "Portable Computing Language", "intel": "Intel(R) OpenCL"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A program with a source and a header."""
    folder = tmp_path / "project"
    (folder / "inc").mkdir(parents=True)
    (folder / "app.py").write_text(PROGRAM)
    (folder / "twice.cl").write_text(SOURCE)
    (folder / "inc" / "factor.h").write_text("#define FACTOR 3\n")
    return folder


@pytest.fixture
def environment(vendors: Path, tmp_path: Path) -> dict[str, str]:
    """An environment with Intel's runtime and PoCL, and an empty PoCL cache."""
    places = {"OCL_ICD_VENDORS": str(vendors), "POCL_CACHE_DIR": str(tmp_path / "pocl-cache")}
    return {**os.environ, **places, TIMEOUT: TIME_OUT_MS}


@pytest.fixture
def gpucache(environment: Mapping[str, str]) -> Gpucache:
    def run(*words: str, cwd: Path, **settings: str) -> subprocess.CompletedProcess[str]:
        return run_text([sys.executable, "-m", "gpucache", *words], cwd=cwd, env={**environment, **settings})

    return run


def app(platform: str, *options: str, how: str = "plain") -> list[str]:
    return ["--", sys.executable, "app.py", PLATFORMS[platform], how, *options]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_what_is_recorded_here_is_served_there(
    gpucache: Gpucache,
    environment: Mapping[str, str],
    project: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    platform: str,
) -> None:
    """Recorded in one directory, warmed in another: the library and ``run`` hit everything in a third."""
    request.getfixturevalue(platform)  # which skips where it is not
    recording, root = tmp_path / "recording", tmp_path / "root"
    done = gpucache("record", "-o", str(recording), *app(platform, "-DN=2", "-DN=5"), cwd=project)
    assert (done.returncode, done.stdout) == (0, "192\n480\n"), done.stderr
    assert "recorded 2 builds" in done.stderr
    assert not root.exists()
    elsewhere = tmp_path / "elsewhere" / "deep"
    shutil.move(project, elsewhere)
    (tmp_path / "third").mkdir()
    warm = gpucache("--root", str(root), "warm", "--recording", str(recording), cwd=tmp_path / "third")
    assert warm.returncode == 0, warm.stderr
    options = ("-DN=2", "-DN=5")
    library = app(platform, *options, how="library")[1:]
    required = {**environment, "GPUCACHE_DIR": str(root), "GPUCACHE_REQUIRE": "1"}
    output = subprocess.check_output(library, cwd=elsewhere, env=required, text=True, timeout=PATIENCE_S)
    assert output == "192\n480\n"
    inside = gpucache("--root", str(root), "run", "--", *library, cwd=elsewhere, GPUCACHE_REQUIRE="1")
    assert inside.stdout == output, inside.stderr
    words = ("--root", str(root), "run", "--report", str(tmp_path / "report.json"))
    served = gpucache(*words, *app(platform, *options), cwd=elsewhere, PYOPENCL_NO_CACHE="1")
    assert (served.returncode, served.stdout) == (0, "192\n480\n"), served.stderr
    summary = json.loads((tmp_path / "report.json").read_text())["summary"]
    assert (summary["builds"], summary["hits"]) == (2, 2)


def test_launched_local_sizes_are_recorded(
    gpucache: Gpucache, project: Path, tmp_path: Path, pocl: str
) -> None:
    """The launches and the result of a build are recorded, and PoCL's entry is compiled for them."""
    gpucache("record", "-o", str(tmp_path / "recording"), *app("pocl"), cwd=project)
    [(build, seen)] = read_recording(tmp_path / "recording").recording.rows()
    assert build.target == pocl
    assert seen.local_sizes == {("twice", (16,))}
    assert (seen.built, seen.compile_ns > 0) == (True, True)
    words = ("--root", str(tmp_path / "root"), "--json")
    gpucache(*words, "warm", "--recording", str(tmp_path / "recording"), cwd=tmp_path)
    [entry] = json.loads(gpucache(*words, "inspect", "twice", cwd=tmp_path).stdout)["outcomes"]
    assert entry["local_sizes"] == ["16"]


@pytest.mark.usefixtures("intel")
def test_runs_and_processes_write_into_one_folder(gpucache: Gpucache, project: Path, tmp_path: Path) -> None:
    """The recording is the union of two processes and another run, with each build once."""
    words = ("record", "-o", str(tmp_path / "recording"))
    one, two, three = (" ".join(map(repr, app("intel", f"-DN={number}")[1:])) for number in (1, 2, 3))
    both = gpucache(*words, "--", "sh", "-c", f"{one} & {two}; wait", cwd=project)
    assert both.returncode == 0, both.stderr
    gpucache(*words, "--", "sh", "-c", f"{two}; {three}", cwd=project)
    rows = read_recording(tmp_path / "recording").recording.rows()
    assert sorted(build.options for build, _ in rows) == [("-DN=1",), ("-DN=2",), ("-DN=3",)]
    assert len(list((tmp_path / "recording").glob("*.jsonl"))) == 2
    # The header, and the source with and without the mark that PyOpenCL adds.
    assert len(list((tmp_path / "recording" / "blobs").iterdir())) == 3


@pytest.mark.usefixtures("intel")
def test_a_librarys_own_cache_hides_nothing(
    gpucache: Gpucache, project: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    """A program whose binaries PyOpenCL or gpucache kept before is recorded as at its first start."""
    root = tmp_path / "root"
    for how in ("plain", "library"):
        plain = app("intel", how=how)[1:]
        env = {**environment, "GPUCACHE_DIR": str(root)}
        subprocess.run(plain, cwd=project, env=env, check=True, capture_output=True, timeout=PATIENCE_S)
    assert list(root.rglob("*.gpc"))
    for how in ("plain", "library"):
        done = gpucache(
            "record", "-o", str(tmp_path / how), *app("intel", how=how), cwd=project, GPUCACHE_DIR=str(root)
        )
        assert "recorded 1 build " in done.stderr


@pytest.mark.usefixtures("intel")
def test_arguments_of_the_command_are_kept_where_that_is_asked(
    gpucache: Gpucache, project: Path, tmp_path: Path
) -> None:
    """They may contain secrets, so by default the recording has only the command's name."""
    folders = tmp_path / "plain", tmp_path / "asked"
    for folder, options in zip(folders, ((), ("--keep-arguments",)), strict=True):
        words = ("--", sys.executable, "-X", "token=secret", *app("intel")[2:])
        done = gpucache("record", *options, "-o", str(folder), *words, cwd=project)
        assert done.returncode == 0, done.stderr
    texts = [b"".join(path.read_bytes() for path in folder.glob("*.jsonl")) for folder in folders]
    assert [b"token=secret" in text for text in texts] == [False, True]
    [(_, seen)] = read_recording(folders[0]).recording.rows()
    assert seen.first is not None and seen.first[1] == Path(sys.executable).name


@pytest.mark.usefixtures("intel")
def test_digests_alone_hold_no_source(gpucache: Gpucache, project: Path, tmp_path: Path) -> None:
    """They are enough to check whether a cache is complete, before and after it is filled."""
    digests, whole = tmp_path / "digests", tmp_path / "whole"
    told = gpucache("record", "--digests-only", "-o", str(digests), *app("intel"), cwd=project)
    assert "--check' lists the missing builds" in told.stderr
    gpucache("record", "-o", str(whole), *app("intel"), cwd=project)
    assert not (digests / "blobs").exists()
    [(_, seen)] = read_recording(digests).recording.rows()
    assert (seen.first is not None and seen.first[1], seen.roots) == (Path(sys.executable).name, frozenset())
    words = ("--root", str(tmp_path / "root"), "warm")
    assert gpucache(*words, "--check", "--recording", str(digests), cwd=tmp_path).returncode == 3
    assert gpucache(*words, "--recording", str(whole), cwd=tmp_path).returncode == 0
    assert gpucache(*words, "--check", "--recording", str(digests), cwd=tmp_path).returncode == 0


@pytest.fixture
def theirs() -> Iterator[Path]:
    """Another user's directory; pytest's own are closed to them, and closed again by each other session."""
    with tempfile.TemporaryDirectory(prefix="gpucache-") as folder:
        yield Path(folder)


@needs_root
@pytest.mark.parametrize(
    ("what", "modules"), [("intel", "numpy, pyopencl"), ("nvrtc", "cuda.bindings.nvrtc")]
)
def test_another_user_builds_a_recording(
    gpucache: Gpucache,
    environment: Mapping[str, str],
    project: Path,
    tmp_path: Path,
    theirs: Path,
    request: pytest.FixtureRequest,
    what: str,
    modules: str,
) -> None:
    """A copy of a recording is built by another user in another directory, and their program hits there."""
    request.getfixturevalue(what)  # which skips where it is not
    (project / "nvrtc.py").write_text(NVRTC)
    program = app("intel")[2:] if what == "intel" else ["nvrtc.py", "sm_90"]
    recording = str(tmp_path / "recording")
    bare = gpucache("record", "-o", recording, "--", sys.executable, *program, cwd=project)
    assert bare.returncode == 0, bare.stderr
    shutil.copytree(recording, theirs / "recording")
    shutil.copytree(environment["OCL_ICD_VENDORS"], theirs / "vendors")
    shutil.move(project, theirs / "project")
    for path in (theirs, *theirs.rglob("*")):
        os.chown(path, 65534, 65534)

    own = {name: str(theirs) for name in ("HOME", "XDG_CACHE_HOME", "TMPDIR", "POCL_CACHE_DIR")}
    modules_path = os.pathsep.join((str(Path(package.__file__).parents[1]), sysconfig.get_path("platlib")))
    own |= {"PYTHONPATH": modules_path, "OCL_ICD_VENDORS": str(theirs / "vendors"), "PYOPENCL_NO_CACHE": "1"}
    own["LD_LIBRARY_PATH"] = (
        sysconfig.get_path("platlib") + "/nvidia/cu13/lib"
    )  # no other user's NVRTC is found
    python = "/usr/bin/python3"  # ours may be where no other user may go

    def run(*arguments: str) -> str:
        done = run_text([python, *arguments], env={**environment, **own}, cwd=theirs / "project")
        return f"{done.returncode} {done.stdout}" + (done.stderr if done.returncode else "")

    if not as_nobody(lambda: run("-c", f"import click, gpucache.cli, {modules}")).startswith("0 "):
        pytest.skip("no interpreter here that another user may run has the packages of this one")
    words = ("-m", "gpucache", "--root", str(theirs / "root"))
    told = as_nobody(lambda: run(*words, "warm", "--shared", "--recording", str(theirs / "recording")))
    assert told.startswith("0 "), told
    report = ("--report", str(theirs / "report.json"))
    served = as_nobody(lambda: run(*words, "run", *report, "--", python, *program))
    assert served == f"0 {bare.stdout}"
    summary = json.loads((theirs / "report.json").read_text())["summary"]
    assert (summary["builds"], summary["hits"]) == (1, 1)


@pytest.mark.usefixtures("intel")
def test_a_failing_program_is_recorded_as_such(gpucache: Gpucache, project: Path, tmp_path: Path) -> None:
    """The command sees its own error; warm leaves out builds that did not compile."""
    (project / "twice.cl").write_text("kernel void bad(")
    done = gpucache("record", "-o", str(tmp_path / "recording"), *app("intel"), cwd=project)
    assert done.returncode == 1
    assert "RuntimeError" in done.stderr
    [(_, seen)] = read_recording(tmp_path / "recording").recording.rows()
    assert seen.failed


@pytest.mark.usefixtures("nvrtc")
def test_what_nvrtc_is_asked_for_is_recorded(gpucache: Gpucache, project: Path, tmp_path: Path) -> None:
    """Headers on disk and in memory, names and options: the program hits the build made elsewhere."""
    (project / "nvrtc.py").write_text(NVRTC)
    recording, root = tmp_path / "recording", str(tmp_path / "root")
    words = ["--", sys.executable, "nvrtc.py", "sm_90"]
    bare = gpucache("record", "-o", str(recording), *words, cwd=project)
    assert bare.returncode == 0, bare.stderr
    [(build, seen)] = read_recording(recording).recording.rows()
    assert (build.target, build.file_name, build.name_expressions) == ("cuda:sm_90", "app.cu", ("k<float>",))
    assert (len(build.headers), len(build.memory_headers), seen.built) == (1, 1, True)
    elsewhere = tmp_path / "elsewhere"
    project.rename(elsewhere)
    warm = ("--root", root, "warm", "--recording", str(recording))
    for target in ((), ("--target", "cuda:sm_80")):
        done = gpucache(*warm, *target, cwd=tmp_path)
        assert done.returncode == 0, done.stdout
    for architecture in ("sm_90", "sm_80"):
        report = ("run", "--report", str(tmp_path / "report.json"))
        served = gpucache("--root", root, *report, *words[:-1], architecture, cwd=elsewhere)
        assert json.loads((tmp_path / "report.json").read_text())["summary"]["hits"] == 1
        assert (served.stdout == bare.stdout) == (architecture == "sm_90")


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize("option", ["-lineinfo", "-G", "-dlto", "-DWHERE"])
def test_what_holds_places_is_built_where_they_are(
    gpucache: Gpucache, project: Path, tmp_path: Path, option: str
) -> None:
    """It hits where the program was, with unchanged headers, and is not built in vain elsewhere."""
    (project / "nvrtc.py").write_text(NVRTC)
    (project / "inc" / "factor.h").write_text(
        "#pragma once\n#define FACTOR 3\n#ifdef WHERE\n__device__ const char where[] = __FILE__;\n#endif\n"
    )
    recording, root = str(tmp_path / "recording"), str(tmp_path / "root")
    words = ("--", sys.executable, "nvrtc.py", "sm_90", option)
    bare = gpucache("record", "-o", recording, *words, cwd=project)
    assert bare.returncode == 0, bare.stderr
    warm = ("--root", root, "warm", "--recording", recording)
    done = gpucache(*warm, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    report = ("--report", str(tmp_path / "report.json"))
    served = gpucache("--root", root, "run", *report, *words, cwd=project)
    assert served.stdout == bare.stdout
    assert json.loads((tmp_path / "report.json").read_text())["summary"]["hits"] == 1
    assert gpucache("--root", root, "evict", "--all", "--yes", cwd=tmp_path).returncode == 0
    project.rename(tmp_path / "elsewhere")
    done = gpucache(*warm, cwd=tmp_path)
    assert done.returncode == 3
    assert "places of its files" in done.stdout
    assert not list((tmp_path / "root").rglob("*.gpc"))


def test_a_command_ends_as_it_would(gpucache: Gpucache, tmp_path: Path) -> None:
    """Its exit code, its signal and its output are unchanged; one line on standard error is ours."""
    words = ("record", "-o", str(tmp_path / "recording"), "--", "sh", "-c")
    done = gpucache(*words, "echo out; exit 7", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (7, "out\n")
    assert "nothing was recorded" in done.stderr
    assert gpucache(*words, "kill -TERM $$", cwd=tmp_path).returncode == -signal.SIGTERM


def test_the_document_goes_to_standard_error(gpucache: Gpucache, tmp_path: Path) -> None:
    """Standard output is the command's, with --json too."""
    done = gpucache("record", "--json", "-o", str(tmp_path / "recording"), "--", "echo", "out", cwd=tmp_path)
    assert done.stdout == "out\n"
    assert json.loads(done.stderr)["summary"]["builds"] == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("record", "-o", "new"), "no command is named"),
        (("record", "--", "true"), "-o"),
        (("record", "-o", "open", "--", "true"), "chmod 700"),
    ],
)
def test_what_cannot_be_meant_is_told(
    gpucache: Gpucache, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    """One sentence with the remedy, and nothing is run."""
    (tmp_path / "open").mkdir(mode=0o755)
    done = gpucache(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_command_that_cannot_be_started_leaves_no_recording(gpucache: Gpucache, tmp_path: Path) -> None:
    """The exit code is a shell's, and no new directory is left."""
    (tmp_path / "old").mkdir(mode=0o700)
    for folder in ("new/one", "old"):
        done = gpucache("record", "-o", folder, "--", "gpucache-no-such-command", cwd=tmp_path)
        assert done.returncode == 127
        assert "cannot be started" in done.stderr and done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.rglob("*")] == ["old"]
