"""What ``vkGetPipelineCacheData`` gives: a header that Vulkan specifies, and what is the driver's own."""

from gpucache.payload.reading import PayloadKind, Reading

_VENDORS = {
    0x1002: "AMD",
    0x1010: "Imagination",
    0x106B: "Apple",
    0x10DE: "NVIDIA",
    0x13B5: "Arm",
    0x5143: "Qualcomm",
    0x8086: "Intel",
    0x10005: "Mesa",
}
"""From the PCI's list and, of those beyond it, the specification's ``VkVendorId``."""


def read_pipelines(reading: Reading) -> None:
    """Describe a pipeline cache by its header, which is little-endian wherever it was written.

    Source: Vulkan specification, ``VkPipelineCacheHeaderVersionOne``; checked against what Mesa's lavapipe
    gives. u32 size of the header (32) and u32 version (1) stand for a magic number; u32 vendor, u32 device
    and the 16 bytes of a UUID follow, by which a driver refuses what another one or another version of it
    made. How much of the driver's follows is not said, so of all cuts only one in the header is a problem.
    """
    reading.kind = PayloadKind.VULKAN_PIPELINES
    vendor, device = reading.unpack("<II", 8, "header")
    reading.architecture = f"{vendor:04x}:{device:04x}"
    reading.note("vendor", _VENDORS.get(vendor, f"{vendor:#06x}"))
    reading.note("device", f"{device:#06x}")
    reading.require(32, "header")
    reading.note("UUID", reading.cut(16, 32).hex())
