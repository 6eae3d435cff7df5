"""The libraries that the ICD loader should load, and why some of them do not load.

The loader is silent about a library that does not load, and about a variable that names nothing. libOpenCL(7)
of ocl-icd and the README of Khronos' loader say what it reads. This module loads the same libraries, so only
the probe's child may use it. It must not load PyOpenCL.
"""

import ctypes
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

FOLDER = Path("/etc/OpenCL/vendors")
MOST_BYTES = 4096


def problems(environ: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each thing that the loader silently ignores; none on systems other than Linux."""
    if not sys.platform.startswith("linux"):
        return
    variable = next((name for name in ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH") if environ.get(name)), "")
    place = Path(environ[variable]) if variable else FOLDER
    if place.is_dir():
        for file in sorted(place.glob("*.icd")):
            yield from _unloadable(file)
    elif place.suffix == ".icd":
        file = place if "/" in str(place) else FOLDER / place
        yield from _unloadable(file) if file.is_file() else [_nowhere(variable, place)]
    elif variable and "/" in str(place) and not place.exists():
        yield _nowhere(variable, place)
    elif variable:
        yield from _refused(str(place), f"{variable} names {place}")
    for library in filter(None, environ.get("OCL_ICD_FILENAMES", "").split(":")):
        yield from _refused(library, f"OCL_ICD_FILENAMES names {library}")


def _nowhere(variable: str, place: Path) -> str:
    return f"{variable} names {place}, where nothing is; correct or unset it"


def _unloadable(file: Path) -> Iterator[str]:
    try:
        with file.open(encoding="utf-8", errors="surrogateescape") as lines:
            library = lines.read(MOST_BYTES).strip()
    except OSError as error:
        yield f"{file} cannot be read ({error.strerror}), so its driver is left out; fix its permissions"
        return
    yield from _refused(library, f"{file} names {library}")


def _refused(library: str, told: str) -> Iterator[str]:
    """Why the system's linker does not load a library, in its own words."""
    try:
        ctypes.CDLL(library)
    except (OSError, ValueError) as error:
        yield f"{told}, which does not load: {error}; install what it needs, or remove what names it"
