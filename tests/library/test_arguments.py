"""Errors of the library for invalid arguments: they name the argument, in both modules."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpucache.library import arguments

_SIZES = r"a list of sizes of one to three whole numbers above 0, such as \[\(64,\), \(16, 16\)\]"
_BOTH = [
    ({"source": None}, TypeError, "source must be text or bytes, not None"),
    ({"source": Path("saxpy.cl")}, TypeError, "not a path"),
    ({"source": "kernels/saxpy.cl"}, ValueError, "looks like a path"),
    ({"options": [1]}, TypeError, r"options must be a list of texts, not \[1\]"),
    ({"options": 1}, TypeError, "options must be a list of texts, not 1"),
    ({"options": b"-DA"}, TypeError, "options must be a list of texts, not b'-DA'"),
    ({"include_path": "include"}, TypeError, "include_path must be a list of paths, not 'include'"),
    ({"include_path": Path("include")}, TypeError, "include_path must be a list of paths, not PosixPath"),
    ({"include_path": [b"include"]}, TypeError, r"include_path must be a list of paths, not \[b'include'\]"),
    ({"headers": "a.h"}, TypeError, "headers must be a list of paths, not 'a.h'"),
    ({"headers": [1] * 99}, TypeError, r"headers must be a list of paths, not \[1, [1, ]{60,80}\.\.\.$"),
    ({"name": 1}, TypeError, "name must be text, not 1"),
]
_CUDA = [
    ({"target": 90}, TypeError, "target must be text, not 90"),
    ({"name_expressions": "f<int>"}, TypeError, "name_expressions must be a list of texts, not 'f<int>'"),
    ({"name_expressions": [None]}, TypeError, r"name_expressions must be a list of texts, not \[None\]"),
    ({"artifact_kind": "cubin "}, ValueError, "artifact_kind must be one of cubin, ptx, ltoir, not 'cubin '"),
    ({"artifact_kind": "opencl-binary"}, ValueError, "artifact_kind must be one of cubin, ptx, ltoir, not"),
]
_OPENCL = [
    ({"local_sizes": 64}, TypeError, f"local_sizes must be {_SIZES}, not 64"),
    ({"local_sizes": "64"}, TypeError, f"local_sizes must be {_SIZES}, not '64'"),
    ({"local_sizes": [1.5]}, TypeError, f"local_sizes must be {_SIZES}, not"),
    ({"local_sizes": [(0,)]}, ValueError, f"local_sizes must be {_SIZES}, not"),
    ({"local_sizes": [0]}, ValueError, f"local_sizes must be {_SIZES}, not"),
    ({"local_sizes": [()]}, ValueError, f"local_sizes must be {_SIZES}, not"),
    ({"local_sizes": [(1, 1, 1, 1)]}, ValueError, f"local_sizes must be {_SIZES}, not"),
    ({"context": None}, TypeError, "context must be a pyopencl.Context, not None"),
]


def _door(name: str) -> Callable[..., Any]:
    """One of the library's two functions, with valid arguments unless others are given."""
    if name == "cuda":
        pytest.importorskip("cuda.core")
        from gpucache.cuda import compile_program

        return lambda **given: compile_program(**{"source": "", "target": "sm_90", **given})
    pytest.importorskip("pyopencl")
    from gpucache.opencl import build_program

    return lambda **given: build_program(**{"context": _context(), "source": "", **given})


def _context() -> Any:
    """An object that passes for a context until it is used; a real one would load drivers here."""
    import pyopencl as cl

    return cl.Context.__new__(cl.Context)


_CALLS = [(door, *case) for door, own in (("cuda", _CUDA), ("opencl", _OPENCL)) for case in (*_BOTH, *own)]


@pytest.mark.parametrize(("door", "given", "error", "message"), _CALLS)
def test_each_door_names_the_argument(
    door: str, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    """An argument of a wrong type or value is named, with the expected and the actual one."""
    with pytest.raises(error, match=message):
        _door(door)(**given)


def test_local_sizes_may_be_numbers_of_any_library() -> None:
    """Any library's integer is a whole number, and an array or a list of them is a size."""
    numpy = pytest.importorskip("numpy")
    given = [8, numpy.int32(16), (numpy.int64(4), 2), numpy.array([4, 2, 1])]
    assert arguments.local_sizes(given) == ((8,), (16,), (4, 2), (4, 2, 1))
    assert arguments.local_sizes(numpy.array([[8, 8], [4, 2]])) == ((8, 8), (4, 2))
