"""Launches the kernels of ``checked.cl`` on one platform in one mode; run as a child process.

Its arguments are how the platform's name begins, and the mode; further ones forbid what a hit must not do:
``nothing-read`` the reading of a source's checks, ``nothing-built`` a compiler. Writes one JSON object: for
each scenario a list of what each step gave, a text where it failed.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl

from gpucache import checks, opencl
from gpucache.errors import KernelCheckError

SOURCE = Path(__file__).with_name("checked.cl")
SIZE = 256
LOCAL = 64


class Device:
    """Kernels, buffers and a queue."""

    def __init__(self, platform: str, mode: str) -> None:
        device = next(one for one in cl.get_platforms() if one.name.startswith(platform)).get_devices()[0]
        self.context = cl.Context([device])
        self.queue = cl.CommandQueue(self.context)
        self.checked = opencl.CheckedQueue(self.queue)
        self.program = opencl.build_program(
            self.context,
            SOURCE.read_text(encoding="utf-8"),
            checks=mode,
            name="checked.cl",
            local_sizes=[LOCAL, 16],
        )
        self.kernels = {kernel.function_name: kernel for kernel in self.program.all_kernels()}
        self.out = self.buffer(np.zeros(SIZE, np.int32))

    def buffer(self, data: Any) -> Any:
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self.context, flags, hostbuf=np.asarray(data, np.int32))

    def launch(self, name: str, *args: Any, size: int = SIZE) -> None:
        self.checked.launch(self.kernels[name], (size,), (min(size, LOCAL),), *args)

    def clear(self, value: int = 0) -> None:
        cl.enqueue_fill_buffer(self.queue, self.out, np.int32(value), 0, SIZE * 4)

    def values(self, count: int) -> list[int]:
        found = np.empty(count, np.int32)
        cl.enqueue_copy(self.queue, found, self.out)
        return [int(value) for value in found]

    def gather(self, wrong: dict[int, int]) -> None:
        where = np.arange(SIZE)
        for item, value in wrong.items():
            where[item] = value
        self.launch("gather", self.buffer(where), self.out, np.int32(SIZE))

    def sum(self, data: Any, item: int = LOCAL, half: int = 0) -> None:
        shared = cl.LocalMemory(LOCAL * 4)
        self.launch("sum", self.buffer(data), self.out, shared, np.int32(item), np.int32(half))


def told(step: Callable[[], Any]) -> Any:
    """What a step gives; of a failure its sentence."""
    try:
        return step()
    except KernelCheckError as error:
        return str(error)


def scenarios(on: Device) -> dict[str, list[Any]]:
    look, ones = on.checked.synchronise, np.ones(SIZE)
    negative = [-9 if item == 37 else 1 for item in range(SIZE)]

    def steps(*calls: Callable[[], Any]) -> list[Any]:
        on.clear()
        return [told(call) for call in calls]

    return {
        "sound": steps(lambda: on.gather({}), look, lambda: on.values(3)),
        "index": steps(lambda: on.gather({70: 999}), look, lambda: on.gather({}), look, lambda: on.values(3)),
        "function": steps(lambda: on.launch("calls", on.out, np.int32(255)), look),
        "types": steps(lambda: on.launch("types", on.out), look),
        "line": steps(lambda: on.clear(1), lambda: on.launch("many", on.out, size=1), look)[1:],
        "bare": steps(lambda: on.clear(1), lambda: on.launch("bare", on.out, size=1), look)[1:],
        "macro": steps(lambda: on.clear(1), lambda: on.launch("macro", on.out, size=1), look)[1:],
        "plain": steps(lambda: on.launch("plain", on.out), look, lambda: on.values(2)),
        "barriers": steps(lambda: on.sum(ones), look, lambda: on.values(4)),
        "first segment": steps(lambda: on.clear(-1), lambda: on.sum(negative), look, lambda: on.values(4))[1:],
        "loop": steps(lambda: on.clear(-1), lambda: on.sum(ones, 63, 8), look, lambda: on.values(4))[1:],
        "loop, all": steps(lambda: on.clear(-1), lambda: on.sum(ones, 0, 1), look, lambda: on.values(4))[1:],
        "last segment": steps(lambda: on.sum(ones * 99), look),
        "afterwards": steps(lambda: on.sum(ones), look, lambda: on.values(4)),
        "garbage": steps(
            lambda: on.clear(-1),
            lambda: on.gather({0: -1}),
            lambda: on.clear(-1),
            lambda: on.gather({}),
            lambda: on.sum(ones),
            lambda: on.values(4),
            look,
            look,
        )[1:],
    }


def main() -> None:
    platform, mode, *forbidden = sys.argv[1:]

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a hit did what it must not")

    if "nothing-read" in forbidden:
        opencl.instrumented = checks.instrument = checks.calls.instrument = refuse  # type: ignore[assignment]
    if "nothing-built" in forbidden:
        opencl.compiler.build_plainly = opencl.compiler.build_as_pyopencl = refuse
    on = Device(platform, mode)
    print(json.dumps(scenarios(on)))


if __name__ == "__main__":
    main()
