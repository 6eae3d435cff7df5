"""Caches in images, unpacked in every way and read by everybody: no program ever gets a wrong binary.

For each state of the headers, variables and compilers a program's output is compared with what it prints
without gpucache, where its compiler starts cold. Hits are counted, so that nothing passes by missing.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path
from threading import Timer

import pyopencl
import pytest

from gpucache.backends import installation
from gpucache.backends.cuda import nvrtc
from gpucache.native.build import find_compiler
from gpucache.serve.environment import TIMEOUT
from tests.children import run_text
from tests.hip import need_hip
from tests.patience import PATIENCE_S, TIME_OUT_MS
from tests.pocl import PLATFORM, SYSTEM_ICD, need_pocl_for_c
from tests.serve.test_nvrtc import installed  # noqa: F401 - a fixture

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="run is for Linux")]
_SOURCE = """
#include "value.h"
#include "linked/part.h"
#include "one.h"
#include "two.h"
#if __has_include("extra.h")
#include "extra.h"
#endif
#ifndef EXTRA
#define EXTRA 0
#endif
#ifndef TWICE
#define TWICE 0
#endif
KERNEL void k(GLOBAL int *a) { *a = VALUE * 10000 + INNER * 1000 + PART * 100 + EXTRA * 10 + TWICE; }
"""
_ONCE = "#pragma once\n#ifdef SEEN\n#define TWICE 1\n#endif\n#define SEEN\n"
_FILES = {
    "include/value.h": '#include "inner.h"\n#define VALUE 1\n',
    "include/inner.h": "#define INNER 1\n",
    "include/one.h": _ONCE,
    "include/two.h": _ONCE,
    "first/kept": "",
    "target/part.h": "#define PART 1\n",
    "target-2/part.h": "#define PART 2\n",
    "elsewhere/extra.h": "#define EXTRA 3\n",
    "elsewhere/first/value.h": "#define VALUE 4\n#define INNER 4\n",
}
_LIBRARY = {
    "cuda": """
from gpucache.cuda import compile_program
def build(source, folders):
    return compile_program(source, target="sm_90", include_path=folders).code
""",
    "opencl": """
import numpy as np, pyopencl as cl, warnings
from gpucache.opencl import build_program
warnings.simplefilter("ignore")
platform = next(each for each in cl.get_platforms() if each.name.startswith("Intel"))
context = cl.Context(platform.get_devices()[:1])
queue, out = cl.CommandQueue(context), np.zeros(1, np.int32)
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4)
def build(source, folders):
    build_program(context, source, include_path=folders).k(queue, (1,), (1,), buffer)
    cl.enqueue_copy(queue, out, buffer)
    return out
""",
}
_ASK = """
import hashlib, os, sys
for line in sys.stdin:
    os.chdir(line.strip())
    try:
        made = hashlib.sha256(build(open(sys.argv[1]).read(), sys.argv[2:])).hexdigest()
    except Exception as error:
        made = type(error).__name__
    print(made, flush=True)
