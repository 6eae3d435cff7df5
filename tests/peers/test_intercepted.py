"""Unmodified real programs under ``gpucache run``: without it, missing and hitting they print the same.

Each is run where it is installed: commands on the PATH, and Python's libraries in this environment.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from gpucache.errors import NoDeviceError
from gpucache.native.locate import locate
from gpucache.serve.environment import TIMEOUT
from tests.children import run_text
from tests.patience import TIME_OUT_MS
from tests.pocl import SYSTEM_ICD

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="commands are intercepted on Linux"),
]
_OPENMM = """
import openmm, openmm.unit as unit
system = openmm.System()
force = openmm.NonbondedForce()
for _ in range(64):
    system.addParticle(39.9)
    force.addParticle(0, 0.34, 0.99)
system.addForce(force)
platform = openmm.Platform.getPlatformByName("OpenCL")
context = openmm.Context(system, openmm.VerletIntegrator(0.001), platform)
context.setPositions([(i % 4 * 0.4, i // 4 % 4 * 0.4, i // 16 * 0.4) for i in range(64)])
energy = context.getState(getEnergy=True).getPotentialEnergy()
print(round(energy.value_in_unit(unit.kilojoule_per_mole), 2))
"""
_SILX = """
import numpy as np
from silx.opencl import sift
image = np.zeros((128, 128), np.float32)
image[40:80, 30:90] = 1
print(len(sift.SiftPlan(template=image, platformid=0, deviceid=0).keypoints(image)))
"""
_SASMODELS = """
import numpy as np
from sasmodels.core import load_model
from sasmodels.direct_model import call_kernel
kernel = load_model("cylinder", dtype="single", platform="ocl").make_kernel([np.logspace(-3, -1, 50)])
print(f"{call_kernel(kernel, {}).sum():.3e}")
"""
_PYOPENCL = """
import numpy as np, pyopencl as cl, pyopencl.array
from pyopencl.algorithm import RadixSort, copy_if
context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
numbers = cl.array.arange(queue, 1000, dtype=np.int32)
print(cl.array.sum(numbers).get(), copy_if(numbers, "ary[i] > 500", queue=queue)[1].get())
sort = RadixSort(context, "int *ary", "ary[i]", ["ary"], key_dtype=np.int32)
print(sort(numbers, key_bits=12, queue=queue)[0][0].get()[:3])
"""
_VIDEO = (
    *["ffmpeg", "-loglevel", "error", "-init_hw_device", "opencl=gpu:0.0", "-filter_hw_device", "gpu"],
    *["-f", "lavfi", "-i", "testsrc=d=0.2:s=320x240", "-vf"],
    "format=yuv420p,hwupload,avgblur_opencl=2,unsharp_opencl,hwdownload,format=yuv420p",
    *["-f", "md5", "-"],
)
_TOMOGRAPHY = (
    *["env", "UFO_DEVICE_TYPE=cpu", "sh", "-c"],
    "mkdir work && cd work && "  # its headers may be there, so nothing else may be written there
    "ufo-launch -q dummy-data width=256 height=256 number=2 init=2.5 ! blur size=7 sigma=2 ! median-filter"
    " ! fft dimensions=2 ! power-spectrum ! write filename=out.tif >&2 && cksum out.tif",
)
_FRACTAL = (
    *["env", "QT_QPA_PLATFORM=offscreen", "sh", "-c"],
    "mandelbulber2 -C -n -r 64x48 -O 'opencl_enabled=1#opencl_platform=0#opencl_device_type=3'"
    " -o out.jpg /usr/share/mandelbulber2/examples/benchmark-GPU.fract >&2 && cksum out.jpg",
)


@dataclass(frozen=True, slots=True)
class Program:
    """A program, its requirements, and its driver."""

    command: Sequence[str]
    needs: str
    """A command or a module of Python."""
    late: bool = False
    """Whether it is run on PoCL, which builds late, and not on Intel's runtime."""
    prints: bool = True
    """Whether its output is the same in every run."""


def _python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-W", "ignore", "-c", code)


PROGRAMS: Mapping[str, Program] = {
    "ffmpeg": Program(_VIDEO, "ffmpeg"),
    "ffmpeg on PoCL": Program(_VIDEO, "ffmpeg", late=True),
    "clFFT on PoCL": Program(
        ["clFFT-client", "-c", "-x", "1024", "-p", "2"], "clFFT-client", late=True, prints=False
    ),
    "OpenMM": Program(_python(_OPENMM), "openmm"),
    "silx": Program(_python(_SILX), "silx"),
    "sasmodels": Program(_python(_SASMODELS), "sasmodels"),
    "UFO": Program(_TOMOGRAPHY, "ufo-launch"),
    "UFO on PoCL": Program(_TOMOGRAPHY, "ufo-launch", late=True, prints=False),
    "Mandelbulber": Program(_FRACTAL, "mandelbulber2"),
    "Mandelbulber on PoCL": Program(_FRACTAL, "mandelbulber2", late=True),
    "PyOpenCL's algorithms": Program(_python(_PYOPENCL), "mako"),
}


@pytest.fixture(params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> Program:
    found = PROGRAMS[request.param]
    if shutil.which(found.needs) is None and importlib.util.find_spec(found.needs) is None:
        pytest.skip(f"{found.needs} is not installed")
    try:
        locate("opencl_layer")
    except NoDeviceError as error:
        pytest.skip(str(error))
    return found


@pytest.fixture
def vendors(program: Program, tmp_path: Path) -> Path:
    """A directory that names the program's driver, and no other, to the OpenCL loader."""
    folder = tmp_path / "vendors"
    folder.mkdir()
    library = Path(sys.prefix, "lib", "libintelocl.so")
    if program.late and SYSTEM_ICD.is_file():
        shutil.copy(SYSTEM_ICD, folder)
    elif not program.late and library.is_file():
        (folder / "intel.icd").write_text(f"{library}\n")
    else:
        pytest.skip("its driver is not installed")
    return folder


def test_a_program_is_served(program: Program, vendors: Path, tmp_path: Path) -> None:
    """After one run everything hits, in a home without another cache, and the output is the same."""
    bare, _ = _run(program, vendors, tmp_path)
    missed, first = _run(program, vendors, tmp_path, "--learn")
    hit, second = _run(program, vendors, tmp_path, "--quiet")
    builds = first["builds"]
    assert builds > 0 and first["misses"] == builds
    assert first["learned" if program.late else "kept"] == builds
    assert (second["builds"], second["hits"]) == (builds, builds)
    assert not program.prints or bare == missed == hit


def test_a_program_is_served_by_an_exported_layer(program: Program, vendors: Path, tmp_path: Path) -> None:
    """After one export of a cold cache everything hits without gpucache, and the output is the same."""
    layer = tmp_path / "layer"
    bare, _ = _run(program, vendors, tmp_path)
    export = (sys.executable, "-m", "gpucache", "--json", "export", "layer", str(layer), "--")
    exported = _call([*export, *program.command], vendors, tmp_path, "export")
    document = exported.stderr[exported.stderr.index("{\n") :]
    summary = json.loads(document)["summary"]
    lines = (layer / "gpucache.env").read_text().splitlines()
    variables = {**dict(line.split("=", 1) for line in lines), "GPUCACHE_LAYER_TELL": "1"}
    served = _call(program.command, vendors, tmp_path, "served", variables)
    assert summary["exported"] > 0 and summary["left"] == 0
    assert served.stderr.count("gpucache: hit: ") == summary["exported"]
    assert "gpucache: miss: " not in served.stderr
    assert not program.prints or bare == exported.stdout == served.stdout


def _run(program: Program, vendors: Path, place: Path, mode: str = "") -> tuple[str, Any]:
    """The program's output, and the summary of its builds if a ``mode`` of run is given."""
    report = place / f"report{mode}"
    ours = (sys.executable, "-m", "gpucache", "run", mode, "--report", str(report), "--") if mode else ()
    done = _call([*ours, *program.command], vendors, place, mode)
    return done.stdout, json.loads(report.read_text())["summary"] if mode else None


def _call(
    command: Sequence[str],
    vendors: Path,
    place: Path,
    name: str,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> "subprocess.CompletedProcess[str]":
    """Run a command in a separate home, without any cache but ours."""
    home = place / f"home{name}"
    (home / "pocl").mkdir(parents=True)
    environ = {
        **os.environ,
        "OCL_ICD_VENDORS": str(vendors),
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home),
        "POCL_CACHE_DIR": str(home / "pocl"),
        "GPUCACHE_DIR": str(place / "root"),
        TIMEOUT: TIME_OUT_MS,
        **variables,
    }
    done = run_text(command, env=environ, cwd=home)
    assert done.returncode == 0, done.stderr
    return done
