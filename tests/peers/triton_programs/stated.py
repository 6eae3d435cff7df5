"""A driver of Triton for a machine without a GPU: it states TARGET, and launches do nothing."""

# mypy: ignore-errors

import os
from types import SimpleNamespace
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

_TARGETS = {
    "cuda:sm_90": GPUTarget("cuda", 90, 32),
    "cuda:sm_100": GPUTarget("cuda", 100, 32),
    "hip:gfx942": GPUTarget("hip", "gfx942", 64),
}
heard: list[bool] = []
"""What the program's own listener heard: hits."""


class Pointer:
    """An argument as a tensor is."""

    def __init__(self, dtype: Any, address: int = 4096, size: int = 1024) -> None:
        self.dtype = dtype
        self._address, self._size = address, size

    def data_ptr(self) -> int:
        return self._address

    def ptr_range(self) -> int:
        return self._size


class Stated:
    """The driver."""

    target = _TARGETS[os.environ.get("TARGET", "cuda:sm_90")]
    launcher_cls = staticmethod(lambda source, metadata: lambda *args, **named: None)
    facts = {"max_shared_mem": 232448, "multiprocessor_count": 132, "max_num_regs": 65536, "warpSize": 32}
    utils = SimpleNamespace(
        get_device_properties=lambda device: Stated.facts,
        load_binary=lambda *args: (1, 1, 32, 0, 1024),
        unload_module=lambda module: None,
    )

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return 9, 0

    def map_python_to_cpp_type(self, kind: str) -> str:
        return kind

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def get_benchmarker(self) -> Any:
        def bench(call: Any, quantiles: Any = None, **_: Any) -> Any:  # all are compiled, none is timed
            call()
            return [1.0] * len(quantiles) if quantiles else 1.0

        return bench

    def clear_cache(self, cache: Any) -> None:
        pass

    def get_empty_cache_for_benchmark(self) -> None:
        pass


def activate() -> None:
    """State the target, and listen as a program may."""
    stated = Stated()
    for name in ("_default", "_active"):
        if hasattr(driver, name):
            setattr(driver, name, stated)
    driver.set_active(stated)
    triton.knobs.compilation.listener = lambda cache_hit, **_: heard.append(cache_hit)