"""
_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
_WHO_READS_ALL = (*_NOBODY, "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
_BOX = (
    *("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid", "--unshare-ipc"),
    *("--setenv", "TMPDIR", "/dev/shm", "--setenv", "POCL_CACHE_DIR", "/dev/shm"),
)


# ---- what a program compiles, and the states of that ----


@dataclass(frozen=True)
class Project:
    """The files of a program, always in the same place."""

    place: Path

    def reset(self) -> None:
        """All files anew, as they were when the cache was warmed."""
        shutil.rmtree(self.place, ignore_errors=True)
        for name, text in _FILES.items():
            path = self.place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (self.include / "linked").symlink_to("../target")

    @property
    def include(self) -> Path:
        return self.place / "include"

    @property
    def value(self) -> Path:
        return self.include / "value.h"

    def write(self, name: str, text: str) -> None:
        (self.place / name).parent.mkdir(exist_ok=True)
        (self.place / name).write_text(text)

    def change(self, *, replaced: bool) -> None:
        """Other bytes of the same size and with the same time, in another or the same file."""
        status, text = self.value.stat(), self.value.read_text()
        other = self.value.with_name("new") if replaced else self.value
        other.write_text(text.replace("1", "2"))
        os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
        other.replace(self.value)

    def link(self, name: str, target: str) -> None:
        """A link in the place of whatever is there."""
        path = self.place / name
        if path.is_dir() and not path.is_symlink():
            path.rename(path.with_name("before"))
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    def put_folder(self, name: str) -> None:
        """A directory in the place of whatever is there."""
        (self.place / name).unlink(missing_ok=True)
        (self.place / name).mkdir()

    def copied(self) -> None:
        """Another directory with equal files, and one other, in the place of all headers."""
        self.include.rename(self.place / "old")
        shutil.copytree(self.place / "old", self.include, symlinks=True)
        self.write("include/inner.h", "#define INNER 6\n")

    def led_elsewhere(self) -> None:
        """A link to a directory in the place of one."""
        self.copied()
        self.link("include", "old")
        self.write("old/inner.h", "#define INNER 7\n")

    def unreadable_before(self) -> None:
        self.write("first/value.h", "#define VALUE 6\n#define INNER 6\n")
        (self.place / "first/value.h").chmod(0)

    def put_file(self, name: str) -> None:
        """A file in the place of a directory."""
        shutil.rmtree(self.place / name)
        self.write(name, "")

    def unlinked(self) -> None:
        """A directory in the place of a link to one."""
        (self.include / "linked").unlink()
        self.write("include/linked/part.h", "#define PART 3\n")

    def join(self) -> None:
        """Two equal headers are one file, which is read once."""
        (self.include / "two.h").unlink()
        (self.include / "two.h").hardlink_to(self.include / "one.h")


_CHANGES: Mapping[str, Callable[[Project], object]] = {
    "unchanged": lambda _: None,
    "changed": lambda it: it.write("include/value.h", '#include "inner.h"\n#define VALUE 22\n'),
    "changed, with size and time": lambda it: it.change(replaced=False),
    "replaced, with size and time": lambda it: it.change(replaced=True),
    "unchanged after changes": lambda _: None,
    "touched": lambda it: os.utime(it.value, (1, 1)),
    "inner changed": lambda it: it.write("include/inner.h", "#define INNER 2\n"),
    "inner gone": lambda it: (it.include / "inner.h").unlink(),
    "inner moved": lambda it: (it.include / "inner.h").rename(it.place / "first/inner.h"),
    "gone": lambda it: it.value.unlink(),
    "all gone": lambda it: it.include.rename(it.place / "away"),
    "shadowed before": lambda it: it.write("first/value.h", "#define VALUE 3\n#define INNER 3\n"),
    "shadowed in the current directory": lambda it: it.write("value.h", "#define VALUE 5\n#define INNER 5\n"),
    "shadowed beside": lambda it: it.write("first/inner.h", "#define INNER 5\n"),
    "shadowed by a part": lambda it: it.write("first/linked/part.h", "#define PART 5\n"),
    "shadowed by a directory": lambda it: it.put_folder("first/value.h"),
    "shadowed by a dangling link": lambda it: it.link("first/value.h", "nowhere"),
    "shadowed by a link to itself": lambda it: it.link("first/value.h", "value.h"),
    "shadowed by a link": lambda it: it.link("first/value.h", "../elsewhere/first/value.h"),
    "shadowed, unreadable": lambda it: it.unreadable_before(),
    "unreadable": lambda it: it.value.chmod(0),
    "unreadable directory": lambda it: it.include.chmod(0),
    "a directory for a file": lambda it: it.put_folder("include/value.h"),
    "a file for a directory": lambda it: it.put_file("first"),
    "first directory gone": lambda it: shutil.rmtree(it.place / "first"),
    "found now": lambda it: it.write("include/extra.h", "#define EXTRA 1\n"),
    "found now before": lambda it: it.write("first/extra.h", "#define EXTRA 2\n"),
    "found now here": lambda it: it.write("extra.h", "#define EXTRA 3\n"),
    "link led elsewhere": lambda it: it.link("include/linked", "../target-2"),
    "link made a directory": lambda it: it.unlinked(),
    "link's target changed": lambda it: it.write("target/part.h", "#define PART 4\n"),
    "directory led elsewhere": lambda it: it.led_elsewhere(),
    "directory replaced": lambda it: it.copied(),
    "two files made one": lambda it: it.join(),
    "unchanged in the end": lambda _: None,
}  # fmt: skip
_UNCHANGED = [name for name in _CHANGES if name.startswith(("unchanged", "touched"))]


# ---- programs ----


@dataclass(frozen=True)
class Program:
    """A command that compiles once for each line that it reads, and the way its cache is warmed."""

    name: str
    command: Sequence[object]
    environment: Mapping[str, str]
    warm: Sequence[object] = ()
    """The arguments of ``warm``; a recording of the command if there are none."""
    answers: dict[tuple[object, ...], str] = field(default_factory=dict)
    """Its output without gpucache."""


def _compiled(folder: Path, name: str, *words: str) -> Path:
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("no C compiler is here")
    made = folder / name
    source = Path(__file__).with_name("image_program.c")
    done = run_text([*compiler.command, "-O1", source, "-o", made, *words, "-ldl"])
    if done.returncode and "CL/cl.h" in done.stderr:
        pytest.skip("there is no <CL/cl.h> (opencl-c-headers of Debian, opencl-headers of Fedora)")
    assert done.returncode == 0, done.stderr
    return made


def _opencl(folder: Path, platform: str, vendors: Path, source: Path, project: Project) -> Program:
    libraries = Path(sys.prefix, "lib")
    if not (libraries / "libOpenCL.so.1").is_file():
        pytest.skip("intel-opencl-rt is not installed: no libOpenCL.so.1 below sys.prefix")
    link = f"-Wl,--allow-shlib-undefined,--disable-new-dtags,-rpath,{libraries}"
    program = _compiled(folder, "opencl", "-DOPENCL", str(libraries / "libOpenCL.so.1"), link)
    options = f"-Ifirst -I{project.include}"
    return Program(
        platform, (program, platform, source, options),
        {"OCL_ICD_VENDORS": str(vendors), "POCL_KERNEL_CACHE": "0"},
    )  # fmt: skip


class Images:
    """Programs, each with the root that ``warm`` filled for it, and all that they compile."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder, self.project = folder, Project(folder / "project")
        self.environment = environment
        self._programs: dict[str, Program] = {}
        self._count = 0

    def program(self, name: str, icd_vendors: Path) -> Program:
        if name not in self._programs:
            folder = self.folder / name
            folder.mkdir()
            self.project.reset()
            program = self._made(name, folder, icd_vendors)
            self._warm(program, folder)
            self._programs[name] = program
        return self._programs[name]

    def _made(self, name: str, folder: Path, icd_vendors: Path) -> Program:
        is_opencl = name in ("intel", "pocl", "library-opencl")
        source = folder / ("k.cl" if is_opencl else "k.hip" if name == "hiprtc" else "k.cu")
        words = ("kernel", "global int") if is_opencl else ('extern "C" __global__', "int")
        source.write_text(_SOURCE.replace("KERNEL", words[0]).replace("GLOBAL int", words[1]))
        vendors = folder / "vendors"
        shutil.copytree(icd_vendors, vendors)
        folders = ("first", self.project.include)
        if name == "intel":
            return _opencl(folder, "Intel", vendors, source, self.project)
        if name == "pocl":
            need_pocl_for_c()
            shutil.copy(SYSTEM_ICD, vendors)
            return _opencl(folder, PLATFORM, vendors, source, self.project)
        options = [f"-I{one}" for one in folders]
        if name == "nvrtc":
            made = _compiled(folder, "rtc")
            return Program(name, (made, _nvrtc()[0], source, "-arch=sm_90", *options), {})
        if name == "hiprtc":
            need_hip()
            made = _compiled(folder, "rtc")
            command = (made, "libamdhip64.so.5", source, "--gpu-architecture=gfx90a", *options)
            return Program(name, command, {})
        kind = name.removeprefix("library-")
        target = {"cuda": "cuda:sm_90", "opencl": "opencl:intel"}[kind]
        code = _LIBRARY[kind] + _ASK
        command = (sys.executable, "-c", code, source, self.project.place / "first", self.project.include)
        without = {"GPUCACHE_MEMORY_BYTES": "0", "PYOPENCL_NO_CACHE": "1"}
        return Program(
            name, command, {"OCL_ICD_VENDORS": str(vendors), **without},
            (source, "--target", target, "-I", self.project.place / "first", "-I", self.project.include),
        )  # fmt: skip

    def _warm(self, program: Program, folder: Path) -> None:
        environ, recording = {**self.environment, **program.environment}, folder / "recording"
        gpucache, words = (sys.executable, "-m", "gpucache"), program.warm
        if not words:
            words = ("--recording", recording)
            done = run_text(
                [*gpucache, "record", "-o", recording, "--", *program.command],
                env=environ, input=f"{self.project.place}\n",
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
        done = run_text([*gpucache, "--root", folder / "root", "warm", "--shared", *words], env=environ)
        assert done.returncode == 0, done.stdout + done.stderr

    def unpacked(self, name: str, at: "Place") -> Path:
        own = Path(tempfile.mkdtemp(dir=self.folder))
        own.chmod(0o755)
        at.unpack(self.folder / name / "root", own / "root")
        return own / "root"

    def _shared(self) -> Path:
        """A directory that every user may write to."""
        made = Path(tempfile.mkdtemp(dir=self.folder))
        made.chmod(0o1777)
        return made

    def alone(
        self, program: Program, cwd: Path, wrapper: Sequence[object], state: object, **more: str
    ) -> str:
        """The output of a program without gpucache in a state, asked once."""
        key = (state, cwd, *wrapper)
        if key not in program.answers:
            environ = {
                **self.environment, **program.environment, **more,
                "GPUCACHE_DISABLE": "1", "POCL_CACHE_DIR": str(self._shared()),
            }  # fmt: skip
            done = run_text([*wrapper, *program.command], env=environ, input=f"{cwd}\n", cwd=self.folder)
            program.answers[key] = done.stdout if done.returncode == 0 else done.stdout + done.stderr
        return program.answers[key]

    @contextmanager
    def served(
        self, program: Program, root: Path, around: Sequence[object], within: Sequence[object], **more: str
    ) -> Iterator[tuple[Callable[[Path], str], list[int]]]:
        """A program below ``run`` with an image alone: it is asked with a directory; its hits, in the end."""
        own = self._shared()
        environ = {
            **self.environment, **program.environment, "POCL_CACHE_DIR": str(own),
            "GPUCACHE_SYSTEM_DIRS": str(root), "GPUCACHE_DIR": str(own / "root"), **more,
        }  # fmt: skip
        run = (sys.executable, "-m", "gpucache", "run", "--report", own / "report", "--")
        words = list(map(str, (*around, *run, *within, *program.command)))
        with (own / "errors").open("w+") as errors, subprocess.Popen(
            words, env=environ, cwd=self.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=errors, text=True,
        ) as process:  # fmt: skip
            watch = Timer(PATIENCE_S, process.kill)
            watch.start()
            told: list[int] = []

            def ask(cwd: Path) -> str:
                assert process.stdin and process.stdout
                process.stdin.write(f"{cwd}\n")
                process.stdin.flush()
                return process.stdout.readline() or (own / "errors").read_text()

            yield ask, told
            assert process.stdin
            process.stdin.close()
            process.wait()
            watch.cancel()
            report = own / "report"
            assert report.exists(), (own / "errors").read_text()
            summary = json.loads(report.read_text())["summary"]
            told.append(summary["hits"] + summary["within"])


@pytest.fixture(scope="module")
def images(clean_session: Path) -> Iterator[Images]:
    """In a directory that every user may enter."""
    with tempfile.TemporaryDirectory(prefix="images-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "home").mkdir()
        (folder / "home").chmod(0o1777)
        places = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "TMPDIR"), str(folder / "home"))
        yield Images(folder, {**os.environ, **places, TIMEOUT: TIME_OUT_MS})


