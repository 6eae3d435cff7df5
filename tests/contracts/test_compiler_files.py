"""The files that compilers open, as strace sees them, against the toolchain's own list."""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.children import run_text
from tests.pocl import name_pocl_for_c

# Compiles with the first compiler of a kind that works here, and lists its files before and after.
# The loader of OpenCL loads the others as well.
_BUILD = """
import json, os, sys
from gpucache.backends.interface import load_backend
from gpucache.engine.prepare import prepare
from gpucache.errors import CompileError
from gpucache.model import BuildRequest, Program
name, folder = sys.argv[1:]
if name.startswith("opencl"):
    import pyopencl
else:
    from cuda.bindings import nvrtc
    nvrtc.nvrtcResult
open(os.path.join(folder, "begun")).close()
backend = load_backend(name.partition(":")[0])
rows = [row for row in backend.devices() if str(row.target).startswith(name) and row.available]
say = {"target": None}
for row in rows:
    installation = backend.installation(row.target)
    say["fields"] = installation.fields()
    source = open(os.path.join(folder, "k" + backend.suffix), "rb").read()
    program = Program("k", backend.language, source)
    for options in ((), ("-DN=2",)):
        request = BuildRequest(program, row.target, options, (folder,), backend.artifact_kind(row.target))
        prepared = prepare(backend, request, backend.toolchain(row.target), os.environ)
        assert not prepared.refusal, prepared.refusal
        try:
            backend.compile(request, prepared.compilation)
        except CompileError as error:
            say["problem"] = str(error) + error.log
            break
    else:
        say["target"] = str(row.target)
        say["fields after"] = backend.installation(row.target).fields()
        break
made_of = [backend.installation(row.target) for row in backend.devices() if row.toolchain]
say["own"] = [str(path) for each in made_of for path in each.files]
print(json.dumps(say))
"""
_OPENCL = """#include "h.h"
kernel void k(global float *o, read_only image2d_t i) {
  *o = V * sin(*o) + get_global_id(0); printf("%f", *o); }
"""
_CUDA = """#include "h.h"
extern "C" __global__ void k(float *o) { *o = V * sinf(*o); printf("%f", *o); }
"""
# The system's: the facts of a machine, its locale, the loader of OpenCL with its configuration,
# libraries that compile nothing, and the linker that PoCL runs with its inputs.
_SYSTEM = re.compile(
    r"/(proc|sys|dev|etc)/.*|/|/opt|/(usr/)?lib/(locale|os-release|gcc)\b.*|/usr/share/(locale|zoneinfo)/.*"
    r"|.*/gconv-modules\.cache|.*\.icd|.*/(libOpenCL|libicd)[^/]*|.*/vendors"
    r"|.*/(ld-linux|lib(c|m|mvec|dl|rt|pthread|stdc\+\+|gcc_s|z|zstd|lzma|bz2|xml2|icu\w+|tinfo|edit|bsd|md"
    r"|ffi|udev|numa|hwloc|z3|tbb\w*|crypto|ssl|sqlite3|expat|uuid|selinux))[-.][^/]*"
    r"|.*/(libbfd|libopcodes|libctf|libjansson|libsframe)[^/]*|.*/libc_nonshared\.a|.*/crt[^/]*\.o"
    r"|/usr/local/cuda[^/]*/include/cuda\.h"  # clang looks for an installation before it links
)
_OPENED = re.compile(rb'^\d+ +open(?:at)?\([^"]*"[^"]*", ([A-Z_|]+).*\) += \d+<(.*)>$', re.MULTILINE)


@pytest.fixture(scope="module", params=["opencl:pocl", "opencl:intel", "cuda:sm_90"])
def traced(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, icd_vendors: Path
) -> tuple[Mapping[str, object], list[str], Path]:
    """The output of a compiling process, the files opened since it began, and its own directory."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    folder = tmp_path_factory.mktemp("traced")
    for name, text in (("h.h", "#define V 3\n"), ("k.cl", _OPENCL), ("k.cu", _CUDA), ("begun", "")):
        (folder / name).write_text(text, encoding="ascii")
    done = run_text(
        [
            *(strace, "-f", "--seccomp-bpf", "-y", "-o", str(folder / "trace"), "-e", "trace=open,openat"),
            *(sys.executable, "-P", "-c", _BUILD, request.param, str(folder)),
        ],
        cwd=folder,
        env=_environment(request.param, folder, icd_vendors),
    )
    if done.returncode != 0 and "ptrace" in done.stderr:
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    if said["target"] is None:
        pytest.skip(f"no {request.param} compiles here: {said.get('problem', 'there is none')}")
    return said, list(_opened(folder / "trace")), folder


def _environment(target: str, folder: Path, vendors: Path) -> dict[str, str]:
    """Without platforms of the machine that show no device, whose files no toolchain has."""
    if target == "opencl:pocl":
        vendors = name_pocl_for_c(vendors, folder / "vendors")
    places = {"POCL_CACHE_DIR": folder / "kcache", "XDG_CACHE_HOME": folder, "OCL_ICD_VENDORS": vendors}
    return {**os.environ, **{name: str(place) for name, place in places.items()}}


def _opened(trace: Path) -> Iterator[str]:
    _, _, rest = trace.read_bytes().partition(b"/begun>")
    seen = {name for flags, name in _OPENED.findall(rest) if b"O_WRONLY" not in flags}
    yield from sorted(map(os.fsdecode, seen))


def _is_pythons(name: str) -> bool:
    return name.endswith((".py", ".pyc", "pyvenv.cfg")) or ".cpython-" in name or "/lib-dynload/" in name


@pytest.mark.slow
def test_every_file_that_a_build_opens_is_accounted_for(
    traced: tuple[Mapping[str, object], list[str], Path],
) -> None:
    """It is the program's, the system's, or in the toolchain's fields."""
    said, opened, folder = traced
    own = {os.path.realpath(path) for path in said["own"]}  # type: ignore[attr-defined]
    other = [
        name
        for name in opened
        if name not in own
        and not name.startswith(str(folder))
        and not _SYSTEM.fullmatch(name)
        and not _is_pythons(name)
        and not Path(name).is_dir()
    ]
    assert other == []
    assert own & set(opened)


@pytest.mark.slow
def test_a_toolchain_is_the_same_before_and_after_a_build(
    traced: tuple[Mapping[str, object], list[str], Path],
) -> None:
    """Whatever the compiler loads meanwhile."""
    said, _, _ = traced
    assert said["fields"] == said["fields after"]
