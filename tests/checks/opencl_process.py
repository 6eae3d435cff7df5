"""Launches the kernels of ``checked.cl`` on one platform in one mode; run as a child process.

Its arguments are the prefix of the platform's name, and the mode. Writes one JSON object: for each scenario a
list of the results of each step, a text for a failed one.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl

from gpucache import opencl
from gpucache.errors import KernelCheckError, SourceError

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

    def fill(self, values: Any) -> None:
        cl.enqueue_copy(self.queue, self.out, np.asarray(values, np.int32))

    def values(self, count: int) -> list[int]:
        found = np.empty(count, np.int32)
        cl.enqueue_copy(self.queue, found, self.out)
        return [int(value) for value in found]

    def gather(self, wrong: dict[int, int]) -> None:
        where = np.arange(SIZE)
        for item, value in wrong.items():
            where[item] = value
        self.launch("gather", self.buffer(where), self.out, np.int32(SIZE))

    def last(self, item: int, other: int) -> None:
        self.launch("last", self.out, np.int32(item), np.int32(other), size=LOCAL)

    def sum(self, data: Any, item: int = SIZE, half: int = 0) -> None:
        shared = cl.LocalMemory(LOCAL * 4)
        self.launch("sum", self.buffer(data), self.out, shared, np.int32(item), np.int32(half))


def told(step: Callable[[], Any]) -> Any:
    """The result of a step; the sentence of a failure."""
    try:
        return step()
    except KernelCheckError as error:
        return str(error)


def scenarios(on: Device) -> dict[str, list[Any]]:
    look, ones = on.checked.synchronise, np.ones(SIZE)
    negative = [-9 if item == 37 else 1 for item in range(SIZE)]
    first_group_large = [99 if item < LOCAL else 1 for item in range(SIZE)]

    def steps(*calls: Callable[[], Any]) -> list[Any]:
        on.clear()
        return [told(call) for call in calls]

    return {
        "sound": steps(lambda: on.gather({}), look, lambda: on.values(3)),
        "index": steps(lambda: on.gather({70: 999}), look, lambda: on.gather({}), look, lambda: on.values(3)),
        "function": steps(lambda: on.launch("calls", on.out, np.int32(255)), look),
        "types": steps(lambda: on.launch("types", on.out), look),
        "line": steps(lambda: on.fill([0, 1]), lambda: on.launch("many", on.out, size=1), look)[1:],
        "bare": steps(lambda: on.clear(1), lambda: on.launch("bare", on.out, size=1), look)[1:],
        "macro": steps(lambda: on.clear(1), lambda: on.launch("macro", on.out, size=1), look)[1:],
        "plain": steps(lambda: on.launch("plain", on.out), look, lambda: on.values(2)),
        "barriers": steps(lambda: on.sum(ones), look, lambda: on.values(4)),
        "first segment": steps(lambda: on.clear(-1), lambda: on.sum(negative), look, lambda: on.values(4))[
            1:
        ],
        "loop": steps(lambda: on.clear(-1), lambda: on.sum(ones, 255, 8), look, lambda: on.values(4))[1:],
        "loop, all": steps(lambda: on.clear(-1), lambda: on.sum(ones, 0, 1), look, lambda: on.values(4))[1:],
        "last segment": steps(lambda: on.sum(first_group_large), look),
        "last items": steps(lambda: on.last(3, 5), look, lambda: on.values(8)),
        "last items, sound": steps(lambda: on.last(-1, 5), look, lambda: on.values(8)),
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
        "unchecked": steps(
            lambda: on.clear(-1),
            lambda: on.gather({0: -1}),
            lambda: on.clear(-1),
            lambda: on.launch("unchecked", on.out),
            lambda: on.values(4),
            look,
        )[-2:],
        "without a test": steps(
            lambda: on.clear(-1),
            lambda: on.gather({0: -1}),
            lambda: on.clear(-1),
            lambda: on.launch("plain", on.out),
            lambda: on.values(2),
            lambda: on.launch("plain", on.out),
            lambda: on.values(2),
        )[3:],
    }


def misuses(on: Device, mode: str) -> list[str]:
    properties = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    stray = cl.Kernel(on.program, "gather")

    def words(step: Callable[[], Any]) -> str:
        try:
            step()
        except (TypeError, ValueError, SourceError) as error:
            return f"{type(error).__name__}: {error}"
        except cl.Error as error:
            return " ".join(sorted(set(re.findall(r"'(gpucache_\w*)'", str(error)))))
        return "nothing"

    def built(body: str) -> Any:
        text = f"#include <gpucache/check.h>\nkernel void k(GPUCACHE_CHECKED int n) {{ {body} }}"
        return opencl.build_program(on.context, text, checks=mode)

    return [
        words(lambda: opencl.CheckedQueue(cl.CommandQueue(on.context, properties=properties))),
        words(lambda: on.checked.launch(stray, (SIZE,), None, on.out, on.out, np.int32(SIZE))),
        words(lambda: opencl.build_program(on.context, "", checks="all")),
        words(lambda: opencl.build_program(on.context, b"\x03\x02\x23\x07", checks="sync")),
        words(lambda: opencl.build_program(on.context, '\nGPUCACHE_CHECK(a, "%s", b)', checks="sync")),
        words(lambda: opencl.CheckedQueue(on.context)),
        words(lambda: on.checked.launch("gather", (SIZE,), None)),
        words(lambda: on.checked.launch(on.kernels["gather"], (SIZE,), None, on.out)),
        words(lambda: built("} void f(int n) { GPUCACHE_CHECK(n);")),
        words(lambda: built("GPUCACHE_BEGIN_SYNC; GPUCACHE_CHECK(n); GPUCACHE_END_SYNC(end);")),
        words(lambda: built("GPUCACHE_BEGIN_SYNC; GPUCACHE_CALL(n); GPUCACHE_END_SYNC(end);")),
        words(lambda: built("GPUCACHE_BEGIN_SYNC; GPUCACHE_CHECK_SYNC(a, n); GPUCACHE_SYNC(a);")),
    ]


def main() -> None:
    platform, mode = sys.argv[1:]
    on = Device(platform, mode)
    sys.stdout.write(json.dumps({**scenarios(on), "misuses": misuses(on, mode)}))


if __name__ == "__main__":
    main()
