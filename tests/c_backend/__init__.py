"""C through the system's compiler into a shared object: a backend of a third party.

It uses only ``gpucache.backends.interface`` and the names in it, and no other part of the package knows it:
it is found by the entry point ``c`` in the group ``gpucache.backends``. Its device is the processor, a
kernel is a function that takes one ``int *``. Not a part of the product.
"""

# ruff: noqa: ARG002 - a protocol has arguments that not everyone needs

import ctypes
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path

from gpucache.backends.installation import Installation
from gpucache.backends.interface import Compilation
from gpucache.backends.options import Spelling, Variables, absolute, read, split, trimmed, with_value
from gpucache.errors import CompileError, NoDeviceError, OptionError, TargetError
from gpucache.keys import KeyInputs
from gpucache.model import Artifact, BuildRequest, Device, Target, Toolchain
from gpucache.sources import Place, SearchRule
from tests.children import run_text


class Language(StrEnum):
    C = "c"


class Kind(StrEnum):
    SHARED_OBJECT = "shared-object"


_SPELLINGS = (
    Spelling("-D", ("-D",), ("-D",)),
    Spelling("-U", ("-U",), ("-U",)),
    Spelling("-I", ("-I",), ("-I",)),
    Spelling("-include", (), ("-include",)),
)
_CODE = ("-O", "-f", "-m", "-std=", "-W", "-w", "-g", "-D", "-U")
_VARIABLES = Variables(
    ("CPATH*", "C_INCLUDE_PATH*", "GCC_*", "COMPILER_PATH*", "LIBRARY_PATH*", "SOURCE_DATE_EPOCH*"),
    ("GCC_COLORS",),
)


@cache
def _compiler() -> str:
    found = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if found is None:
        raise NoDeviceError("no C compiler is here; install gcc")
    return found


def _ask(*arguments: str) -> str:
    done = run_text([_compiler(), *arguments])
    return (done.stdout or done.stderr).strip()


@cache
def _machine() -> str:
    return _ask("-dumpmachine")


@cache
def _system_dirs() -> tuple[str, ...]:
    """The directories that the compiler itself searches, in its own words."""
    command = [_compiler(), "-xc", "-E", "-v", os.devnull]
    told = run_text(command, check=True).stderr
    listed = told.partition("#include <...> search starts here:\n")[2].partition("End of search list")[0]
    return tuple(line.strip() for line in listed.splitlines())


class CBackend:
    """See ``gpucache.backends.interface.Backend``."""

    name = "c"
    language = Language.C
    languages = (Language.C,)
    suffix = ".c"
    caches = ()

    def artifact_kind(self, target: Target) -> StrEnum:
        return Kind.SHARED_OBJECT

    def plan(self, request: BuildRequest, toolchain: Toolchain, environ: Mapping[str, str]) -> Compilation:
        options, dirs, forced = [], [], []
        for name, value, _ in read(trimmed(split(request.options)), _SPELLINGS):
            if name == "-I":
                dirs.append(absolute(value, request.cwd))
            elif name == "-include":
                forced.append(value)
                options += [name, value]
            elif name.startswith(_CODE):
                options.append(f"-D{with_value(value)}" if name == "-D" else f"{name}{value}")
            else:
                raise OptionError(
                    f"the build option {name!r} is not known to change code alone; leave it out"
                )
        dirs += [absolute(directory, request.cwd) for directory in request.include_dirs]
        searched = environ.get("CPATH", "")
        return Compilation(
            inputs=KeyInputs(
                options=tuple(options),
                toolchain=toolchain,
                environment=self.environment(toolchain, environ),
                locations=tuple(dirs),
                file_name="<stdin>",
            ),
            rule=SearchRule(
                quote=(Place.INCLUDER, Place.DIRS, Place.SYSTEM),
                angle=(Place.DIRS, Place.SYSTEM),
                system=_system_dirs(),
                names_sources=True,
            ),
            include_dirs=tuple(dirs),
            command=(*options, *(f"-I{directory}" for directory in dirs)),
            inherited_dirs=tuple(filter(None, searched.split(os.pathsep))),
            forced_includes=tuple(forced),
            holds_paths=any(option.startswith("-g") for option in options),
        )

    def environment(self, toolchain: Toolchain, environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        return _VARIABLES.among(environ)

    def devices(self) -> list[Device]:
        try:
            target = Target(self.name, _machine())
        except NoDeviceError as error:
            return [Device(None, self.name, "the processor", "", available=False, detail=str(error))]
        version = _ask("--version").partition("\n")[0]
        return [
            Device(
                target, self.name, "the processor", version, True, "C in this process", self.toolchain(target)
            )
        ]

    def toolchain(self, target: Target) -> Toolchain:
        fields = (("machine", _machine()), ("compiler", _ask("--version").partition("\n")[0]))
        return Toolchain("cc", (*fields, *self.installation(target).fields()), ("machine",))

    def installation(self, target: Target) -> Installation:
        if target.name != _machine():
            raise TargetError(
                f"{_compiler()} does not build for {str(target)!r}; it builds for c:{_machine()}"
            )
        programs = (_ask(f"-print-prog-name={name}") for name in ("cc1", "as", "ld"))
        found = (shutil.which(name) for name in (_compiler(), *programs))
        return Installation(tuple(Path(path).resolve() for path in found if path is not None))

    def compile(self, request: BuildRequest, compilation: Compilation) -> Artifact:
        started = time.perf_counter_ns()
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder, "made.so")
            done = subprocess.run(
                [_compiler(), "-shared", "-fPIC", *compilation.command, "-x", "c", "-", "-o", str(made)],
                input=request.program.source,
                capture_output=True,
                cwd=folder,
                check=False,
            )
            log = done.stderr.decode(errors="replace").replace("<stdin>", request.program.name).strip()
            if done.returncode != 0:
                raise CompileError(f"{request.program.name} does not compile", log)
            payload = made.read_bytes()
        return Artifact(Kind.SHARED_OBJECT, payload, log, time.perf_counter_ns() - started)

    def own_files(self, toolchain: Toolchain) -> tuple[str, ...]:
        return (*map(str, self.installation(Target(self.name, _machine())).files), "/usr/lib/", "/lib/")

    def load(self, artifact: Artifact, target: Target) -> tuple[str, ...]:
        return tuple(_Library(artifact).kernels)


class _Library:
    """A shared object in this process, and the functions it defines."""

    def __init__(self, artifact: Artifact) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "loaded.so")
            file.write_bytes(artifact.payload)
            try:
                ctypes.CDLL(str(file))
            except OSError as error:
                raise CompileError(f"the system's loader rejected the binary ({error})") from None
            command = ["nm", "-D", "--defined-only", "--format=posix", str(file)]
            listed = run_text(command, check=True).stdout
        symbols = (line.split() for line in listed.splitlines())
        self.kernels = [name for name, kind, *_ in symbols if kind == "T" and not name.startswith("_")]


BACKEND = CBackend()
