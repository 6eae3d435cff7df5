"""The command's own start, and the key of a program with hundreds of headers in a fresh process."""

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from tests.benchmarks.large_cache import make_cache
from tests.benchmarks.measure import Comparison, Effort, calls, compare, process

_PREPARE = """
import os, sys
from dataclasses import replace
from pathlib import Path
from gpucache.backends.cuda import BACKEND
from gpucache.engine.prepare import prepare
from gpucache.model import BuildRequest, Program, Target, Toolchain
from gpucache.engine.layers import Layers
from gpucache.store import DirectoryStore
source, include, root = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
target = Target("cuda", "sm_90")
toolchain = Toolchain("nvrtc", (("NVRTC version", "13.0"), ("architecture", "sm_90")), ("architecture",))
program = Program(source.name, BACKEND.language, source.read_bytes())
request = BuildRequest(program, target, include_dirs=(include, f"{include}/cccl"))
request = replace(request, artifact_kind=BACKEND.artifact_kind(target))
layers = Layers(user=DirectoryStore(root, writable=True))
prepared = prepare(BACKEND, request, toolchain, os.environ, layers if sys.argv[4] == "memo" else None)
assert not prepared.refusal, prepared.refusal
print("\\n".join(prepared.closure.files))
"""


def run(effort: Effort) -> Iterator[Comparison]:
    """``--version``, ``--help``, ``inspect`` beside importing click; the key beside reading its headers."""
    with tempfile.TemporaryDirectory() as folder:
        make_cache(Path(folder, "root"), 2, 2)
        place: dict[str, Any] = {"GPUCACHE_DIR": f"{folder}/root", "HOME": folder}
        command = [sys.executable, "-m", "gpucache"]
        imported = process([sys.executable, "-c", "import click"])
        for title, arguments in (
            ("gpucache --version", ["--version"]),
            ("gpucache --help", ["--help"]),
            ("gpucache inspect", ["inspect", "--cache", "gpucache"]),
        ):
            sides = {title: process([*command, *arguments], **place), "import click": imported}
            yield compare(f"The start of {title}", sides, effort.rounds)
        yield _key(Path(folder), effort)


def _key(folder: Path, effort: Effort) -> Comparison:
    title = "The key of a CUB program in a fresh process"
    include = Path(
        sys.prefix, "lib", f"python3.{sys.version_info.minor}", "site-packages/nvidia/cu13/include"
    )
    source = Path(str(files("gpucache") / "examples" / "cub.cu"))
    if not (include / "cccl").is_dir():
        return Comparison(title, (), {"CUB": f"{include} holds none; install nvidia-cuda-cccl"})
    command: list[str | Path] = [sys.executable, "-c", _PREPARE, source, include, folder / "keys"]
    headers = _headers(command)
    sides = {
        "with what is remembered": process([*command, "memo"]),
        "by walking all headers": process([*command, "walk"]),
        "the same imports, no key": process([sys.executable, "-c", _PREPARE.split("source, include")[0]]),
        f"SHA-256 of {len(headers)} headers": calls(lambda: _hash(headers), effort.calls(3)),
    }
    return compare(title, sides, effort.rounds)


def _headers(command: list[str | Path]) -> list[Path]:
    done = subprocess.run([*command, "walk"], check=True, capture_output=True, text=True)
    return [Path(line) for line in done.stdout.splitlines()]


def _hash(headers: list[Path]) -> None:
    for header in headers:
        hashlib.sha256(header.read_bytes()).digest()
