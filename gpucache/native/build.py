"""Compiles the libraries of this directory, with ``cc`` or with PyPI's ziglang.

Runs when a wheel is built or the package is installed from source, and by hand as
``python -m gpucache.native.build``. It imports nothing of gpucache, which is not installed while it is built.
"""

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
BUILT = FOLDER / "lib"
_FLAGS = ("-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread", "-s")
STARTER = "gpucache_run"
"""The program that begins ``gpucache run``."""
# A library that the process still calls into while it ends must not be unloaded; nothing is looked up late.
_LINKING = ("-Wl,-z,nodelete", "-Wl,-z,now")
ASKING = ("wire.c", "index.c", "conditions.c", "entries.c", "xxh3.c", "sha256.c")
"""The sources of each library that sends questions."""
_GLIBC = (2, 17)
"""The oldest glibc that ziglang builds for; builds by ``cc`` need the one of this machine."""
_ZIGLANG_MACHINES = ("x86_64", "aarch64")
"""The machines for which PyPI has wheels of ziglang and which have GPUs; it is not required on others."""


@dataclass(frozen=True, slots=True)
class Library:
    """The sources of one library, relative to this directory."""

    sources: tuple[str, ...]
    flags: tuple[str, ...] = ()
    needs: str = ""
    """The name of a library that the loader must request; no library of this name exists to link with."""


SHIMS = (
    *(("nvrtc", 12, "nvrtc_12"), ("nvrtc", 13, "nvrtc_13")),
    *(("amdhip64", major, "amdhip64") for major in (5, 6)),
    *(("hiprtc", major, "hiprtc") for major in (5, 6, 7)),
)
"""The libraries that ``nvrtc_shim.c`` replaces, their major versions, and the files of their symbols."""

LIBRARIES: Mapping[str, Library] = {
    "opencl_layer": Library(("opencl_layer.c", "opencl_builds.c", "opencl_handles.c", *ASKING)),
    "nvrtc_audit": Library(("nvrtc_audit.c",)),
    "library": Library(("library.c", "journal.c", "scan.c", *ASKING)),
    STARTER: Library(("run.c", "journal.c", "root_file.c")),
    **{
        f"{name}_{major}": Library(
            ("nvrtc_shim.c", *ASKING),
            (
                f"-DRTC={name}",
                f"-DMAJOR={major}",
                f"-DIS_HIP={int(name != 'nvrtc')}",
                f"-Wl,-soname,lib{name}.so.{major}",
                f"-Wl,--version-script={FOLDER / f'{versions}.map'}",
            ),
            needs=f"gpucache-{name}.so.{major}",
        )
        for name, major, versions in SHIMS
    },
}
"""By name; ``file_name`` has the file's."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """A command that compiles C, and the platforms that a wheel with its libraries runs on."""

    command: tuple[str, ...]
    platform: str


def file_name(library: str) -> str:
    return library if library == STARTER else f"libgpucache_{library}.so"


def find_compiler() -> Compiler | None:
    """The command in ``CC``, else ``cc``, else an installed ziglang; None if there is none of them."""
    if sys.platform != "linux":
        return None
    import importlib.util
    import shlex
    import sysconfig

    own = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if _has_compiler():
        return Compiler(tuple(shlex.split(os.environ.get("CC", "cc"))), own)
    if importlib.util.find_spec("ziglang") is None or not _has_glibc():
        return None
    target = f"{platform.machine()}-linux-gnu.{_GLIBC[0]}.{_GLIBC[1]}"
    command = (sys.executable, "-m", "ziglang", "cc", "-target", target)
    return Compiler(command, f"manylinux_{_GLIBC[0]}_{_GLIBC[1]}_{platform.machine()}")


def requirements() -> list[str]:
    """The packages that pip must install before it makes a wheel: a compiler from PyPI if there is none."""
    wanted = sys.platform == "linux" and _has_glibc() and not _has_compiler()
    return ["ziglang>=0.13"] if wanted and platform.machine() in _ZIGLANG_MACHINES else []


def _has_compiler() -> bool:
    return "CC" in os.environ or shutil.which("cc") is not None


def _has_glibc() -> bool:
    return platform.libc_ver()[0] == "glibc"


def build(compiler: Compiler, folder: Path, flags: Sequence[str] = ()) -> dict[str, str]:
    """Compile every library into a directory; returns the errors of failed ones, by name."""
    folder.mkdir(parents=True, exist_ok=True)
    problems = {}
    for name in LIBRARIES:
        if problem := _compile(compiler, name, folder, flags):
            problems[name] = problem
    return problems


def _compile(compiler: Compiler, name: str, folder: Path, flags: Sequence[str]) -> str:
    """Compile one library and replace the one there, which may be in use; returns the error, or nothing."""
    library = LIBRARIES[name]
    with tempfile.TemporaryDirectory(dir=folder) as place:
        made = Path(place, file_name(name))
        usual = [flag for flag in _FLAGS if name != STARTER or flag != "-shared"]
        sources = (str(FOLDER / source) for source in library.sources)
        arguments = [*usual, *library.flags, *flags, *sources]
        problem = ""
        if library.needs:
            empty = Path(place, library.needs)
            named = f"-Wl,-soname,{empty.name}"
            problem = _run(compiler, [*_FLAGS, named, "-xc", os.devnull, "-o", str(empty)])
            arguments += ["-Wl,--no-as-needed", str(empty)]
        problem = problem or _run(compiler, [*arguments, *_LINKING, "-ldl", "-o", str(made)])
        if not problem:
            made.replace(folder / made.name)
    return problem


def _run(compiler: Compiler, arguments: Sequence[str]) -> str:
    """Call the compiler; returns its messages if it fails, or nothing."""
    import subprocess

    try:
        done = subprocess.run(
            [*compiler.command, *arguments], capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        return str(error)
    if done.returncode == 0:
        return ""
    return done.stderr.strip() or f"the compiler ended with {done.returncode}"


def _told(compiler: Compiler | None) -> Iterator[str]:
    if compiler is None:
        yield "no usable C compiler was found: install gcc or PyPI's ziglang (Linux only)"
        return
    for name, problem in build(compiler, BUILT).items():
        yield f"{file_name(name)} was not built: {problem}"


if __name__ == "__main__":
    sys.exit("\n".join(_told(find_compiler())) or 0)
