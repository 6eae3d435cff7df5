"""Caches that ``warm`` filled from a recording, in images: the first start of a program below ``run``."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gpucache.store.records import rows_of
from tests.children import run_text
from tests.serve.conftest import PROGRAM
from tests.serve.test_nvrtc import installed  # noqa: F401 - a fixture

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="run is for Linux")]
_NVRTC_PROGRAM = PROGRAM.with_name("nvrtc_program.py")
_VALUE = """
import sys, warnings
import numpy as np, pyopencl as cl
warnings.simplefilter("ignore")
platform = next(each for each in cl.get_platforms() if each.name.startswith("Intel"))
context = cl.Context(platform.get_devices()[:1])
queue, out = cl.CommandQueue(context), np.zeros(1, np.int32)
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4)
source = '#include "value.h"\\nkernel void f(global int *a) { *a = VALUE; }'
try:
    cl.Program(context, source).build(["-I", "first", "-I", "include"]).f(queue, (1,), (1,), buffer)
    cl.enqueue_copy(queue, out, buffer)
except cl.RuntimeError as error:
    out = error.code
print(out)
"""
_SCALE = """
#ifndef FACTOR
#define FACTOR 3
#endif
kernel void scale(global float *a) { a[get_global_id(0)] *= FACTOR; }
"""
_BUILDS = """
import sys, warnings
import pyopencl as cl
warnings.simplefilter("ignore")
platform = next(each for each in cl.get_platforms() if each.name.startswith("Intel"))
context = cl.Context(platform.get_devices()[:1])
program = cl.Program(context, open(sys.argv[1]).read()).build(list(filter(None, sys.argv[2:])))
print(program.get_info(cl.program_info.KERNEL_NAMES))
"""
_CALLS = """
import sys
from gpucache.cuda import compile_program
source = open(sys.argv[1]).read()
code = compile_program(source, target="sm_90", options=["-DFACTOR=4"], include_path=sys.argv[2:])
print("gpucache.engine.hits" not in sys.modules, code.code.hex())
"""
Call = Callable[..., "subprocess.CompletedProcess[str]"]


class Image:
    """A cache that was warmed from a recording of a command, and starts of the command beside it."""

    def __init__(self, environment: dict[str, str], gpucache: Call, folder: Path) -> None:
        self._environment, self._gpucache, self._folder = environment, gpucache, folder
        self.root = folder / "image"
        self._starts = 0

    def warm(self, command: Sequence[object], *options: str) -> None:
        recording = self._folder / "recording"
        recorded = self._gpucache("record", "-o", recording, "--", *command)
        assert recorded.returncode == 0, recorded.stderr
        warmed = self._gpucache("--root", self.root, "warm", "--shared", "--recording", recording, *options)
        assert warmed.returncode == 0, warmed.stdout + warmed.stderr

    def warm_source(self, source: Path, *options: str) -> None:
        warmed = self._gpucache(
            "--root", self.root, "warm", "--shared", source, "--target", "opencl:intel", *options
        )
        assert warmed.returncode == 0, warmed.stdout + warmed.stderr

    def alone(self, command: Sequence[object]) -> str:
        return run_text(command, env=self._environment, check=True).stdout

    def start(
        self, command: Sequence[object], wrapper: Sequence[object] = (), **variables: str
    ) -> tuple[str, bool]:
        """The output of a first start with a fresh root, and whether all its builds were hits in C.

        A hit in C imports nothing of the server's, nor the command line.
        """
        self._starts += 1
        fresh = {"GPUCACHE_DIR": str(self._folder / f"fresh-{self._starts}")}
        environ = {**self._environment, **fresh, "GPUCACHE_SYSTEM_DIRS": str(self.root), **variables}
        words = (sys.executable, "-X", "importtime", "-m", "gpucache", "run", "--", *command)
        done = run_text([*wrapper, *words], env=environ)
        assert done.returncode == 0, done.stderr
        imported = any(name in done.stderr for name in ("gpucache.serve.server", "click", "gpucache.probe"))
        return done.stdout, not imported and " 0 misses" in done.stderr


@pytest.fixture
def image(environment: dict[str, str], gpucache: Call, tmp_path: Path) -> Image:
    return Image(environment, gpucache, tmp_path)


def _by_tar(source: Path, to: Path) -> None:
    to.mkdir()
    subprocess.run(f"tar -C {source} -cf - . | tar -C {to} -xf -", shell=True, check=True)


def _by_copies(source: Path, to: Path) -> None:
    """With new times, as COPY of some builders."""
    shutil.copytree(source, to, copy_function=shutil.copyfile)


def _by_rsync(source: Path, to: Path) -> None:
    if shutil.which("rsync") is None:
        pytest.skip("rsync is not installed")
    subprocess.run(["rsync", "-a", f"{source}/", to], check=True)


def _without_writing(source: Path, to: Path) -> None:
    _by_tar(source, to)
    subprocess.run(["chmod", "-R", "a-w", to], check=True)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("unpack", [_by_tar, _by_copies, _by_rsync, _without_writing])
def test_the_first_start_from_an_unpacked_image_hits_in_c(
    image: Image, unpack: Callable[[Path, Path], None]
) -> None:
    """Whatever times, inodes and modes its files get, and without any module of the server."""
    command = (sys.executable, _NVRTC_PROGRAM, "core", "plain")
    alone = image.alone(command)
    image.warm(command)
    packed = image.root.rename(image.root.with_name("packed"))
    unpack(packed, image.root)
    shutil.rmtree(packed)
    assert image.start(command) == (alone, True)


@pytest.mark.usefixtures("installed")
def test_the_first_start_in_another_mount_namespace_hits_in_c(image: Image) -> None:
    """An overlay whose lower layer is the image, as in a container."""
    command = (sys.executable, _NVRTC_PROGRAM, "core", "lines")
    alone = image.alone(command)
    image.warm(command)
    lower = image.root.rename(image.root.with_name("lower"))
    image.root.mkdir()
    over = lower.with_name("over")
    over.mkdir()
    script = f"""mount -t tmpfs none {over} && mkdir {over}/upper {over}/work &&
        mount -t overlay -o lowerdir={lower},upperdir={over}/upper,workdir={over}/work none {image.root} &&
        exec "$@\""""
    inside = ("unshare", "--mount", "sh", "-c", script, "sh")
    if subprocess.run([*inside, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no right to mount an overlay here")
    assert image.start(command, inside) == (alone, True)


def _rows(root: Path) -> int:
    """The number of rows of a root."""
    rows = rows_of((root / "v1" / "records.row").read_bytes()) or ()
    return sum(not row.is_memo for row in rows)


def test_a_program_with_marks_against_caches_hits_from_its_recording(image: Image, root: Path) -> None:
    """PyOpenCL makes up a name in each source. A second recording of the same adds no row."""
    command = (sys.executable, PROGRAM, "Intel", "2", "3")
    alone = image.alone(command)
    image.warm(command)
    rows = _rows(image.root)
    image.warm(command)
    assert rows and _rows(image.root) == rows
    assert image.start(command) == (alone, True)
    assert not root.exists()


@pytest.mark.parametrize("words", [("",), ("-DFACTOR=2", "-cl-fast-relaxed-math")])
def test_a_source_that_was_warmed_hits_in_a_pyopencl_program(
    image: Image, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """With PyOpenCL's directory among the options and its mark in the source, and only with these options."""
    source = tmp_path / "scale.cl"
    source.write_text(_SCALE)
    image.warm_source(source, *(f"--option={word}" for word in words if word))
    command = (sys.executable, "-c", _BUILDS, source)
    assert image.start((*command, *words)) == (image.alone((*command, *words)), True)
    marked = {"PYOPENCL_NO_CACHE": "0", "XDG_CACHE_HOME": str(tmp_path / "pyopencl")}
    assert image.start((*command, *words), **marked)[1]
    assert not image.start((*command, *words, "-DOTHER"))[1]


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize(
    ("place", "headers"), [("image", "kernels"), ("own", "kernels"), ("image", "include")]
)
def test_a_source_that_was_warmed_hits_in_c_in_a_program_of_the_library(
    gpucache: Call, environment: dict[str, str], tmp_path: Path, place: str, headers: str, beside: bool
) -> None:
    """At its first start, from an image and from a root of its own; with another header it compiles.

    The program names the directory of the headers, and no other.
    """
    folder, include, cache = tmp_path / "kernels", tmp_path / headers, tmp_path / "cache"
    folder.mkdir()
    include.mkdir(exist_ok=True)
    (include / "twice.h").write_text("#define TWICE 2\n")
    source = folder / "k.cu"
    source.write_text('#include "twice.h"\n__global__ void k(int *a) { *a = FACTOR * TWICE; }\n')
    shared = ["--shared"] if place == "image" else []
    words = ("warm", source, "--target", "cuda:sm_90", "-D", "FACTOR=4", *shared)
    named = () if include == folder else ("-I", include)
    assert gpucache("--root", cache, *words, *named).returncode == 0
    variable = "GPUCACHE_SYSTEM_DIRS" if shared else "GPUCACHE_DIR"
    own = {**environment, "GPUCACHE_DIR": str(tmp_path / "fresh"), variable: str(cache)}

    def start() -> list[str]:
        command = (sys.executable, "-c", _CALLS, source, include)
        return run_text(command, env=own, cwd=folder if beside else tmp_path, check=True).stdout.split()

    in_c, code = start()
    assert in_c == "True"
    (include / "twice.h").write_text("#define TWICE 3\n")
    after_change, other = start()
    assert after_change == "False" and other != code


def test_what_was_pulled_hits_in_c_at_its_first_start(
    gpucache: Call, environment: dict[str, str], tmp_path: Path
) -> None:
    """Its rows travel beside it, without the source, and are believed with the same headers alone."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "twice.h").write_text("#define TWICE 2\n")
    source = folder / "k.cu"
    source.write_text('#include "twice.h"\n__global__ void secret(int *a) { *a = FACTOR * TWICE; }\n')
    store, there = tmp_path / "store", tmp_path / "there"
    own = {"GPUCACHE_TRUSTED_KEYS": str(tmp_path / "own.key.pub")}
    assert gpucache("warm", source, "--target", "cuda:sm_90", "-D", "FACTOR=4").returncode == 0
    assert gpucache("key", tmp_path / "own.key").returncode == 0
    assert gpucache("push", store, "--key", tmp_path / "own.key").returncode == 0
    for said in ("1 entry pulled", "nothing pulled, 1 here already"):
        assert said in gpucache("--root", there, "pull", store, **own).stdout
    for file in (*store.rglob("*"), *there.rglob("*")):
        assert file.is_dir() or b"FACTOR *" not in file.read_bytes()

    def start() -> list[str]:
        command, environ = (sys.executable, "-c", _CALLS, source, folder), {"GPUCACHE_DIR": str(there)}
        return run_text(command, env={**environment, **environ}, cwd=tmp_path, check=True).stdout.split()

    in_c, code = start()
    assert in_c == "True"
    (folder / "twice.h").write_text("#define TWICE 3\n")
    after_change, other = start()
    assert after_change == "False" and other != code


def _changed(include: Path) -> None:
    (include / "value.h").write_text("#define VALUE 2\n")


def _same_again(include: Path) -> None:
    text = (include / "value.h").read_text()
    (include / "value.h").unlink()
    (include / "value.h").write_text(text)


def _with_the_old_time(include: Path) -> None:
    status = (include / "value.h").stat()
    _changed(include)
    os.utime(include / "value.h", ns=(status.st_atime_ns, status.st_mtime_ns))


def _shadowed(include: Path) -> None:
    (include.parent / "first").mkdir()
    (include.parent / "first" / "value.h").write_text("#define VALUE 3\n")


def _shadowed_here(include: Path) -> None:
    (include.parent / "value.h").write_text("#define VALUE 4\n")


def _led_away(include: Path) -> None:
    include.rename(include.with_name("before"))
    include.with_name("other").mkdir()
    (include.with_name("other") / "value.h").write_text("#define VALUE 5\n")
    include.symlink_to("other")


def _removed(include: Path) -> None:
    (include / "value.h").unlink()


@pytest.mark.parametrize(
    ("change", "hits"),
    [
        (_same_again, True),
        (_changed, False),
        (_with_the_old_time, False),
        (_shadowed, False),
        (_shadowed_here, None),
        (_led_away, False),
        (_removed, False),
    ],
)
def test_a_row_of_an_image_is_believed_only_with_the_same_headers(
    image: Image,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], None],
    hits: bool | None,
) -> None:
    """What the program computes is what its compiler would make of the files as they are now."""
    include = tmp_path / "project" / "include"
    include.mkdir(parents=True)
    (include / "value.h").write_text("#define VALUE 1\n")
    monkeypatch.chdir(include.parent)
    command = (sys.executable, "-c", _VALUE)
    image.warm(command)
    assert image.start(command)[1]
    change(include)
    out, hit = image.start(command)
    assert out == image.alone(command)
    assert hits is None or hit is hits


def test_a_row_of_an_image_is_believed_only_with_the_same_variables(image: Image) -> None:
    """A variable that reaches the compiler makes a miss; others do not."""
    command = (sys.executable, PROGRAM, "Intel", "2")
    image.warm(command)
    assert image.start(command, HARMLESS="1")[1]
    assert not image.start(command, CL_CONFIG_CPU_TARGET_ARCH="skx")[1]


@pytest.mark.usefixtures("installed")
def test_an_image_of_another_user_is_not_believed(image: Image) -> None:
    """Only files of this user and of root are."""
    command = (sys.executable, _NVRTC_PROGRAM, "core", "plain")
    image.warm(command)
    if os.geteuid():
        pytest.skip("only root can give files away")
    for path in (image.root, *image.root.rglob("*")):
        os.chown(path, 65534, 65534)
    assert image.start(command) == (image.alone(command), False)


@pytest.mark.usefixtures("installed")
def test_a_recording_is_warmed_for_another_architecture_with_its_row(image: Image, tmp_path: Path) -> None:
    """A program that names the GPU of its machine asks with another option there."""
    image.warm((sys.executable, _NVRTC_PROGRAM, "core", "plain"), "--target", "cuda:sm_80")
    text = _NVRTC_PROGRAM.read_text()
    other = tmp_path / "program.py"
    other.write_text(text.replace("sm_90", "sm_80"))
    assert other.read_text() != text
    assert image.start((sys.executable, other, "core", "plain"))[1]


def test_a_damaged_entry_of_an_image_is_compiled(image: Image) -> None:
    """Every byte is checked, as in a root of one's own."""
    command = (sys.executable, PROGRAM, "Intel", "2")
    image.warm(command)
    (entry,) = image.root.rglob("*.gpc")
    data = bytearray(entry.read_bytes())
    data[-1] ^= 1
    entry.write_bytes(data)
    assert image.start(command) == (image.alone(command), False)


def test_the_first_hit_in_a_root_that_was_only_filled_is_counted_in_c(
    gpucache: Call,
    run_without_python: Callable[..., "subprocess.CompletedProcess[str]"],
    root: Path,
    tmp_path: Path,
) -> None:
    """It has no log yet, as after warm or pull; nothing else needs Python there."""
    command = (sys.executable, PROGRAM, "Intel", "2")
    for words in (
        ("record", "-o", tmp_path / "recording", "--", *command),
        ("warm", "--recording", tmp_path / "recording"),
    ):
        assert gpucache(*words).returncode == 0
    log = root / "v1" / "log.jsonl"
    log.unlink()
    done = run_without_python(*command)
    assert (done.returncode, "1 hit, 0 misses" in done.stderr) == (0, True), done.stderr
    assert '"hits":1' in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600
