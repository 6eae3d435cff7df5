"""Programs that overtax real compilers: each fails with its own reason, and the others are built."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Answer, Run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no file without an end here"),
]

_KERNELS = {"cl": "kernel void k(global int *a)", "cu": 'extern "C" __global__ void k(int *a)'}
_MANIFEST = """
[[program]]
source = "good.c[lu]"
[[program]]
source = "many.c[lu]"
options = [{options}]
[[program]]
source = "self.c[lu]"
[[program]]
source = "zero.c[lu]"
[[program]]
source = "nested.c[lu]"
"""


def _sources(folder: Path) -> Path:
    """A manifest of a good program, one with a MiB of options, and three that no compiler finishes."""
    folder.mkdir()
    (folder / "zero.h").symlink_to("/dev/zero")
    (folder / "self.h").write_text('#include "self.h"\n', encoding="ascii")
    for suffix, kernel in _KERNELS.items():
        programs = {
            "good": f"{kernel} {{ a[0] = 1; }}",
            "many": f"{kernel} {{ a[0] = 2; }}",
            "self": f'#include "self.h"\n{kernel} {{ a[0] = 3; }}',
            "zero": f'#include "zero.h"\n{kernel} {{ a[0] = 4; }}',
            "nested": f"{kernel} {{ a[0] = {'(' * 100_000} }}",
        }
        for name, text in programs.items():
            (folder / f"{name}.{suffix}").write_text(text, encoding="ascii")
    options = ", ".join(f'"-DX{number}={"y" * 1000}"' for number in range(1000))
    manifest = folder / "gpucache.toml"
    manifest.write_text(_MANIFEST.format(options=options), encoding="ascii")
    return manifest


@pytest.fixture(scope="module")
def provoked(filling: Run, nvrtc: str, intel: str, tmp_path_factory: pytest.TempPathFactory) -> Answer:
    place = tmp_path_factory.mktemp("provoked")
    targets = ("--target", nvrtc, "--target", intel)
    return filling("--manifest", _sources(place / "sources"), *targets, "--root", place / "root")


@pytest.mark.parametrize("suffix", _KERNELS)
@pytest.mark.parametrize(
    ("name", "result", "reasons"),
    [
        ("good", "built", ("",)),
        ("many", "built", ("",)),
        ("self", "failed", ("does not compile",)),
        ("zero", "failed", ("the header 'zero.h' is not a regular file",)),
        ("nested", "failed", ("does not compile", "its compiler process died of")),
    ],
)
def test_each_program_ends_in_its_own_way(
    provoked: Answer, name: str, suffix: str, result: str, reasons: tuple[str, ...]
) -> None:
    """Endless headers and excessive nesting fail; a MiB of options is not too many."""
    (row,) = (row for row in provoked.document["outcomes"] if row["program"] == f"{name}.{suffix}")
    assert row["result"] == result
    assert any(reason in row["reason"] for reason in reasons)


def test_nothing_but_the_answer_is_said(provoked: Answer) -> None:
    """Output that compilers write to the terminal by themselves does not reach it."""
    assert (provoked.code, provoked.err) == (3, "")
