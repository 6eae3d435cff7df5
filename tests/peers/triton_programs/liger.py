"""Some of Liger's kernels, forward and backward."""

# mypy: ignore-errors

import stated
import torch

stated.activate()
from liger_kernel.ops import cross_entropy, geglu, layer_norm, rms_norm, softmax, swiglu


def both(function, *inputs) -> None:
    made = function.apply(*inputs)
    (made[0] if isinstance(made, tuple) else made).sum().backward()


def some(*shape, dtype):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


for dtype in (torch.float32, torch.bfloat16):
    x, weight = (lambda dtype=dtype: some(4, 64, 512, dtype=dtype)), some(512, dtype=dtype)
    both(rms_norm.LigerRMSNormFunction, x(), weight, 1e-6, 0.0, "llama", True)
    both(layer_norm.LigerLayerNormFunction, x(), weight, some(512, dtype=dtype), 1e-5)
    rows = some(32, 1000, dtype=dtype)
    both(cross_entropy.LigerCrossEntropyFunction, rows, torch.zeros(32, dtype=torch.long), None)
    both(swiglu.LigerSiLUMulFunction, x(), x())
    both(geglu.LigerGELUMulFunction, x(), x())
    both(softmax.LigerSoftmaxFunction, some(32, 1000, dtype=dtype))
print(stated.heard.count(False), stated.heard.count(True))
