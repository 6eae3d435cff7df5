"""``pyopencl.Program.build`` while unmodified programs are to come from the cache.

Another package may have replaced it before or after us; each function calls the one before it.
"""

import threading
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import pyopencl as cl

from gpucache.opencl.questions import ask


class _Hook:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = threading.local()
        self._before: Any = None
        self._installed = False

    def install(self) -> None:
        with self._lock:
            self._installed = True
            if self._before is None:
                self._before = cl.Program.build
                cl.Program.build = self._method()

    def uninstall(self) -> None:
        with self._lock:
            self._installed = False
            if getattr(cl.Program.build, "__wrapped__", None) is self._before is not None:
                cl.Program.build, self._before = self._before, None
            # Otherwise other code put a function there that calls ours, which then does nothing.

    def _method(self) -> Callable[..., Any]:
        before = self._before

        @wraps(before)
        def build(
            program: Any,
            options: str | Sequence[str] | None = None,
            devices: Sequence[Any] | None = None,
            cache_dir: str | None = None,
        ) -> Any:
            if not self._installed or getattr(self._inside, "now", False) or not _is_source(program):
                return before(program, options=options, devices=devices, cache_dir=cache_dir)
            self._inside.now = True  # all builds below this call are left alone
            try:
                asked = ask(program._context, program._source, options, devices)
                made = asked.program or _built(program, options, devices, cache_dir, asked.question)
                if made is not None:
                    _become(program, made)
                    return program
            finally:
                self._inside.now = False
            return before(program, options=options, devices=devices, cache_dir=cache_dir)

        return build


def _is_source(program: Any) -> bool:
    """Whether a program is to be built from source, and has not been queried yet."""
    return vars(program).get("_prg", program) is None and isinstance(
        vars(program).get("_source"), str | bytes
    )


def _built(
    program: Any,
    options: str | Sequence[str] | None,
    devices: Sequence[Any] | None,
    cache_dir: str | None,
    question: tuple[bytes, ...],
) -> Any:
    """A program as the cache or its compiler gives it; None if PyOpenCL itself is to refuse the build."""
    from gpucache.checks import include_dirs
    from gpucache.library import arguments, process
    from gpucache.model import BuildRequest, Checks, Language, Program
    from gpucache.opencl.building import ANY, Call, built

    try:
        text = arguments.source_bytes(program._source)
        given = arguments.build_options(() if options is None else options)
        request = BuildRequest(
            program=Program("", Language.OPENCL_C, text),
            target=ANY,
            include_dirs=include_dirs(text, Checks.NONE),
            name_headers="build it by gpucache.opencl.build_program(..., headers=[...])",
            cwd=arguments.current_directory(),
            searches_cwd=True,
        )
        call = Call(program._context, program._source, given, request, devices, cache_dir, question)
    except (TypeError, ValueError):
        return None
    return built(process.stores(), request, call)


def _become(program: Any, made: Any) -> None:
    """Turn a program that was not built into the built one, as PyOpenCL's own build does."""
    program._prg = made._prg
    program._build_duration_info = made._build_duration_info
    if "_context" not in vars(made):
        vars(program).pop("_context", None)


_HOOK = _Hook()


def install() -> None:
    """Have every ``pyopencl.Program`` of this process built by ``build_program`` from now on.

    One line serves an unmodified program and all libraries in its process, also where the OpenCL loader takes
    no layers: it replaces ``pyopencl.Program.build`` and keeps its arguments, results and errors. A program
    without source, or one queried before its build, is left to PyOpenCL. Calling it again changes nothing;
    ``uninstall`` undoes it.
    """
    _HOOK.install()


def uninstall() -> None:
    """Have programs built by PyOpenCL alone again, as before ``install``; those that were built stay."""
    _HOOK.uninstall()
