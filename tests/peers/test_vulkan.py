"""Pipeline caches of a real Vulkan driver: Mesa's lavapipe, which needs no GPU, asked by its C interface."""

import ctypes
import ctypes.util
import os
import sys
from pathlib import Path

import pytest

from gpucache.caches.registry import of_others
from gpucache.payload import PayloadKind, describe
from tests.caches.opened import only, opened
from tests.children import run_text

SYSTEM = of_others("vulkan")

pytestmark = pytest.mark.slow
_PROGRAM = """
import ctypes as c, sys
vk = c.CDLL("libvulkan.so.1")
P, U = c.c_void_p, c.c_uint32

def struct(kind, *fields):
    made = type("Made", (c.Structure,), {"_fields_": [(f"f{i}", t) for i, (t, _) in enumerate(fields)]})
    return made(*(value for _, value in fields))

def call(name, *arguments):
    result = getattr(vk, name)(*arguments)
    assert result in (0, None) or name.startswith("vkGet"), (name, result)

instance, device, queues, cache = P(), P(), U(1), c.c_uint64()
info = struct("instance", (U, 1), (P, None), (U, 0), (P, None), (U, 0), (P, None), (U, 0), (P, None))
call("vkCreateInstance", c.byref(info), None, c.byref(instance))
physical, count = P(), U(1)
vk.vkEnumeratePhysicalDevices(instance, c.byref(count), c.byref(physical))
assert count.value == 1
properties = (c.c_uint8 * 1024)()
vk.vkGetPhysicalDeviceProperties.restype = None
vk.vkGetPhysicalDeviceProperties(physical, properties)
priority = c.c_float(1)
queue = struct("queue", (U, 2), (P, None), (U, 0), (U, 0), (U, 1), (P, c.addressof(priority)))
info = struct(
    "device", (U, 3), (P, None), (U, 0), (U, 1), (P, c.addressof(queue)), (U, 0), (P, None), (U, 0),
    (P, None), (P, None),
)
call("vkCreateDevice", physical, c.byref(info), None, c.byref(device))
old = open(sys.argv[2], "rb").read() if len(sys.argv) > 2 else b""
kept = c.create_string_buffer(old, len(old))
info = struct("cache", (U, 17), (P, None), (U, 0), (c.c_size_t, len(old)), (P, c.addressof(kept)))
call("vkCreatePipelineCache", device, c.byref(info), None, c.byref(cache))
size = c.c_size_t()
call("vkGetPipelineCacheData", device, cache, c.byref(size), None)
data = c.create_string_buffer(size.value)
call("vkGetPipelineCacheData", device, cache, c.byref(size), data)
open(sys.argv[1], "wb").write(data.raw[:size.value])
numbers = c.cast(properties, c.POINTER(U))
print(f"{numbers[2]:04x}:{numbers[3]:04x}", bytes(properties[276:292]).hex())
"""


def _ask(out: Path, *kept: Path) -> list[str]:
    """Let a program store the driver's pipeline cache, starting from a kept one; its device and UUID."""
    done = run_text(
        [sys.executable, "-c", _PROGRAM, out, *kept], env={**os.environ, "MESA_SHADER_CACHE_DISABLE": "1"}
    )
    if done.returncode:
        pytest.skip(f"no Vulkan driver answers here: {done.stderr[-200:]}")
    return done.stdout.split()


@pytest.fixture(autouse=True)
def _loader() -> None:
    if ctypes.util.find_library("vulkan") is None:
        pytest.skip("the Vulkan loader is not installed")


def test_what_a_driver_gives_names_that_driver(tmp_path: Path) -> None:
    """The numbers and the UUID that the driver reports are those read from its bytes."""
    device, uuid = _ask(tmp_path / "my.cache")
    info = describe((tmp_path / "my.cache").read_bytes())
    assert (info.kind, info.target, info.problem) == (PayloadKind.VULKAN_PIPELINES, f"vulkan:{device}", None)
    assert ("UUID", uuid) in info.detail
    cache = opened(SYSTEM, tmp_path)
    assert only(cache).target == f"vulkan:{device}" and not cache.check(only(cache)).findings


def test_after_a_repair_the_program_writes_it_anew(tmp_path: Path) -> None:
    """A cut one is found and removed, and the driver begins a new one as on a first start."""
    _, uuid = _ask(tmp_path / "first")
    parts = (uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:])
    file = tmp_path / "cache" / ("-".join(parts) + ".1")  # as GTK calls it
    file.parent.mkdir()
    whole = (tmp_path / "first").read_bytes()
    file.write_bytes(whole[:20])
    cache = opened(SYSTEM, file.parent)
    entry = only(cache)
    checked = cache.check(entry)
    assert checked.findings and cache.repair(checked, entry).findings[0].repaired and not file.exists()
    _ask(file)
    assert file.read_bytes() == whole and not cache.check(only(cache)).findings
    _ask(tmp_path / "again", file)
    assert (tmp_path / "again").read_bytes() == whole
