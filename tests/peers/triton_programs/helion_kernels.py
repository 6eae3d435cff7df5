"""Kernels of Helion for the stated GPU, on tensors of the CPU."""

# mypy: ignore-errors

import stated
import torch

stated.activate()
import helion
import helion.language as hl


@helion.kernel(config=helion.Config(block_sizes=[64, 64]))
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(out.size()):
        out[tile] = x[tile] + y[tile] * 2
    return out


@helion.kernel(config=helion.Config(block_sizes=[16]))
def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = torch.nn.functional.softmax(x[tile, :], dim=1)
    return out


if __name__ == "__main__":
    some = torch.randn(128, 256)
    softmax(add(some, some))
    print(stated.heard.count(False), stated.heard.count(True))