# ---- places ----


def _by_tar(source: Path, to: Path) -> None:
    to.mkdir()
    subprocess.run(f"tar -C {source} -cf - . | tar -C {to} -xf -", shell=True, check=True)


def _by_copies(source: Path, to: Path) -> None:
    """With new times, and never to be written."""
    shutil.copytree(source, to, copy_function=shutil.copyfile)
    subprocess.run(["chmod", "-R", "a-w", to], check=True)


def _by_rsync(source: Path, to: Path) -> None:
    if shutil.which("rsync") is None:
        pytest.skip("rsync is not installed")
    subprocess.run(["rsync", "-a", f"{source}/", to], check=True)


def _below_an_overlay(source: Path, to: Path) -> None:
    for one in (to, to.with_name("over")):
        one.mkdir()
    to.with_name("lower").symlink_to(source)


@dataclass(frozen=True)
class Place:
    """How an image is unpacked, and who reads it: the whole of ``run``, or the program alone."""

    unpack: Callable[[Path, Path], None]
    around: Callable[[Path], Sequence[str]] = lambda _: ()
    within: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


def _overlaid(root: Path) -> Sequence[str]:
    over, lower = root.with_name("over"), root.with_name("lower")
    script = f"""mount -t tmpfs none {over} && mkdir {over}/upper {over}/work &&
        mount -t overlay -o lowerdir={lower},upperdir={over}/upper,workdir={over}/work none {root} &&
        exec "$@\""""
    return ("unshare", "--mount", "sh", "-c", script, "sh")


