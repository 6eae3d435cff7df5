"""Lookups in PoCL's cache: kernels by name, local size and LLVM."""

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


def test_a_compiled_launch_is_a_hit(tmp_path: Path) -> None:
    """A kernel that is there for a local size is a hit, with what is not known."""
    build.program(tmp_path)
    reach = _ask(tmp_path, kernel=b"vecadd", local_size=b"16x1x1")
    assert (reach.verdict, reach.hit) == (Served.HIT, True)
    assert "stores no source and no options" in reach.detail


def test_a_kernel_alone_is_no_launch(tmp_path: Path) -> None:
    """Without a local size no launch is asked for, so the kernel is named and no hit is promised."""
    build.program(tmp_path)
    reach = _ask(tmp_path, kernel=b"vecadd")
    assert reach.verdict is Verdict.NOT_RECORDED
    assert "local size" in reach.detail


def test_another_local_size_is_a_changed_field(tmp_path: Path) -> None:
    """A local size that was never launched is the difference."""
    build.program(tmp_path)
    reach = _ask(tmp_path, kernel=b"vecadd", local_size=b"64x1x1")
    assert reach.verdict is Verdict.KEY_CHANGED
    [difference] = reach.differences
    assert (difference.label, difference.right) == ("local size", "vecadd 64x1x1")


def test_a_kernel_that_was_never_launched_is_known_from_the_program(tmp_path: Path) -> None:
    """The bitcode names kernels that have no directory yet."""
    folder = build.program(tmp_path)
    (folder / "program.bc").write_bytes(bitcode(["vecadd", "idle"]))
    reach = _ask(tmp_path, kernel=b"idle", local_size=b"16x1x1")
    assert reach.verdict is Verdict.KEY_CHANGED
    assert [one.label for one in reach.differences] == ["local size"]


def test_another_llvm_is_a_changed_field(tmp_path: Path) -> None:
    """A kernel of another LLVM is not found by PoCL of the one that is named."""
    build.program(tmp_path, llvm="LLVM14.0.6")
    reach = _ask(tmp_path, kernel=b"vecadd", llvm=b"15.0.6")
    assert reach.verdict is Verdict.KEY_CHANGED
    [difference] = reach.differences
    assert (difference.label, difference.left, difference.right) == ("LLVM", "14.0.6", "15.0.6")
    assert _ask(tmp_path, kernel=b"vecadd", llvm=b"14.0.6").verdict is Verdict.NOT_RECORDED


def test_an_unknown_kernel_was_never_built(tmp_path: Path) -> None:
    """A name that no program has was never built, or is gone."""
    build.program(tmp_path)
    reach = _ask(tmp_path, kernel=b"scan")
    assert reach.verdict is Verdict.NEVER_BUILT
    assert "or was removed" in reach.detail


def test_a_damaged_kernel_is_no_hit(tmp_path: Path) -> None:
    """A kernel that is there and does not load is corrupt, with the remedy."""
    folder = build.program(tmp_path)
    (folder / "vecadd" / build.SMALL / "vecadd.so").write_bytes(b"")
    reach = _ask(tmp_path, kernel=b"vecadd", local_size=b"16x1x1")
    assert reach.verdict is Verdict.CORRUPT
    assert "--repair" in reach.detail


def test_a_program_that_cannot_be_read_is_named_as_a_reason(tmp_path: Path) -> None:
    """Where nothing has the kernel, but a program does not say what it has, that is said."""
    folder = build.program(tmp_path, kernels=[])
    (folder / "program.bc").write_bytes(b"")
    assert _ask(tmp_path, kernel=b"vecadd").verdict is Verdict.CORRUPT


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
