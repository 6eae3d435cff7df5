"""The shim before NVRTC, compiled to stop at undefined behaviour in C and at leaks."""

import os
import random
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.native import build
from gpucache.serve.wire import Kind
from tests.children import run_text
from tests.native.peer import BEFORE_INPUTS, NVRTCKeeper, Peer, frame
from tests.patience import TIME_OUT_MS

_PROGRAM = Path(__file__).with_name("nvrtc_program.c")
_SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")
_OFTEN = 80
"""How many compiles the program makes in the mode of this name."""
_NUMBERS = (b"", b"0", b"1", b"2", b"7", b"-1", b"99999999999999999999", b"x" * 40)

Run = Callable[..., str]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place(compiler: build.Compiler, libraries: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the program and the shims, with sanitizers, and the library for LD_AUDIT without."""
    folder = tmp_path_factory.mktemp("sanitized")
    for flags in (_SANITIZED, ("-g", "-O1")):  # where a compiler has no sanitizers the rest is tested
        problems = build.build(compiler, folder, flags)
        made = ("-pthread", str(_PROGRAM), "-o", str(folder / "program"), "-ldl")
        done = subprocess.run([*compiler.command, *flags, *made], capture_output=True, check=False)
        if not problems and done.returncode == 0:
            break
    audit = build.file_name("nvrtc_audit")  # where it runs there is nothing else, and no sanitizer either
    (folder / audit).write_bytes((libraries / audit).read_bytes())
    (folder / "suppressions").write_text("leak:libnvrtc\n")  # NVRTC leaks some bytes at each second compile
    return folder


@pytest.fixture
def run(place: Path, library: Path) -> Run:
    """The program's output, without us or while a peer answers; it must end well and print nothing else."""

    def call(mode: str, peer: Peer | None = None) -> str:
        # A sanitizer loads libraries itself, so NVRTC's own path does not lead to its dependencies.
        environ = {**os.environ, "LD_LIBRARY_PATH": str(library.parent)}
        environ["LSAN_OPTIONS"] = f"print_suppressions=0:suppressions={place / 'suppressions'}"
        if peer is not None:
            environ["LD_AUDIT"] = str(place / build.file_name("nvrtc_audit"))
            environ["GPUCACHE_RUN_SOCKET"] = str(peer.path)
            environ["GPUCACHE_RUN_TIMEOUT_MS"] = TIME_OUT_MS
        done = run_text([place / "program", mode, library], env=environ, errors="replace")
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return call


@pytest.mark.parametrize(
    ("mode", "hits"),
    [
        *(("plain", 9), ("fork", 3), ("again", 9), ("change", 6), ("closed", 1), ("callback", 0)),
        ("threads", 36),
    ],
)
def test_nothing_is_undefined_or_leaked(run: Run, mode: str, hits: int) -> None:
    """Without us, at a miss and at a hit the output is the same, and no sanitizer reports anything.

    By four threads, in a forked child, compiled three times, with all descriptors closed, and with a callback
    that may cancel a compile, which is not served.
    """
    bare, keeper = run(mode), NVRTCKeeper()
    with Peer(keeper) as peer:
        assert run(mode, peer) == bare
        keeper.hits = 0
        assert run(mode, peer) == bare
    assert (keeper.hits, bool(peer.heard)) == (hits, hits > 0)


def _mutated(draw: random.Random, fields: tuple[bytes, ...]) -> bytes:
    """A hit with some corrupt fields, or a corrupt frame."""
    told = [b"", *fields]
    for _ in range(draw.randrange(1, 4)):
        at = draw.randrange(len(told)) if told else 0
        match draw.randrange(6) if told else 3:
            case 0:
                del told[at]
            case 1:
                told[at] = told[at][: draw.randrange(len(told[at]) + 1)]
            case 2:
                told[at] = draw.choice(_NUMBERS)
            case 3:
                told.insert(at, draw.choice((*_NUMBERS, b"cubin", b"ptx", b"k<int>", b"log")))
            case 4:
                told.append(told[at])
            case 5:
                other = draw.randrange(len(told))
                told[at], told[other] = told[other], told[at]
    reply = bytearray(frame(draw.choice((Kind.HIT,) * 8 + (Kind.MISS, Kind.PASS)), *told))
    if draw.randrange(200) == 0:  # after an invalid frame the program stops asking
        reply[0:4] = struct.pack("<I", draw.choice((0, 3, len(reply) + 7, (1 << 32) - 1)))
    return bytes(reply)


@pytest.mark.parametrize("seed", range(4))
def test_any_answer_is_read_or_refused(run: Run, seed: int) -> None:
    """Whatever is in a hit, nothing is read beyond it, and a refused one is compiled."""
    draw, keeper = random.Random(seed), NVRTCKeeper()

    def answer(kind: int, fields: tuple[bytes, ...]) -> bytes | None:
        kept = keeper.kept.get(fields[BEFORE_INPUTS:]) if kind == Kind.COMPILE else None
        return keeper(kind, fields) if kept is None else _mutated(draw, kept)

    with Peer(answer) as peer:
        told = run("often", peer)
        assert len(peer.of_kind(Kind.COMPILE)) > _OFTEN // 8
    assert told.count(" compile 0\n") == _OFTEN
