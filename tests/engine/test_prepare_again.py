"""An earlier preparation is reused only if it would come out the same."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.backends.interface import load_backend
from gpucache.engine import prepare as prepared
from gpucache.engine.prepare import Prepared, prepare, prepare_again
from gpucache.host.environment import environment
from gpucache.model import BuildRequest, Program, Target, Toolchain
from tests.patience import tick

_BACKEND = load_backend("opencl")
_TOOLCHAIN = Toolchain("intel", (("device name", "cpu"),), ("device name",))
_SOURCE = b'#include "a.h"\nkernel void f() {}'


@pytest.fixture
def request_(tmp_path: Path) -> BuildRequest:
    """A program that includes a header next to it, which a compiler looks for in the current directory."""
    (tmp_path / "a.h").write_text("int first;")
    program = Program("f.cl", _BACKEND.language, _SOURCE)
    return BuildRequest(program, Target("opencl", "intel/cpu"), cwd=str(tmp_path), searches_cwd=True)


@pytest.fixture(autouse=True)
def prepared_anew(monkeypatch: pytest.MonkeyPatch) -> list[BuildRequest]:
    """The requests that are prepared anew; at first nothing is kept."""
    asked: list[BuildRequest] = []

    def told(backend: object, request: BuildRequest, *rest: object, **more: object) -> Prepared:
        asked.append(request)
        return prepare(backend, request, *rest, **more)  # type: ignore[arg-type] # the caller's arguments

    monkeypatch.setattr(prepared, "_kept", {})
    monkeypatch.setattr(prepared, "prepare", told)
    return asked


def _prepared(request: BuildRequest, toolchain: Toolchain = _TOOLCHAIN) -> Prepared:
    return prepare_again(_BACKEND, request, toolchain, environment())


def test_an_equal_request_is_prepared_once(request_: BuildRequest, prepared_anew: list[BuildRequest]) -> None:
    """The second result equals the first, with the current stamps of the files."""
    first = _prepared(request_)
    tick(Path(request_.cwd))
    Path(request_.cwd, "a.h").touch()
    again = _prepared(request_._replace())
    assert len(prepared_anew) == 1
    assert (again.key, again.fields, again.closure) == (first.key, first.fields, first.closure)
    anew = prepare(_BACKEND, request_, _TOOLCHAIN, environment())
    assert {*(again.closure.stamps or ())} == {*(anew.closure.stamps or ())}
    assert again.closure.stamps != first.closure.stamps


def test_a_large_source_is_not_kept(request_: BuildRequest, prepared_anew: list[BuildRequest]) -> None:
    """The kept preparations are bounded in bytes."""
    large = request_.program._replace(source=_SOURCE + b" " * (1 << 20))
    for _ in range(2):
        _prepared(request_._replace(program=large))
    assert len(prepared_anew) == 2


def test_few_programs_are_kept(request_: BuildRequest) -> None:
    """The kept preparations are bounded in number."""
    for number in range(500):
        _prepared(request_._replace(options=(f"-DN={number}",)))
    assert len(prepared._kept) < 100


def _edit(request: BuildRequest, _: pytest.MonkeyPatch) -> None:
    Path(request.cwd, "a.h").write_text("int other;")


def _remove(request: BuildRequest, _: pytest.MonkeyPatch) -> None:
    Path(request.cwd, "a.h").unlink()


def _configure(request: BuildRequest, _: pytest.MonkeyPatch) -> None:
    Path(request.cwd, "cl.cfg").write_text("CL_CONFIG_CPU_TARGET_ARCH=corei7")


def _set_variable(_: BuildRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CL_CONFIG_CPU_TARGET_ARCH", "corei7")


@pytest.mark.parametrize("change", [_edit, _remove, _configure, _set_variable])
def test_whatever_a_key_follows_from_changes_it(
    request_: BuildRequest,
    change: Callable[[BuildRequest, pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A header, a file that configures the compiler, or a variable: the key is the one that is made anew."""
    before = _prepared(request_)
    change(request_, monkeypatch)
    now = _prepared(request_)
    assert now.key != before.key
    assert now.key == prepare(_BACKEND, request_, _TOOLCHAIN, environment()).key


def test_another_compiler_has_another_key(request_: BuildRequest) -> None:
    """An equal request for another toolchain is prepared separately."""
    other = Toolchain("intel", (("device name", "gpu"),), ("device name",))
    assert _prepared(request_).key != _prepared(request_, other).key
