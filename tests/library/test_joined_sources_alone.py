"""Kernels of joined sources next to the same kernels alone, by NVRTC: sources that interfere."""

import random
import re

import pytest

from gpucache.library.joined_sources import Joined, Part, join
from tests.trials import tell, trials

pytestmark = [pytest.mark.slow, pytest.mark.stress]

_SHARED = "#define SHARED 5\n__device__ int shared_of(int x) { return x + SHARED; }\n"
_PIECES = (
    "#define N {i}\n",
    "#ifndef N\n#define N {i}\n#endif\n",
    "#undef N\n#define N {j}\n",
    "#ifdef N\n#define M {i}\n#else\n#define M 77\n#endif\n",
    "#ifndef OPT\n#define OPT {i}\n#endif\n",
    "#define f(x) ((x)+{i})\n",
    "static __device__ int f(int x) {{ return x * {i}; }}\n",
    "static __device__ int f(double x) {{ return x * {i}; }}\n",
    "static __device__ int g{v}(int x) {{ return x * {i}; }}\n",
    "typedef {t} real;\n",
    "struct P {{ {t} x; }};\n",
    "enum {{ A{v} = {i} }};\n",
    "template <class T> __device__ int f(T x) {{ return {i}; }}\n",
    "namespace ns{v} {{ __device__ int f(int x) {{ return {i}; }} }}\n",
    "#define F(n) __device__ int n(int x) {{ return {i}; }}\nF(h{v})\n",
    "__constant__ int table[2] = {{ {i}, {j} }};\n",
)
_VALUES = (
    *("N", "M", "OPT", "f(1)", "f(1.5)", "g0(1)", "g1(2)", "sizeof(real)", "sizeof(P)", "A0", "A1", "h0(2)"),
    *("h1(1)", "ns0::f(1)", "table[1]", "shared_of(3)", "SHARED", "__LINE__"),
)
_ENTRY = re.compile(r"\.entry (\w+)\((.*?)\n\}", re.DOTALL)
_BLOCK = re.compile(r"\$L__BB\d+_")


def _entries(source: str) -> dict[str, str] | None:
    """The PTX of each kernel; None if the source does not compile."""
    from cuda.bindings import nvrtc

    _, handle = nvrtc.nvrtcCreateProgram(source.encode(), b"program.cu", 0, [], [])
    try:
        (status,) = nvrtc.nvrtcCompileProgram(handle, 3, [b"-arch=compute_90", b"-w", b"-DOPT=3"])
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            return None
        text = bytes(nvrtc.nvrtcGetPTXSize(handle)[1])
        nvrtc.nvrtcGetPTX(handle, text)
        return {name: _BLOCK.sub("$L_", body) for name, body in _ENTRY.findall(text.decode())}
    finally:
        nvrtc.nvrtcDestroyProgram(handle)


def _made_up(chance: random.Random, number: int) -> tuple[str, str]:
    """A source and the PTX of its kernel, which uses all the pieces that are possible there."""
    begin = _SHARED if chance.random() < 0.5 else ""
    while True:
        pieces = chance.sample(_PIECES, chance.randrange(1, 5))
        numbers = {"i": chance.randrange(2, 9), "j": chance.randrange(2, 9), "v": chance.randrange(2)}
        kind = chance.choice(["int", "double", "char"])
        before = begin + "".join(piece.format(t=kind, **numbers) for piece in pieces)
        kernel = before + f'extern "C" __global__ void k{number}(int *o) {{ %s }}\n'
        if _entries(kernel % "") is None:
            continue
        said = [
            value for value in chance.sample(_VALUES, 4) if _entries(kernel % f"*o = {value};") is not None
        ]
        source = kernel % " ".join(f"o[{at}] = {value};" for at, value in enumerate(said))
        entries = _entries(source)
        assert entries is not None
        return source, entries[f"k{number}"]


def test_each_source_stays_what_it_is_alone() -> None:
    """A kernel of joined sources is, to the last instruction, the kernel of its source alone."""
    pytest.importorskip("cuda.bindings.nvrtc")
    chance, count, joined, others = random.Random(4), trials(4, 300), 0, []
    for _ in range(count):
        made = [_made_up(chance, number) for number in range(2)]
        answer = join([Part(f"{at}.cu", source.encode()) for at, (source, _) in enumerate(made)])
        if not isinstance(answer, Joined):
            continue
        entries = _entries(answer.source.decode())
        if entries is not None:  # else each is compiled by itself
            joined += 1
            others += [source for at, (source, alone) in enumerate(made) if entries[f"k{at}"] != alone]
    tell("two made-up sources as one program, compared with each alone", joined, len(others))
    assert joined
    assert others == []