@cache
def _another_user() -> Sequence[str]:
    asks = (sys.executable, "-c", f"import sys, msgspec; sys.exit(sys.version != {sys.version!r})")
    for wrapper in (_NOBODY, _WHO_READS_ALL):
        if run_text([*wrapper, *asks]).returncode == 0:
            return wrapper
    pytest.skip("another user may not run this Python, or setpriv is not installed")


_PLACES = {
    "tar, another user": Place(_by_tar, lambda _: _another_user()),
    "overlay, another namespace of mounts": Place(_below_an_overlay, _overlaid),
    "rsync, a sandbox below": Place(_by_rsync, within=_BOX),
    "copies, never written": Place(_by_copies, variables={"GPUCACHE_READ_ONLY": "1"}),
}


def _usable(*wrapper: str) -> None:
    if wrapper and run_text([*wrapper, sys.executable, "-c", "import gpucache"]).returncode:
        pytest.skip(f"{wrapper[0]} does not work here, or this Python may not be used below it")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "place"),
    [
        *product(("intel", "pocl", "nvrtc", "hiprtc"), _PLACES),
        ("library-cuda", "copies, never written"),
        *product(("library-opencl",), ("tar, another user", "copies, never written")),
    ],
)
def test_no_program_gets_a_binary_of_other_headers(
    images: Images, icd_vendors: Path, name: str, place: str
) -> None:
    """One process that compiles in all states, one after another."""
    program, at, project = images.program(name, icd_vendors), _PLACES[place], images.project
    root = images.unpacked(name, at)
    around, wrong = at.around(root), []
    _usable(*around, *at.within)
    user = around if around[:1] == _NOBODY[:1] else ()
    project.reset()
    with images.served(program, root, around, at.within, **at.variables) as (ask, hits):
        for state, change in _CHANGES.items():
            project.reset()
            change(project)
            expected = images.alone(program, project.place, user, state)
            if (got := ask(project.place)) != expected:
                wrong.append((state, expected, got))
    assert not wrong
    assert len(_CHANGES) > hits[0] >= len(_UNCHANGED)


