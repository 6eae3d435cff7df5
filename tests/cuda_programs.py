"""Real CUDA programs compiled by plain NVRTC and through the library, and the headers that were opened.

As a module it has the functions for tests. As a script it is the traced child: it reads
``{"directories": [...], "programs": {name: {"source", "options"}}}`` from stdin and writes for each program
the SHA-256 of either cubin, or the compiler's error, and the headers that its key covers. A file that
no program has is opened before and after each plain build, so that a trace distinguishes the builds.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

TARGET = "sm_90"
_MARK = "/nonexistent/mark/"
_OPENED = re.compile(r'openat\([^"\n]*"([^"]+)", [^=\n]*(= \d+|= -1 ENOENT|<unfinished \.\.\.>)')


@dataclass(frozen=True, slots=True)
class Compared:
    """One program, both ways."""

    plain: str
    """The cubin's digest, or the compiler's error."""
    ours: str
    opened: frozenset[Path]
    covered: frozenset[Path]

    @property
    def compiles(self) -> bool:
        return re.fullmatch("[0-9a-f]{64}", self.plain) is not None


def strace(trace: Path) -> list[str]:
    """The command that traces opened files; skips where processes cannot be traced."""
    program = shutil.which("strace")
    if program is None:
        pytest.skip("strace is not installed")
    command = [program, "-f", "--seccomp-bpf", "-e", "trace=openat", "-o", str(trace)]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("processes cannot be traced here")
    return command


def compare(
    programs: Path, folders: Sequence[Path], tmp_path: Path, options: Mapping[str, Sequence[str]]
) -> dict[str, Compared]:
    """Every program of a directory, both ways, in one traced process; ``options`` are by name.

    Skips where an include directory is missing or processes cannot be traced.
    """
    for folder in folders:
        if not folder.is_dir():
            pytest.skip(f"{folder} is not there; the wheel that brings it is not installed")
    asked = {
        "folders": [str(folder) for folder in folders],
        "programs": {
            path.name: {"source": path.read_text(encoding="utf-8"), "options": options.get(path.name, [])}
            for path in sorted(programs.glob("*.cu"))
        },
    }
    trace = tmp_path / "trace"
    done = subprocess.run(
        [*strace(trace), sys.executable, str(Path(__file__))],
        input=json.dumps(asked),
        env={**os.environ, "GPUCACHE_DIR": str(tmp_path / "cache")},
        stdout=subprocess.PIPE,
        text=True,
        timeout=900,
        check=True,
    )
    opened = _opened(trace, folders)
    return {
        name: Compared(
            answer["plain"],
            answer["ours"],
            opened.get(name, frozenset()),
            frozenset(Path(path).resolve() for path in answer["covered"]),
        )
        for name, answer in json.loads(done.stdout).items()
    }


def disagreements(compared: Mapping[str, Compared]) -> dict[str, Any]:
    """Violations: cubins or errors that differ, and headers that no key covers."""
    wrong: dict[str, Any] = {}
    for name, one in compared.items():
        if one.plain != one.ours:
            wrong[name] = (one.plain, one.ours)
        elif one.opened - one.covered:
            wrong[name] = sorted(map(str, one.opened - one.covered))
    return wrong


def _opened(trace: Path, folders: Sequence[Path]) -> dict[str, frozenset[Path]]:
    """The files below the include directories that each plain build opened."""
    below = tuple(f"{folder}/" for folder in folders)
    found: dict[str, set[Path]] = {}
    building: set[Path] | None = None
    with trace.open(encoding="utf-8", errors="replace") as lines:
        for path, answer in _OPENED.findall(lines.read()):
            if path.startswith(_MARK):
                name = path.removeprefix(_MARK)
                building = found.setdefault(name, set()) if name else None
            elif building is not None and path.startswith(below) and "ENOENT" not in answer:
                building.add(Path(path).resolve())
    return {name: frozenset(path for path in paths if path.is_file()) for name, paths in found.items()}


def _mark(name: str) -> None:
    with suppress(OSError):
        os.close(os.open(_MARK + name, os.O_RDONLY))


def main() -> None:
    from cuda.bindings import nvrtc

    from gpucache.backends.cuda import BACKEND
    from gpucache.backends.cuda.options import FILE_NAME
    from gpucache.cuda import compile_program, flush
    from gpucache.engine.prepare import closure_of
    from gpucache.errors import CompileError
    from gpucache.model import ArtifactKind, BuildRequest, Language, Program, Target

    def plain(source: bytes, command: Sequence[str]) -> str:
        """The cubin of plain NVRTC under the name that ours are compiled under."""
        _, handle = nvrtc.nvrtcCreateProgram(source, FILE_NAME.encode(), 0, [], [])
        (status,) = nvrtc.nvrtcCompileProgram(handle, len(command), [word.encode() for word in command])
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            _, size = nvrtc.nvrtcGetProgramLogSize(handle)
            log = bytes(size)
            nvrtc.nvrtcGetProgramLog(handle, log)
            return log.decode().strip("\0\n ").replace(FILE_NAME, "program")
        _, size = nvrtc.nvrtcGetCUBINSize(handle)
        cubin = bytes(size)
        nvrtc.nvrtcGetCUBIN(handle, cubin)
        return hashlib.sha256(cubin).hexdigest()

    def ours(source: bytes, options: Sequence[str], folders: Sequence[str]) -> str:
        try:
            built = compile_program(
                source, target=TARGET, options=options, include_path=folders, name="program"
            )
        except CompileError as error:
            return error.log
        return hashlib.sha256(built.code).hexdigest()

    def covered(source: bytes, options: Sequence[str], folders: Sequence[str]) -> tuple[str, ...]:
        program = Program("program", Language.CUDA_CPP, source)
        target = Target("cuda", TARGET)
        request = BuildRequest(
            program, target, tuple(options), tuple(folders), artifact_kind=ArtifactKind.CUBIN
        )
        return closure_of(request, BACKEND.plan(request, BACKEND.toolchain(target), {})).files

    asked = json.load(sys.stdin)
    folders: list[str] = asked["folders"]
    answers = {}
    for name, one in asked["programs"].items():
        source, options = one["source"].encode(), one["options"]
        _mark(name)
        digest = plain(source, [f"-arch={TARGET}", *options, *(f"-I{folder}" for folder in folders)])
        _mark("")
        answers[name] = {
            "plain": digest,
            "ours": ours(source, options, folders),
            "covered": covered(source, options, folders),
        }
        flush()  # the thread that publishes reads headers, too
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
