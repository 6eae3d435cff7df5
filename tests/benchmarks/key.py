"""The key of a program with hundreds of headers in a fresh process, and the gain of its hit."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from tests.benchmarks.measure import Comparison, Effort, Side, calls, compare, process

_PREPARE = """
import os, sys
from pathlib import Path
from gpucache.backends.cuda import BACKEND
from gpucache.engine.prepare import prepare
from gpucache.model import BuildRequest, Program, Target, Toolchain
from gpucache.engine.stores import Stores
from gpucache.assembly import HitStore
source, root, include_dirs = Path(sys.argv[1]), Path(sys.argv[2]), tuple(sys.argv[4:])
target = Target("cuda", "sm_90")
toolchain = Toolchain("nvrtc", (("NVRTC version", "13.0"), ("architecture", "sm_90")), ("architecture",))
program = Program(source.name, BACKEND.language, source.read_bytes())
request = BuildRequest(program, target, include_dirs=include_dirs)
request = request._replace(artifact_kind=BACKEND.artifact_kind(target))
stores = Stores(user=HitStore(root, writable=True))
memos = stores if sys.argv[3] == "memo" else None
prepared = prepare(BACKEND, request, toolchain, os.environ, memos, light=True)
assert not prepared.refusal, prepared.refusal
print("\\n".join(prepared.closure.files))
"""
_START = """
import sys, tomllib
from pathlib import Path
from gpucache.cuda import compile_program
source, include_dirs = Path(sys.argv[1]), sys.argv[2:]
given = tomllib.loads(source.with_suffix(".toml").read_text())["program"][0]
names = {"name_expressions": given["name_expressions"], "include_path": include_dirs}
compile_program(source.read_text(), target="sm_90", options=given["options"], **names)
"""


def run(effort: Effort) -> Iterator[Comparison]:
    """The key next to reading its headers and to ccache; a start with a hit next to one that compiles."""
    include_dirs = cub_include_dirs()
    titles = ("The key of a CUB program in a fresh process", "A start of a CUB program, imports and all")
    if not include_dirs:
        for title in titles:
            yield Comparison(title, (), {"CUB": "its headers are not here; install nvidia-cuda-cccl"})
        return
    source = Path(str(files("gpucache") / "examples" / "cub.cu"))
    with tempfile.TemporaryDirectory() as folder:
        yield _key(titles[0], source, include_dirs, Path(folder), effort)
        yield _start(titles[1], source, include_dirs, Path(folder), effort)


def cub_include_dirs() -> tuple[str, ...]:
    """The directories of the headers of CUB and of CUDA's runtime; none if they are not installed."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    include = Path(sys.prefix, "lib", version, "site-packages/nvidia/cu13/include")
    return (str(include), str(include / "cccl")) if (include / "cccl").is_dir() else ()


def _key(title: str, source: Path, include_dirs: tuple[str, ...], folder: Path, effort: Effort) -> Comparison:
    def prepared(how: str) -> list[str | Path]:
        return [sys.executable, "-c", _PREPARE, source, folder / "keys", how, *include_dirs]

    done = subprocess.run(prepared("walk"), check=True, capture_output=True, text=True)
    headers = [Path(line) for line in done.stdout.splitlines()]
    sides = {
        "with what is remembered": process(prepared("memo")),
        "by walking all headers": process(prepared("walk")),
        "the same imports, no key": process([sys.executable, "-c", _PREPARE.split("source, root")[0]]),
        f"SHA-256 of {len(headers)} headers": calls(lambda: _hash(headers), effort.calls(3)),
    }
    absent = {}
    ccache = _ccache(headers, folder)
    if isinstance(ccache, str):
        absent["ccache's direct hit"] = ccache
    else:
        sides["ccache's direct hit of as many headers"] = ccache
    return compare(title, sides, effort.rounds, absent)


def _start(
    title: str, source: Path, include_dirs: tuple[str, ...], folder: Path, effort: Effort
) -> Comparison:
    command: list[str | Path] = [sys.executable, "-c", _START, source, *include_dirs]
    sides = {
        "a hit": process(command, GPUCACHE_DIR=f"{folder}/starts"),
        "compiled": process(command, GPUCACHE_DISABLE="1"),
        "the same imports": process([sys.executable, "-c", _START.split("source, include")[0]]),
    }
    return compare(title, sides, effort.rounds)


def _ccache(headers: list[Path], folder: Path) -> Side | str:
    """A hit of ccache of a C file that includes copies of some headers; without ccache, the reason.

    A host compiler cannot read the headers of CUDA. So it skips the text of each copy, which ccache hashes.
    """
    compiler = shutil.which("gcc")
    if shutil.which("ccache") is None or compiler is None:
        return "ccache or gcc is not installed"
    tree = folder / "copies"
    tree.mkdir()
    for number, header in enumerate(headers):
        skipped = header.read_bytes().translate(None, b"#'\"")
        (tree / f"{number}.h").write_bytes(b"int a%d;\n#if 0\n%b\n#endif\n" % (number, skipped))
    lines = (f'#include "{number}.h"\n' for number in range(len(headers)))
    (tree / "program.c").write_text("".join(lines))
    old = tree.stat().st_mtime - 3600  # ccache does not trust new files
    for file in tree.iterdir():
        os.utime(file, (old, old))
    command: list[str | Path] = ["ccache", compiler, "-c", tree / "program.c", "-o", tree / "program.o"]
    environment = {**os.environ, "CCACHE_DIR": f"{folder}/ccache"}
    for _ in range(2):
        subprocess.run(command, env=environment, check=True)
    told = subprocess.run(["ccache", "--print-stats"], env=environment, check=True, capture_output=True)
    if b"direct_cache_hit\t1\n" not in told.stdout:
        return "its direct mode did not answer"
    return process(command, CCACHE_DIR=f"{folder}/ccache")


def _hash(headers: list[Path]) -> None:
    for header in headers:
        hashlib.sha256(header.read_bytes()).digest()
