"""The README's own snippets, word for word: what it warms, its programs hit."""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.children import run_text

_README = Path(__file__).parents[1] / "README.md"
_SNIPPET = re.compile(r"<!-- snippet: (\w+) -->\n```\w+\n(.*?)```\n", re.DOTALL)
_SAXPY = '#include "n.h"\nkernel void saxpy(global float *y) { y[get_global_id(0)] *= N + M; }\n'
_SCALE = '#include "n.h"\nextern "C" __global__ void scale(float *y) { y[threadIdx.x] *= M; }\n'


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """The folder that the README's snippets speak of, in a project of its own."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    for name, text in {"saxpy.cl": _SAXPY, "scale.cu": _SCALE, "n.h": "#define M 2\n"}.items():
        (folder / name).write_text(text, encoding="ascii")
    return folder


def _snippets() -> dict[str, str]:
    return dict(_SNIPPET.findall(_README.read_text(encoding="utf-8")))


def test_the_programs_of_the_readme_compile() -> None:
    """The README has a snippet for the shell, a kernel, and three that are Python."""
    snippets = _snippets()
    assert set(snippets) == {"warm", "opencl", "cuda", "checked", "checks"}
    for name in ("opencl", "cuda", "checks"):
        compile(snippets[name], f"README.md, {name}", "exec")


@pytest.mark.slow
def test_the_snippets_end_in_hits(kernels: Path, opencl_environment: Mapping[str, str]) -> None:
    """The programs of the README find what its commands built, where a miss would be an error."""
    pytest.importorskip("cuda.bindings.nvrtc")
    snippets = _snippets()
    environment = {
        **os.environ,
        **opencl_environment,
        "GPUCACHE_DIR": str(kernels.parent / "cache"),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    _run(["sh", "-e", "-c", snippets["warm"]], kernels.parent, environment)
    for name in ("opencl", "cuda"):
        program = [sys.executable, "-c", snippets[name]]
        _run(program, kernels.parent, {**environment, "GPUCACHE_REQUIRE": "1"})


@pytest.mark.slow
def test_the_kernel_of_the_readme_fails_as_it_says(
    kernels: Path, opencl_environment: Mapping[str, str]
) -> None:
    """The program that launches it ends with the sentence that stands beside its last line."""
    snippets = _snippets()
    (kernels / "gather.cl").write_text(snippets["checked"], encoding="ascii")
    begin = snippets["opencl"].split("program = ")[0]
    done = run_text(
        [sys.executable, "-c", begin + snippets["checks"]],
        cwd=kernels.parent,
        env={**os.environ, **opencl_environment, "GPUCACHE_DIR": str(kernels.parent / "cache")},
    )
    said = snippets["checks"].split("# KernelCheckError: ")[1].strip()
    assert done.stderr.strip().endswith(f"gpucache.errors.KernelCheckError: {said}")


def _run(command: list[str], folder: Path, environment: Mapping[str, str]) -> None:
    done = run_text(command, cwd=folder, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
