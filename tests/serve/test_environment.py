"""The environment of a command: our additions, and their removal for keys."""

import pytest

from gpucache.serve.environment import (
    TIMEOUT,
    Libraries,
    intercepted,
    step_s,
    time_out_s,
    with_room,
    without_us,
)

OURS = Libraries("/ours/layer.so", "/ours/audit.so")
SOCKET = "/run/s"


def test_our_libraries_stand_before_the_users() -> None:
    """The user's own libraries come after ours."""
    environ = {"OPENCL_LAYERS": "/theirs/a.so:/theirs/b.so", "HOME": "/home"}
    assert intercepted(environ, SOCKET, OURS) == {
        "OPENCL_LAYERS": "/ours/layer.so:/theirs/a.so:/theirs/b.so",
        "LD_AUDIT": "/ours/audit.so",
        "GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=4096",
        "GPUCACHE_RUN_SOCKET": "/run/s",
        "HOME": "/home",
    }


def test_a_library_that_is_not_there_is_not_named() -> None:
    assert intercepted({}, SOCKET, Libraries()) == {"GPUCACHE_RUN_SOCKET": "/run/s"}


def test_inside_another_run_ours_is_named_once() -> None:
    """A layer that is loaded twice would ask twice."""
    outer = intercepted({"OPENCL_LAYERS": "/theirs/a.so"}, SOCKET, OURS)
    assert intercepted(outer, "/run/inner", OURS) == {**outer, "GPUCACHE_RUN_SOCKET": "/run/inner"}


def test_nothing_of_ours_is_left_for_keys() -> None:
    """A program has the same environment as without gpucache, to the last variable."""
    libraries = {"OPENCL_LAYERS": "/theirs/a.so", "LD_AUDIT": "/theirs/b.so"}
    tunables = ("", "glibc.malloc.check=1", "glibc.rtld.optional_static_tls=4096", "a=1:b", ":")
    for environ in ({"HOME": "/home"}, libraries, *({"GLIBC_TUNABLES": text} for text in tunables)):
        assert without_us(intercepted(environ, SOCKET, OURS), OURS) == environ


_ROOM = "glibc.rtld.optional_static_tls"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", f"{_ROOM}=4096"),
        ("glibc.malloc.check=1", f"{_ROOM}=4096:glibc.malloc.check=1"),
        (f"{_ROOM}=512", f"{_ROOM}=4096"),
        (f"a=1:{_ROOM}=0x4000", f"{_ROOM}=16384:a=1"),
        (f"{_ROOM}=many:a=1:", f"{_ROOM}=4096:a=1"),
        ("a:=2:b=1", f"{_ROOM}=4096:b=1"),
    ],
)
def test_the_room_for_other_libraries_joins_the_users_tunables(given: str, expected: str) -> None:
    """glibc takes the last of two values, and new versions ignore all of a malformed text."""
    assert with_room(given) == expected


def test_a_program_that_changes_its_tunables_keeps_them() -> None:
    """Only the value that ``run`` gave it is taken back."""
    environ = intercepted({"GLIBC_TUNABLES": "a=1"}, SOCKET, OURS) | {"GLIBC_TUNABLES": "b=2"}
    assert without_us(environ, OURS) == {"GLIBC_TUNABLES": "b=2"}


def test_an_auditor_that_is_not_wanted_is_left_out_of_the_environment_too() -> None:
    """Such as that of an outer run, or of a layer; another one stays."""
    environ = {"LD_AUDIT": "/layer/lib/audit.so:/theirs/b.so"}
    assert intercepted(environ, SOCKET, Libraries(left_out="/ours/audit.so"))["LD_AUDIT"] == "/theirs/b.so"


def test_without_an_auditor_the_tunables_are_the_users() -> None:
    """The room is needed with one alone."""
    assert intercepted({}, SOCKET, Libraries("/ours/layer.so")).keys() == {
        "OPENCL_LAYERS",
        "GPUCACHE_RUN_SOCKET",
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [("", 5), ("200", 0.2), ("600000", 600), ("600001", 5), ("0", 5), ("5s", 5), ("1" * 5000, 5)],
)
def test_the_steps_of_an_answer_end_before_its_program_gives_up(
    monkeypatch: pytest.MonkeyPatch, given: str, expected: float
) -> None:
    """Otherwise a program that waits for all three would stop asking; an invalid limit means the default."""
    monkeypatch.setenv(TIMEOUT, given)
    assert time_out_s() == expected
    assert 3 * step_s() < time_out_s()
