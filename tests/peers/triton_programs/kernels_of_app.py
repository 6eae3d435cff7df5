"""Kernels of several kinds: autotuned, with functions and types as constants, and with a hidden value."""

# mypy: ignore-errors

import hidden_value
import triton
import triton.language as tl

SCALE: tl.constexpr = tl.constexpr(3)


@triton.jit
def plain(x, y, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(x + o, mask=o < n) * SCALE, mask=o < n)


@triton.autotune(
    configs=[triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((64, 2), (128, 4))], key=["n"]
)
@triton.jit
def tuned(x, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    tl.store(x + o, tl.load(x + o, mask=o < n) + 1, mask=o < n)


@triton.jit
def relu(v):
    return tl.maximum(v, 0.0)


@triton.jit
def general(x, ACT: tl.constexpr, SHAPE: tl.constexpr, DTYPE: tl.constexpr, EPS: tl.constexpr):
    o = tl.arange(0, SHAPE[0])
    tl.store(x + o, ACT(tl.load(x + o).to(DTYPE) + EPS))


@triton.jit
def reads_hidden(x):
    tl.store(x, hidden_value.VALUE + 0.0)


def made(number):
    @triton.jit
    def closure(x, BLOCK: tl.constexpr):
        tl.store(x + tl.arange(0, BLOCK), number)

    return closure
