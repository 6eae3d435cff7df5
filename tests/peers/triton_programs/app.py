"""A program that launches the kernels, and prints how many compiles and hits its own listener heard."""

# mypy: ignore-errors

import os

import kernels_of_app as kernels
import stated
import triton
import triton.language as tl


@triton.jit
def of_main(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 1)


def main() -> None:
    stated.activate()
    half, single = stated.Pointer(tl.float16), stated.Pointer(tl.float32)
    for n in (1, 16, 17, 2**33):
        kernels.plain[(4,)](single, half, n, BLOCK=128)
    kernels.plain[(4,)](stated.Pointer(tl.float32, address=4100), half, 64, BLOCK=128, num_warps=8)
    kernels.plain[(4,)](stated.Pointer(tl.float32, size=2**32), half, 64, BLOCK=128, num_stages=4)
    kernels.tuned[(4,)](single, 640)
    kernels.general[(1,)](single, kernels.relu, (64, 32), tl.float32, 1e-5)
    kernels.general[(1,)](single, kernels.relu, (128, 32), tl.float16, float("inf"))
    kernels.reads_hidden[(1,)](single)
    of_main[(1,)](single, BLOCK=64)
    if os.environ.get("CLOSURE"):
        kernels.made(tl.constexpr(9))[(1,)](single, BLOCK=64)


if __name__ == "__main__":
    main()
    print(stated.heard.count(False), stated.heard.count(True))
