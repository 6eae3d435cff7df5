"""``pyopencl.Program.build`` while unmodified programs are to come from the cache.

Another package may have replaced it before or after us; each function calls the one before it. Of a SPIR-V
module PyOpenCL tells neither the bytes nor its specialization constants, so two functions of its binding are
replaced as well.
"""

import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from operator import index
from typing import Any
from weakref import WeakValueDictionary

import pyopencl as cl

from gpucache.opencl.questions import ask

_NEVER_BUILT = -1
"""CL_BUILD_NONE."""
_Make = Callable[[Callable[..., Any]], Callable[..., Any]]


class _Place:
    """Where a function of PyOpenCL is replaced by the one that ``make`` makes, which calls it."""

    def __init__(self, owner: Any, name: str, make: _Make) -> None:
        self._owner, self._name, self._make = owner, name, make
        self._before: Any = None

    def put(self) -> None:
        if self._before is None:
            self._before = getattr(self._owner, self._name)
            setattr(self._owner, self._name, wraps(self._before)(self._make(self._before)))

    def take_back(self) -> None:
        if getattr(getattr(self._owner, self._name), "__wrapped__", None) is self._before is not None:
            setattr(self._owner, self._name, self._before)
            self._before = None
        # Otherwise other code put a function there that calls ours, which then does nothing.


class _Module:
    """A SPIR-V module that is not built yet, with its constants by number."""

    def __init__(self, il: bytes) -> None:
        self.il = il
        self.constants: dict[int, bytes] = {}


class _Hook:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = threading.local()
        self._installed = False
        self._modules: WeakValueDictionary[int, _Module] = WeakValueDictionary()
        """Modules by OpenCL's handle; a module is dropped together with PyOpenCL's program."""
        self._places = [_Place(cl.Program, "build", self._build)]
        if hasattr(cl._cl._Program, "set_specialization_constant"):  # from OpenCL 2.2
            self._places += [
                _Place(cl._cl, "_create_program_with_il", self._create),
                _Place(cl._cl._Program, "set_specialization_constant", self._set_constant),
            ]

    def install(self) -> None:
        with self._lock:
            self._installed = True
            for place in self._places:
                place.put()

    def uninstall(self) -> None:
        with self._lock:
            self._installed = False
            self._modules.clear()  # their constants are not seen from now on
            for place in self._places:
                place.take_back()

    def _build(self, before: Callable[..., Any]) -> Callable[..., Any]:
        def build(
            program: Any,
            options: str | Sequence[str] | None = None,
            devices: Sequence[Any] | None = None,
            cache_dir: str | None = None,
        ) -> Any:
            if self._installed and not getattr(self._inside, "now", False):
                self._inside.now = True  # all builds below this call are left alone
                try:
                    if _is_source(program):
                        asked = ask(program._context, program._source, options, devices)
                        made = asked.program or _built(program, options, devices, cache_dir, asked.question)
                    else:
                        module = self._module(program)
                        made = _built(program, options, devices, cache_dir, (), module) if module else None
                    if made is not None:
                        _become(program, made)
                        return program
                finally:
                    self._inside.now = False
            return before(program, options=options, devices=devices, cache_dir=cache_dir)

        return build

    def _create(self, before: Callable[..., Any]) -> Callable[..., Any]:
        def create(context: Any, il: bytes) -> Any:
            made = before(context, il)
            if self._installed and not getattr(self._inside, "now", False):
                with suppress(AttributeError):  # of a binding whose programs have no attributes of others
                    made._gpucache_module = self._modules[made.int_ptr] = _Module(il)
            return made

        return create

    def _set_constant(self, before: Callable[..., Any]) -> Callable[..., Any]:
        def set_specialization_constant(program: Any, spec_id: int, buffer: Any) -> None:
            module = self._modules.pop(program.int_ptr, None)  # for good, if anything fails
            before(program, spec_id, buffer)
            if module is not None:
                module.constants[index(spec_id)] = memoryview(buffer).tobytes("A")
                self._modules[program.int_ptr] = module

        return set_specialization_constant

    def _module(self, program: Any) -> _Module | None:
        """The module of a program that was never built, if all its constants are known."""
        try:
            what = cl.program_build_info.STATUS
            if any(program.get_build_info(one, what) != _NEVER_BUILT for one in program.context.devices):
                return None
            if program._prg.kind() != cl._cl.program_kind.IL:
                return None
            # The attribute and the argument; another owner would be left with a program that is not built.
            owned = sys.getrefcount(program._prg) == 2
            owned = owned and program.get_info(cl.program_info.REFERENCE_COUNT) == 1
            module = self._modules.get(program.int_ptr)
        except (cl.Error, AttributeError):  # PyOpenCL itself reports it
            return None
        if owned and module is not None:
            return module
        from gpucache.library.process import say_once

        why = (
            "its constants are not known, as it was made before gpucache.opencl.install() or one was refused"
            if owned
            else "something else refers to its program"
        )
        say_once(f"a SPIR-V module is compiled uncached: {why}")
        return None


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
    module: _Module | None = None,
) -> Any:
    """The program from the cache or its compiler; None if PyOpenCL itself is to refuse the build."""
    from gpucache.checks import include_dirs
    from gpucache.library import arguments, process
    from gpucache.model import BuildRequest, Checks, Language, Program
    from gpucache.opencl.building import ANY, Call, built

    try:
        source = module.il if module else program._source
        text = arguments.source_bytes(source)
        given = arguments.build_options(() if options is None else options)
        request = BuildRequest(
            program=Program("", Language.SPIR_V if module else Language.OPENCL_C, text),
            options=arguments.specialization_constants(module.constants) if module else (),
            target=ANY,
            include_dirs=() if module else include_dirs(text, Checks.NONE),
            name_headers="build it by gpucache.opencl.build_program(..., headers=[...])",
            cwd=arguments.current_directory(),
            searches_cwd=True,
        )
        call = Call(program._context, source, given, request, devices, cache_dir, question)
    except (TypeError, ValueError):
        return None
    call.created = program._prg
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
    without source, or one queried before its build, is left to PyOpenCL, and so is a SPIR-V module that was
    made earlier, is built again, or is referred to by more than its ``Program``; the log says so. A module
    that was found takes no specialization constants after its build. Calling it again changes nothing;
    ``uninstall`` undoes it.
    """
    _HOOK.install()


def uninstall() -> None:
    """Have programs built by PyOpenCL alone again, as before ``install``; those that were built stay."""
    _HOOK.uninstall()
