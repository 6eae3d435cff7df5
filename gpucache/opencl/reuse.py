"""Programs that are built already, for a second request of one key in one context.

A context has its own programs, so they go when it goes. Owns which programs may be given out twice: kernels
and their arguments belong to each caller, but variables in global memory would be shared. Imported by the
first build that asks for it.
"""

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pyopencl as cl

from gpucache.backends.opencl.options import INTEL
from gpucache.engine.prepare import Prepared
from gpucache.library.shared_build import SharedBuild
from gpucache.model import Check, Language

_PROGRAMS = "_gpucache_programs"
"""The attribute of a context: builds by their keys, the latest used last."""
_PROGRAMS_KEPT = 128
_LATER_VERSIONS = ("-cl-std=CL2", "-cl-std=CL3", "-cl-std=CLC++")
_LOCK = threading.Lock()
Made = tuple[Any, tuple[Check, ...]]


def _begin() -> None:
    global _LOCK
    _LOCK = threading.Lock()  # a thread that the fork did not copy may have the old one locked


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin)


def reused(
    context: Any, devices: Sequence[Any], prepared: Sequence[Prepared], build: Callable[[], Made]
) -> Made:
    """The program for these keys in a context, with its checks; the first of several threads builds it.

    Devices of one model have one key, and programs of their own. The located keys count, as a program that
    contains paths is another one elsewhere. An error is everybody's who waits, after one retry. A program
    with variables is built for each request.
    """
    key = tuple(devices), tuple(one.located_key for one in prepared)
    with _LOCK:
        programs = vars(context).setdefault(_PROGRAMS, {})
        shared = programs.pop(key, None) or SharedBuild()
        programs[key] = shared
        while len(programs) > _PROGRAMS_KEPT:
            del programs[next(iter(programs))]
    mine: list[Made] = []

    def first() -> Made | None:
        mine.append(build())
        return mine[0] if all(_is_shareable(mine[0][0], one) for one in prepared) else None

    return shared.get(first) or (mine[0] if mine else build())


def _is_shareable(program: Any, prepared: Prepared) -> bool:
    """Whether a program has no variables, as its driver says.

    PoCL says so of any program: there only a language without them counts.
    """
    inputs = prepared.compilation.inputs
    older = not any(option.startswith(_LATER_VERSIONS) for option in inputs.options)
    is_older_c = older and prepared.request.program.language is Language.OPENCL_C
    if inputs.toolchain.implementation != INTEL and not is_older_c:
        return False
    try:
        what = cl.program_build_info.GLOBAL_VARIABLE_TOTAL_SIZE
        return all(not program.get_build_info(device, what) for device in program.devices)
    except cl.Error:
        return False