# ---- processes ----


@dataclass(frozen=True)
class Start:
    """Another process of a program, and whether it must hit, or may not."""

    hits: bool | None = False
    variables: Mapping[str, str] = field(default_factory=dict)
    within: Sequence[str] = ()
    cwd: str = ""
    library: Path | None = None
    """Another NVRTC or hipRTC than the program has loaded before."""
    is_other: bool = True
    """Whether its output differs, too."""


def _in_mounts(script: str) -> tuple[str, ...]:
    return ("unshare", "--mount", "sh", "-c", f'{script} && exec "$@"', "sh")


def _other_build(library: Path, folder: Path, *replaced: tuple[bytes, bytes]) -> Path:
    """A copy of a library in a directory, which is of another build; and more bytes replaced."""
    data = library.read_bytes()
    build_id = installation.read_library(library).build_id
    if build_id is None:
        data += bytes(16)
    else:
        replaced += ((bytes.fromhex(build_id), bytes.fromhex(build_id)[::-1]),)
    for one, other in replaced:
        assert one in data and len(one) == len(other)
        data = data.replace(one, other)
    made = folder / library.name
    made.unlink(missing_ok=True)
    made.write_bytes(data)
    made.chmod(0o755)
    return made


def _folder(images: Images, *libraries: Path) -> Path:
    folder = Path(tempfile.mkdtemp(dir=images.folder))
    folder.chmod(0o755)
    for library in libraries:
        (folder / library.name).symlink_to(library)
    return folder


