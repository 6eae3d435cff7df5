"""The interface for PyOpenCL programs: ``build_program``, ``install``, ``Batch`` and ``CheckedQueue``.

Compiles in the caller's process after a miss, and gives the program the compiler's result: a program made
from a binary knows less about itself. A compiler that builds late builds as it does without us, and the
request is noted for ``gpucache warm --misses``. A program never fails because of the cache: any fault of the
cache ends in a plain build by PyOpenCL. Loads PyOpenCL.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyopencl as cl
from pyopencl.tools import is_spirv

from gpucache.opencl.hook import install, uninstall
from gpucache.opencl.questions import ask

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from gpucache.backends.opencl.checked import CheckedQueue
    from gpucache.library.missing import flush
    from gpucache.opencl.batch import Batch

__all__ = ["Batch", "CheckedQueue", "build_program", "flush", "install", "uninstall"]


_HOMES = {
    "Batch": "gpucache.opencl.batch",
    "CheckedQueue": "gpucache.backends.opencl.checked",
    "flush": "gpucache.library.missing",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'gpucache.opencl' has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found


def build_program(
    context: cl.Context,
    source: str | bytes,
    *,
    options: str | Sequence[str] | None = (),
    devices: Sequence[cl.Device] | None = None,
    name: str | None = None,
    include_path: Sequence[str | Path] = (),
    local_sizes: Sequence[Sequence[int] | int] = (),
    headers: Sequence[str | Path] = (),
    checks: str = "none",
    specialization_constants: "Mapping[int, Buffer] | None" = None,
    reuse: bool = False,
) -> cl.Program:
    """A built ``pyopencl.Program``, from the cache if it has one.

    ``options`` are build options as PyOpenCL takes them, ``devices`` the devices to build for (default: all
    of the context); ``include_path`` are directories searched for headers before PyOpenCL's own.
    ``local_sizes`` are the local (work-group) sizes the program launches with, such as ``[(64,), (16, 16)]``:
    a compiler that builds late (PoCL) then has them in the binary, for grids of under 65,536 work items in
    each dimension; ``gpucache warm`` adds the binaries for larger ones. ``headers`` are headers included
    through a macro, named by hand as in a manifest. ``name`` is for people: ``gpucache inspect`` shows it.
    ``source`` may be a SPIR-V module as bytes. ``specialization_constants`` are its constants by number, each
    of exactly the size that the module declares, such as ``{3: numpy.uint32(64)}``. ``checks`` turns on the
    checks that kernels make with ``gpucache/check.h``: ``none``, ``sync`` or ``async``. Such kernels are
    launched by a ``CheckedQueue``. The directory of that header is searched if the source names it.

    With ``reuse`` a request for what is built already in this context, by this function with ``reuse``, gives
    the same program, which then has one build for all threads; not where the program has variables in global
    memory, as its callers would share them. A context keeps its latest 128 such programs until it ends.

    After a miss the program is the compiler's own; a thread logs the reason and publishes the binary while
    the program goes on, and ``flush`` waits for it. After a hit it knows its source, its options and the
    compiler's log, and warns where the compiler did. It is made from a binary, as its ``kind`` says; its
    kernels' ``attributes`` are empty (sizes that they require apply, and are reported), and Intel's driver
    gives no names and types of their arguments: with ``-cl-kernel-arg-info`` such a program is not cached.

    Raises TypeError or ValueError for an invalid argument, ``gpucache.errors.SourceError`` for a check whose
    message does not fit its operands, ``gpucache.errors.CacheMissError`` where GPUCACHE_REQUIRE is set and
    the cache misses, and PyOpenCL's own errors where the program does not compile.
    """
    if not isinstance(context, cl.Context):
        raise TypeError(f"context must be a pyopencl.Context, not {context!r}")
    plain = (
        not (include_path or local_sizes or headers or specialization_constants or reuse)
        and checks == "none"
        and (name is None or type(name) is str)
    )
    asked = ask(context, source, options, devices, plain=plain)
    if asked.program is not None:
        return asked.program
    from gpucache.checks import include_dirs
    from gpucache.library import arguments, process
    from gpucache.model import BuildRequest, Checks, Language, Program
    from gpucache.opencl.building import ANY, Call, built

    text = arguments.source_bytes(source)
    given = arguments.build_options(() if options is None else options)
    mode = arguments.checks_mode(checks)
    language = Language.SPIR_V if is_spirv(source) else Language.OPENCL_C
    if mode is not Checks.NONE and language is Language.SPIR_V:
        raise ValueError("checks are of a program's source, and this is SPIR-V; give OpenCL C")
    constants = arguments.specialization_constants(specialization_constants or {})
    if constants and language is not Language.SPIR_V:
        raise ValueError("specialization_constants are of a SPIR-V module, and this is OpenCL C; use -D")
    request = BuildRequest(
        program=Program(arguments.text_or_none("name", name) or "", language, text),
        options=constants,
        target=ANY,
        include_dirs=(*arguments.paths("include_path", include_path), *include_dirs(text, mode)),
        local_sizes=arguments.local_sizes(local_sizes),
        headers=arguments.paths("headers", headers, arguments.current_directory()),
        name_headers=arguments.NAME_HEADERS,
        cwd=arguments.current_directory(),
        searches_cwd=True,
        checks=mode,
    )
    call = Call(context, source, given, request, devices, reuse=reuse, question=asked.question)
    program = built(process.stores(), request, call)
    if mode is Checks.NONE:
        return program
    from gpucache.backends.opencl.checked import CheckedProgram
    from gpucache.checks.failures import Checked
    from gpucache.engine.prepare import named

    # It has a program's interface, and no program's class.
    return CheckedProgram(program, Checked(named(request.program).name, mode, call.table))
