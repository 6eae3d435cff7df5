"""The exception tree: the drawing in its docstring agrees with the code."""

import inspect
import pickle
import re

import pytest

from gpucache import errors

_LINE = re.compile(
    r"^    (?P<indent>[| +-]*)(?P<name>[A-Z]\w+)\s+(?P<code>\d+)  (?P<words>.+)$", re.MULTILINE
)


def _drawn() -> dict[str, tuple[str, int]]:
    """Each class of the drawing with the name of its parent and its exit code."""
    parents: list[str] = []
    tree: dict[str, tuple[str, int]] = {}
    for line in _LINE.finditer(errors.__doc__ or ""):
        depth = len(line["indent"]) // 4
        parent = parents[depth - 1] if depth else "Exception"
        parents[depth:] = [line["name"]]
        tree[line["name"]] = (parent, int(line["code"]))
    return tree


def _defined() -> dict[str, tuple[str, int]]:
    return {
        name: (kind.__bases__[0].__name__, kind.exit_code)
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.GpucacheError)
    }


def test_the_drawing_is_the_tree() -> None:
    """Every exception is drawn under its parent with its exit code, and nothing else is."""
    assert _drawn() == _defined()


@pytest.mark.parametrize("name", sorted(_defined()))
def test_every_error_crosses_a_process(name: str) -> None:
    """Every exception comes out of a worker process with its type and message."""
    error = getattr(errors, name)("one sentence; a remedy")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (type(error), "one sentence; a remedy")


def test_a_compile_error_keeps_its_log() -> None:
    """A compiler's log crosses processes with its error."""
    error = errors.CompileError("p.cl does not compile", "p.cl:1: error")
    assert pickle.loads(pickle.dumps(error)).log == "p.cl:1: error"