def _starts(name: str, images: Images) -> Iterator[tuple[str, Start]]:
    """All that differs between two processes, for one program; the files are made meanwhile."""
    place = images.project.place
    yield "the same", Start(True, is_other=False)
    yield "a variable that reaches no compiler", Start(True, {"HARMLESS": "1"}, is_other=False)
    other = f"mount --bind {place}/elsewhere/first {place}/include"
    yield "other headers mounted", Start(within=_in_mounts(other))
    yield "headers hidden", Start(within=_in_mounts(f"mount -t tmpfs none {place}/include"))
    if not name.startswith("library"):  # which has no relative directory
        yield "another directory", Start(cwd="elsewhere")
    yield from _OTHERS[name](images) if name in _OTHERS else ()


def _other_pocl(images: Images) -> Iterator[tuple[str, Start]]:
    yield "options by a variable", Start(variables={"POCL_EXTRA_BUILD_FLAGS": "-DEXTRA=5"})
    vendors = _vendors(images, *Path(pyopencl.__file__).parent.glob(".libs/libpocl*"))
    yield "another PoCL", Start(variables={"OCL_ICD_VENDORS": str(vendors)}, is_other=False)


def _other_intel(images: Images) -> Iterator[tuple[str, Start]]:
    yield "options by a variable", Start(variables={"OPENCL_PROGRAM_COMPILE_OPTIONS": "-DEXTRA=5"})
    for variable in ({"CL_CONFIG_CPU_TARGET_ARCH": "corei7"}, {"CL_CONFIG_CPU_VECTORIZER_MODE": "1"}):
        yield str(variable), Start(variables=variable, is_other=False)
    libraries = Path(sys.prefix, "lib")
    for changed in ("libintelocl.so", "libcommon_clang.so.*", "libocl_svml_*"):
        folder = _folder(images, *libraries.iterdir())
        for library in libraries.glob(changed):
            _other_build(library, folder)
        variables = {"OCL_ICD_VENDORS": str(_vendors(images, folder / "libintelocl.so"))}
        yield f"another {changed}", Start(variables=variables, is_other=False)


def _other_nvrtc(images: Images) -> Iterator[tuple[str, Start]]:
    library, builtins = _nvrtc()
    copies = [Path(shutil.copy(one, folder)) for folder in [_folder(images)] for one in (library, builtins)]
    yield "the same elsewhere", Start(True, library=copies[0], is_other=False)
    yield "another NVRTC", Start(library=_telling_nvrtc(_folder(images, builtins), b"xx"))
    other = _folder(images, library)
    _other_build(builtins, other)
    yield "other builtins", Start(library=other / library.name, is_other=False)


