"""Lookups in PoCL's cache: kernels by name, local size and LLVM."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.answers.lookup import Verdict
from gpucache.answers.why import Reach, Served
from gpucache.errors import UsageError
from tests.caches.pocl import build
from tests.payload.build import bitcode


def _ask(root: Path, **wanted: bytes) -> Reach:
    fields = {name.replace("_", "-"): (value,) for name, value in wanted.items()}
    [reach] = build.cache(root).explain(fields)
    return reach


def _emptied(folder: Path) -> None:
    (folder / "vecadd" / build.SMALL / "vecadd.so").write_bytes(b"")


def _with_idle(folder: Path) -> None:
    (folder / "program.bc").write_bytes(bitcode(["vecadd", "idle"]))


_SMALL = {"kernel": b"vecadd", "local_size": b"16x1x1"}
_CASES: dict[str, tuple[Callable[[Path], object], dict[str, bytes], Served | Verdict, str, str]] = {
    "a launch": (repr, _SMALL, Served.HIT, "", "stores no source and no options"),
    "a kernel alone, which is no launch": (
        repr, {"kernel": b"vecadd"}, Verdict.NOT_RECORDED, "", "local size",
    ),
    "another size": (
        repr, {**_SMALL, "local_size": b"64x1x1"}, Verdict.KEY_CHANGED, "local size", "local size",
    ),
    "a kernel of the bitcode that was never launched": (
        _with_idle, {**_SMALL, "kernel": b"idle"}, Verdict.KEY_CHANGED, "local size", "local size",
    ),
    "another LLVM": (
        repr, {"kernel": b"vecadd", "llvm": b"14.0.6"}, Verdict.KEY_CHANGED, "LLVM", "LLVM",
    ),
    "the same LLVM": (repr, {"kernel": b"vecadd", "llvm": b"15.0.6"}, Verdict.NOT_RECORDED, "", ""),
    "an unknown kernel": (repr, {"kernel": b"scan"}, Verdict.NEVER_BUILT, "", "or was removed"),
    "a damaged kernel": (_emptied, _SMALL, Verdict.CORRUPT, "", "--repair"),
    "a damaged program, which may have it": (
        lambda folder: (folder / "program.bc").write_bytes(b""), {"kernel": b"scan"}, Verdict.CORRUPT, "", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", _CASES)
def test_a_question_is_answered_from_what_is_stored(name: str, tmp_path: Path) -> None:
    """By kernel, local size and LLVM; the one that differs is named."""
    change, wanted, verdict, label, words = _CASES[name]
    change(build.program(tmp_path, kernels=[] if "may have it" in name else ["vecadd"]))
    reach = _ask(tmp_path, **wanted)
    assert (reach.verdict, [one.label for one in reach.differences]) == (verdict, [label] * bool(label))
    assert words in reach.detail


def test_kernels_and_sizes_are_asked_for_together(tmp_path: Path) -> None:
    """Every kernel is answered for with every local size."""
    build.program(tmp_path, kernels=["vecadd", "twice"])
    wanted = {"kernel": (b"vecadd", b"twice"), "local-size": (b"16x1x1", b"32x1x1")}
    reaches = list(build.cache(tmp_path).explain(wanted))
    assert [reach.hit for reach in reaches] == [True, False, True, False]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({}, "--cache pocl --why --want kernel=NAME"),
        ({"kernel": (b"",)}, "kernel=NAME"),
        ({"local-size": (b"64",)}, "kernel=NAME"),
        ({"source": (b"x",)}, "ask for kernel, local-size, llvm"),
        ({"kernel": (b"a",), "llvm": (b"15", b"16")}, "one LLVM"),
    ],
)
def test_a_question_that_means_nothing_is_refused(
    tmp_path: Path, wanted: dict[str, tuple[bytes, ...]], words: str
) -> None:
    """A request with an unknown field, an invalid value or no kernel is refused with the remedy."""
    with pytest.raises(UsageError, match=words):
        list(build.cache(tmp_path).explain(wanted))
