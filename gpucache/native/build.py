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
from functools import cache, partial
from pathlib import Path

FOLDER = Path(__file__).parent
BUILT = FOLDER / "lib"
_COMPILING = ("-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-pthread")
STARTER = "gpucache_run"
"""The program that begins ``gpucache run``."""
# A library that the process still calls into while it ends must not be unloaded; nothing is looked up late.
_LINKING = ("-pthread", "-s", "-Wl,-z,nodelete", "-Wl,-z,now", "-ldl")
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
    defines: tuple[str, ...] = ()
    """For its first source; the others are compiled once for all libraries."""
    linking: tuple[str, ...] = ()
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
            (f"-DRTC={name}", f"-DMAJOR={major}", f"-DIS_HIP={int(name != 'nvrtc')}"),
            (f"-Wl,-soname,lib{name}.so.{major}", f"-Wl,--version-script={FOLDER / f'{versions}.map'}"),
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
    with tempfile.TemporaryDirectory(dir=folder) as place:
        compiled = cache(partial(_compile, compiler, Path(place), flags))
        for name, library in LIBRARIES.items():
            first, *others = library.sources
            made = [compiled(first, library.defines), *map(compiled, others)]
            problem = next((told for _, told in made if told), "")
            problem = problem or _link(compiler, name, [*flags, *(one for one, _ in made)], Path(place))
            if problem:
                problems[name] = problem
            else:  # replaces the one there, which may be in use
                Path(place, file_name(name)).replace(folder / file_name(name))
    return problems


def _compile(
    compiler: Compiler, place: Path, flags: Sequence[str], source: str, defines: Sequence[str] = ()
) -> tuple[str, str]:
    """The object of a source in a directory, and the error or nothing."""
    made = str(place / f"{source}{''.join(defines)}.o")
    arguments = [*_COMPILING, *defines, *flags, "-c", str(FOLDER / source), "-o", made]
    return made, _run(compiler, arguments)


def _link(compiler: Compiler, name: str, objects: Sequence[str], place: Path) -> str:
    """Make a library of objects in a directory; returns the error, or nothing."""
    library = LIBRARIES[name]
    arguments = [*objects, *library.linking, *([] if name == STARTER else ["-shared"])]
    if library.needs:
        empty = str(place / library.needs)
        named = f"-Wl,-soname,{library.needs}"
        if problem := _run(compiler, ["-shared", "-s", named, "-xc", os.devnull, "-o", empty]):
            return problem
        arguments += ["-Wl,--no-as-needed", empty]
    return _run(compiler, [*arguments, *_LINKING, "-o", str(place / file_name(name))])


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
