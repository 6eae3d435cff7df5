"""``gpucache warm`` keeps no build whose compiler read a file outside its key."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyopencl
import pytest

from tests.net import require_net

if TYPE_CHECKING:
    from tests.cli.conftest import Answer, Filled, Run

Write = Callable[..., Path]
Files = Callable[[Path], list[Path]]
# Only the compiler knows the header, and the user named a different one.
CHOSEN = "#define TEXT(x) #x\n#define NAME(x) TEXT(x)\n#include NAME(CHOSEN)\n"
CHOSEN_CU = CHOSEN + 'extern "C" __global__ void k(int *a) { *a = VALUE; }\n'
CHOSEN_CL = CHOSEN + "__kernel void k(__global int *a) { *a = VALUE; }\n"
# An assembler reads this file.
EMBEDS_CL = """\
__asm__(".section .rodata\\n" "\\056incbin \\"{file}\\"\\n" ".text\\n");
__kernel void k(__global int *a) {{ *a = 1; }}
"""
MANIFEST = """\
[[program]]
source = "{source}"
targets = ["{target}"]
options = ["-DCHOSEN=b.h"]
include = ["include"]
headers = ["include/{header}"]
"""


@pytest.fixture(scope="module", autouse=True)
def looking() -> None:
    require_net()


@pytest.fixture
def chosen(write: Write) -> Path:
    """Programs that include the second of two headers through a macro."""
    headers = {f"include/{name}.h": f"#define VALUE {name!r}\n" for name in "ab"}
    return write({"chosen.cu": CHOSEN_CU, "chosen.cl": CHOSEN_CL, **headers})


def _refused(answer: Answer, file: Path) -> bool:
    (row,) = answer.document["outcomes"]
    expected = f"the compiler read {file}, which the key does not cover; name the headers"
    return bool(row["verdict"] == "uncacheable" and row["reason"].startswith(expected) and answer.code == 3)


def _warm(run: Run, sources: Path, target: str, header: str) -> Answer:
    manifest = sources / "gpucache.toml"
    source = "chosen.cu" if target.startswith("cuda:") else "chosen.cl"
    manifest.write_text(MANIFEST.format(source=source, target=target, header=header), encoding="ascii")
    return run("--json", "warm", "--manifest", manifest)


def test_nvrtc_reads_a_header_that_nobody_named(run: Run, chosen: Path, nvrtc: str) -> None:
    """It is named with the remedy, on every run, and the remedy helps."""
    file = chosen / "include" / "b.h"
    for _ in range(2):
        assert _refused(_warm(run, chosen, nvrtc, "a.h"), file)
    answer = _warm(run, chosen, nvrtc, "b.h")
    assert (answer.code, answer.document["outcomes"][0]["result"]) == (0, "built")


def test_nothing_is_kept_of_it(run: Run, root: Path, chosen: Path, nvrtc: str, entries: Files) -> None:
    """The program was compiled, and there is no entry."""
    _warm(run, chosen, nvrtc, "a.h")
    assert entries(root) == []


@pytest.mark.parametrize("which", ["intel", pytest.param("pocl", marks=pytest.mark.slow)])
def test_another_compiler_reads_a_header_that_nobody_named(
    run: Run, chosen: Path, which: str, request: pytest.FixtureRequest
) -> None:
    """The same holds for a compiler with its own threads, and for one that starts processes."""
    target = request.getfixturevalue(which)
    assert _refused(_warm(run, chosen, target, "a.h"), chosen / "include" / "b.h")
    assert _warm(run, chosen, target, "b.h").code == 0


@pytest.mark.parametrize("which", ["intel", pytest.param("pocl", marks=pytest.mark.slow)])
def test_an_assembler_reads_a_file(
    run: Run, write: Write, tmp_path: Path, which: str, request: pytest.FixtureRequest
) -> None:
    """An assembler's reads are in no closure; a file that the user did not name is seen."""
    file = tmp_path / "blob"
    file.write_text("blob", encoding="ascii")
    sources = write({"chosen.cl": EMBEDS_CL.format(file=file), "include/a.h": ""})
    assert _refused(_warm(run, sources, request.getfixturevalue(which), "a.h"), file)


def _unkeyed(answer: Answer) -> list[str]:
    """The reason of each uncacheable program; others were built."""
    rows = answer.document["outcomes"]
    assert any(row["result"] == "built" for row in rows)
    return [row["reason"] for row in rows if row["verdict"] == "uncacheable"]


@pytest.mark.slow
def test_keys_cover_all_that_is_read_for_the_examples(example: Filled) -> None:
    """For the shipped examples each compiler reads only files that their keys cover."""
    assert _unkeyed(example.answer) == []


@pytest.mark.slow
def test_keys_cover_all_that_is_read_of_cuda_headers(filling: Run, nvrtc: str, tmp_path: Path) -> None:
    """NVRTC reads only covered files of CUB, libcu++ and CUDA's own headers."""
    include = Path(sysconfig.get_path("purelib"), "nvidia/cu13/include")
    if not (include / "cccl").is_dir():
        pytest.skip("nvidia-cuda-cccl is not installed")
    programs = Path(__file__).parents[1] / "contracts" / "cuda"
    folders = ("-I", include, "-I", include / "cccl")
    assert _unkeyed(filling(programs, "--target", nvrtc, *folders, "--root", tmp_path / "root")) == []


@pytest.mark.slow
@pytest.mark.parametrize("which", ["intel", "pocl"])
def test_keys_cover_all_that_is_read_of_pyopencl(
    filling: Run, write: Write, tmp_path: Path, which: str, request: pytest.FixtureRequest
) -> None:
    """OpenCL's compilers read only covered files of PyOpenCL's headers."""
    headers = Path(pyopencl.__file__).parent / "cl"
    names = [path.relative_to(headers) for path in headers.rglob("*") if path.suffix in (".h", ".cl")]
    kernel = "#include <{}>\n__kernel void k(__global int *a) {{ *a = 1; }}\n"
    sources = write({f"{number}.cl": kernel.format(name) for number, name in enumerate(names)})
    target = request.getfixturevalue(which)
    assert _unkeyed(filling(sources, "--target", target, "--root", tmp_path / "root")) == []
