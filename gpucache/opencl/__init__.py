"""What a PyOpenCL program imports: ``build_program``, ``install``, ``Batch`` and ``CheckedQueue``.

Compiles in the caller's process after a miss, and gives the program what the compiler gave: a program
made from a binary knows less of itself. A compiler that builds late is left to build as it does without
us, and what was wanted is noted for ``gpucache warm --misses``. A program never fails because of the
cache: what goes wrong with it ends in a plain build by PyOpenCL. Loads PyOpenCL.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyopencl as cl
from pyopencl.tools import is_spirv

from gpucache.backends.opencl.checked import CheckedProgram, CheckedQueue
from gpucache.checks import Checked, include_dirs
from gpucache.engine.program_names import program_name
from gpucache.library import arguments, process
from gpucache.library.batch import Batch as AnyBatch
from gpucache.library.batch import Routine
from gpucache.library.joined_sources import Part
from gpucache.model import BuildRequest, Checks, Language, Program
from gpucache.opencl.building import ANY, Call, built
from gpucache.opencl.hook import install, uninstall

__all__ = ["Batch", "CheckedQueue", "build_program", "install", "uninstall"]


def build_program(
    context: Any,
    source: str | bytes,
    *,
    options: str | Sequence[str] | None = (),
    devices: Sequence[Any] | None = None,
    name: str | None = None,
    include_path: Sequence[str | Path] = (),
    local_sizes: Sequence[Sequence[int] | int] = (),
    headers: Sequence[str | Path] = (),
    checks: str = "none",
) -> Any:
    """A built ``pyopencl.Program``, from the cache where it is there.

    ``options`` are build options as PyOpenCL takes them, ``devices`` those of the context to build for,
    without it all; ``include_path`` are folders searched for headers before PyOpenCL's own.
    ``local_sizes`` are the local (work-group) sizes the program launches with, such as
    ``[(64,), (16, 16)]``: a compiler that builds late (PoCL) then has them in the binary, for grids of
    under 65,536 work items in each dimension; ``gpucache warm`` adds those for larger ones.
    ``headers`` are those reached through a macro, named by hand as in a manifest. ``name`` is for
    people: it is what ``gpucache inspect`` shows. SPIR-V as ``source`` is built and not kept.
    ``checks`` turns on the checks that kernels make with ``gpucache/check.h``: ``none``, ``sync`` or
    ``async``. Such kernels are launched by a ``CheckedQueue``. The folder of that header is searched
    where the source names it.

    After a miss the program is the compiler's own. After a hit it knows its source, its options and
    what the compiler said, and warns where the compiler did. It is made of a binary, and so its
    ``kind`` says, its kernels' ``attributes`` are empty (sizes that they require hold, and are
    answered), and on Intel's driver they answer nothing about their arguments' names and types: with
    ``-cl-kernel-arg-info`` such a program is not kept.

    Raises TypeError or ValueError for an argument that cannot be meant,
    ``gpucache.errors.SourceError`` for a check whose message does not fit its operands,
    ``gpucache.errors.CacheMissError`` where GPUCACHE_REQUIRE is set and the cache misses, and
    PyOpenCL's own errors where the program does not compile.
    """
    if not isinstance(context, cl.Context):
        raise TypeError(f"context must be a pyopencl.Context, not {context!r}")
    text = arguments.source_bytes(source)
    given = arguments.build_options(() if options is None else options)
    mode = arguments.checks_mode(checks)
    if mode is not Checks.NONE and is_spirv(source):
        raise ValueError("checks are of a program's source, and this is SPIR-V; give OpenCL C")
    request = BuildRequest(
        program=Program(arguments.text_or_none("name", name) or program_name(text), Language.OPENCL_C, text),
        target=ANY,
        include_dirs=(*arguments.paths("include_path", include_path), *include_dirs(text, mode)),
        local_sizes=arguments.local_sizes(local_sizes),
        headers=arguments.paths("headers", headers, arguments.current_directory()),
        name_headers=arguments.NAME_HEADERS,
        cwd=arguments.current_directory(),
        searches_cwd=True,
        checks=mode,
    )
    call = Call(context, source, given, request, devices)
    program = built(process.layers(), request, call)
    return (
        program
        if mode is Checks.NONE
        else CheckedProgram(program, Checked(request.program.name, mode, call.table))
    )


class Batch(AnyBatch[Any, Any]):
    """Sources for one context that are compiled, kept and loaded as one program where they can be.

    The arguments are those of ``build_program``, and hold for all sources. ``add`` gives a ``Routine``;
    nothing is compiled before the ``kernel`` or ``program`` of one is asked for. Raises as
    ``build_program`` does, then. A failed check names the source that it stands in.
    """

    refused = cl.Error

    def __init__(
        self,
        context: Any,
        *,
        options: str | Sequence[str] | None = (),
        devices: Sequence[Any] | None = None,
        include_path: Sequence[str | Path] = (),
        local_sizes: Sequence[Sequence[int] | int] = (),
        headers: Sequence[str | Path] = (),
        checks: str = "none",
    ) -> None:
        super().__init__(checks)
        if not isinstance(context, cl.Context):
            raise TypeError(f"context must be a pyopencl.Context, not {context!r}")
        self._build = partial(
            build_program,
            context,
            options=options,
            devices=devices,
            include_path=include_path,
            local_sizes=local_sizes,
            headers=headers,
            checks=checks,
        )

    def add(self, source: str | bytes, *, name: str | None = None) -> Routine[Any, Any]:
        """A source to be built with the others; ``name`` stands in the compiler's messages."""
        return self._add(source, name)

    def build(self, part: Part, expressions: tuple[str, ...]) -> Any:  # noqa: ARG002 - C has no such names
        """A built ``pyopencl.Program``."""
        return self._build(part.source, name=part.name)

    def kernel_of(self, program: Any, name: str) -> Any:
        """A new ``pyopencl.Kernel``, whose arguments no other thread sets."""
        kernel = cl.Kernel(program, name)
        return program.knowing(kernel) if isinstance(program, CheckedProgram) else kernel
