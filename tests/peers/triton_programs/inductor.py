"""A function that Inductor compiles for the stated GPU; no tensor is there, and nothing is launched."""

# mypy: ignore-errors

import os
from types import SimpleNamespace

import stated
import torch
from torch._dynamo import device_interface
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.runtime import triton_helpers
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

ARCH = stated.Stated.target.arch
FACTS = SimpleNamespace(
    name="NVIDIA",
    major=ARCH // 10,
    minor=ARCH % 10,
    multi_processor_count=132,
    warp_size=32,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    shared_memory_per_block_optin=232448,
    total_memory=80 << 30,
    gcnArchName="",
)


class Interface(device_interface.CudaInterface):
    """PyTorch's questions about a GPU."""

    class Worker:
        get_device_properties = staticmethod(lambda device=None: FACTS)

    is_available = staticmethod(lambda: True)
    is_triton_capable = staticmethod(lambda device=None: True)
    raise_if_triton_unavailable = staticmethod(lambda *_: None)
    get_compute_capability = staticmethod(lambda device=None: ARCH)
    get_multi_processor_count = staticmethod(lambda device=None: 132)
    get_device_properties = staticmethod(lambda device=None: FACTS)
    current_device = staticmethod(lambda: 0)
    synchronize = staticmethod(lambda device=None: None)


def function(x, weight):
    y = torch.nn.functional.layer_norm(x, x.shape[-1:], weight)
    return torch.softmax(torch.nn.functional.gelu(y), -1).sum(0), (x * 2).relu()


def main() -> None:
    for name in ("cuda", "cuda:0"):
        device_interface.register_interface_for_device(name, Interface)
    torch.cuda.get_device_properties = lambda *_: FACTS
    torch.cuda.get_device_capability = lambda *_: (FACTS.major, FACTS.minor)
    torch.cuda.current_device = lambda: 0
    triton_helpers.set_driver_to_gpu = lambda: None
    CachingAutotuner._make_launchers = lambda self: None
    stated.activate()
    if os.environ.get("TORCHINDUCTOR_COMPILE_THREADS") != "1":
        AsyncCompile.wait_pool_ready()
    with FakeTensorMode(allow_non_fake_inputs=True):
        some = torch.empty(64, 512, device="cuda"), torch.empty(512, device="cuda")
        compile_fx_inner(make_fx(function, select_decomp_table())(*some), some)


if __name__ == "__main__":
    device_interface.get_registered_device_interfaces()
    main()
    print(stated.heard.count(False), stated.heard.count(True))