def _other_hip(images: Images) -> Iterator[tuple[str, Start]]:
    yield "headers by a variable", Start(variables={"CPATH": f"{images.project.place}/elsewhere"})
    known = run_text(["/sbin/ldconfig", "-p"]).stdout
    for file in ("libamdhip64.so.5", "libamd_comgr.so.2", "libhiprtc-builtins.so.5"):
        found = re.search(rf"^\s{re.escape(file)} .* => (/.*)$", known, re.M)
        assert found
        folder = _folder(images)
        _other_build(Path(found[1]), folder)
        yield f"another {file}", Start(variables={"LD_LIBRARY_PATH": str(folder)}, is_other=False)


_OTHERS: Mapping[str, Callable[[Images], Iterator[tuple[str, Start]]]] = {
    "nvrtc": _other_nvrtc,
    "hiprtc": _other_hip,
    "pocl": _other_pocl,
    "intel": _other_intel,
    "library-opencl": _other_intel,
}


def _nvrtc() -> tuple[Path, Path]:
    library, builtins = nvrtc.nvrtc_libraries(nvrtc.version())
    assert library is not None and builtins is not None
    return library, builtins


def _telling_nvrtc(folder: Path, end: bytes) -> Path:
    """An NVRTC that tells another version in its PTX."""
    library, _ = _nvrtc()
    told = re.search(rb"release \d+\.\d, V\d+\.\d\.\d\d", library.read_bytes())
    assert told
    return _other_build(library, folder, (told[0], told[0][:-2] + end))


def _vendors(images: Images, *libraries: Path) -> Path:
    folder = _folder(images)
    for library in libraries:
        (folder / f"{library.name}.icd").write_text(f"{library}\n")
    return folder


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", ["intel", "pocl", "nvrtc", "hiprtc", "library-cuda", "library-opencl"])
def test_no_program_gets_a_binary_of_another_process(images: Images, icd_vendors: Path, name: str) -> None:
    """Of one with other variables, in another directory or namespace, with a compiler that was swapped."""
    program = images.program(name, icd_vendors)
    root = images.unpacked(name, _PLACES["tar, another user"])
    images.project.reset()
    place, wrong = images.project.place, []
    usual = images.alone(program, place, (), "unchanged")
    for label, start in _starts(name, images):
        _usable(*start.within)
        cwd, command = place / start.cwd, list(program.command)
        if start.library:
            command[1] = start.library
        other = replace(program, command=command)
        expected = images.alone(other, cwd, start.within, label, **start.variables)
        with images.served(other, root, (), start.within, **start.variables) as (ask, hits):
            got = ask(cwd)
        if (got, expected == usual) != (expected, not start.is_other):
            wrong.append((label, usual, expected, got))
        if start.hits is not None and hits[0] != start.hits:
            wrong.append((label, "hits", str(hits[0]), ""))
    assert not wrong


@pytest.mark.usefixtures("installed")
def test_a_process_is_known_by_the_compiler_that_it_has_loaded(images: Images, icd_vendors: Path) -> None:
    """And not by the one that has replaced it on disk, which the image is for."""
    program = images.program("nvrtc", icd_vendors)
    root, (library, builtins) = images.unpacked("nvrtc", _PLACES["tar, another user"]), _nvrtc()
    folder = _folder(images, builtins)
    made = _telling_nvrtc(folder, b"yy")
    images.project.reset()
    place = images.project.place
    other = replace(program, command=[program.command[0], made, *program.command[2:]])
    expected = images.alone(other, place, (), "replaced")
    with images.served(other, root, (), ()) as (ask, hits):
        first = ask(place)
        Path(shutil.copy(library, folder / "new")).replace(made)
        second = ask(place)
    assert (first, second) == (expected, expected)
    assert (hits[0], images.alone(program, place, (), "unchanged") == expected) == (0, False)
