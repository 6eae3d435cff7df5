"""The meaning of a command's OpenCL build: a request to our engine, with the keys of warm and the library.

Owns the removal of whatever makes keys differ: PyOpenCL's mark against caches, its variable, our own layer.
Looks nothing up and keeps nothing. Must not load a GPU stack.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gpucache.answers.lookup import Hit
from gpucache.backends.opencl import BACKEND
from gpucache.backends.opencl.options import EXTRA_OPTIONS, as_pyopencl_reads
from gpucache.engine.prepare import Prepared, prepare
from gpucache.engine.program_names import program_name
from gpucache.intercept.devices import Devices, Facts
from gpucache.intercept.environment import Libraries, without_us
from gpucache.intercept.server import require_same_files
from gpucache.intercept.session import Compiler
from gpucache.intercept.wire import Fields, Kind
from gpucache.model import BuildRequest, Language, Program
from gpucache.sources import Memos

# PyOpenCL appends this on platforms that keep no cache of sources, so that no other cache answers.
DEFEATER = re.compile(rb"\n\n__constant int pyopencl_defeat_cache_([0-9a-f]{32}) = 0;\Z")
_NAME_HEADERS = "for a command no headers can be named, so it is compiled as without gpucache"


@dataclass(frozen=True, slots=True)
class Asked:
    """A build as a command asks for it, without our additions or PyOpenCL's."""

    files_seen: str
    """Which files its thread sees."""
    cwd: str
    environ: Mapping[str, str]
    options: str
    source: bytes
    devices: tuple[Facts, ...]

    is_ours = False

    @property
    def name(self) -> str:
        """The program's name, for people."""
        return program_name(self.source)


class OpenCL(Compiler[Asked]):
    """Builds of OpenCL programs, whose parts are devices."""

    ask, told, backend = Kind.BUILD, Kind.BUILT, BACKEND
    refusals = (-11, -43)
    """CL_BUILD_PROGRAM_FAILURE and CL_INVALID_BUILD_OPTIONS; other codes say nothing about the program."""
    first_payload, tells_all, is_whole = 1, True, False

    def __init__(self, devices: Devices, libraries: Libraries) -> None:
        self.devices = devices
        self._libraries = libraries

    def read(self, fields: Fields) -> Asked:
        """A build of the fields of a request; raises WireError."""
        return read_build(fields, self._libraries)

    def prepare(self, asked: Asked, memos: Memos | None = None) -> tuple[Prepared, ...]:
        """The lookup for each device; raises OptionError, and TargetError for an unknown device."""
        return prepare_build(asked, self.devices, memos)

    def answer(self, _asked: Asked, hits: Sequence[Hit], logs: Sequence[bytes]) -> Iterator[bytes]:
        """A token, and the binary and log of each device."""
        yield b""
        for hit, log in zip(hits, logs, strict=True):
            yield from (hit.payload, log)

    def files(self, asked: Asked) -> Sequence[Sequence[str]]:
        """The files of each device's driver; raises TargetError."""
        return [self.devices.files(facts) for facts in asked.devices]


def read_build(fields: Fields, libraries: Libraries) -> Asked:
    """A build of the fields of a request; raises WireError."""
    files_seen, cwd = fields.text(), fields.text()
    environ = _environment(fields.take(), libraries)
    options, source = fields.text(), fields.take()
    devices = tuple(
        Facts(fields.text(), tuple(fields.text() for _ in range(Facts.COUNT - 1)))
        for _ in range(fields.count())
    )
    fields.end()
    return Asked(files_seen, cwd, environ, options, DEFEATER.sub(b"", source), devices)


def prepare_build(asked: Asked, devices: Devices, memos: Memos | None = None) -> tuple[Prepared, ...]:
    """The lookup for each device; raises OptionError, and TargetError for an unknown device."""
    require_same_files(asked.files_seen, asked.cwd)
    options = as_pyopencl_reads((asked.options,))
    program = Program(asked.name, Language.OPENCL_C, asked.source)
    found = [devices.match(facts, asked.cwd) for facts in asked.devices]
    return tuple(
        prepare(
            BACKEND,
            BuildRequest(
                program=program,
                target=target,
                options=options,
                name_headers=_NAME_HEADERS,
                cwd=asked.cwd,
                searches_cwd=True,
            ),
            toolchain,
            asked.environ,
            memos,
        )
        for target, toolchain in found
    )


@lru_cache(maxsize=16)
def _environment(data: bytes, libraries: Libraries) -> Mapping[str, str]:
    """The variables of a program, each ended by NUL; the first of a name counts, as it does for getenv.

    Of the options that PyOpenCL reads in a variable nothing is left: its programs have put them among
    theirs, and other programs ignore them.
    """
    lines = reversed(data.decode("utf-8", "surrogateescape").split("\0"))
    pairs = (line.partition("=") for line in lines if "=" in line)
    environ = without_us({name: value for name, _, value in pairs}, libraries)
    environ.pop(EXTRA_OPTIONS, None)
    return environ
