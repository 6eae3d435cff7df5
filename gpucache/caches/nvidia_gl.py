"""The shader cache of NVIDIA's driver, of OpenGL and Vulkan: the "GL cache", which is opaque.

Source of the places, sizes and variables: README of the Linux driver, "OpenGL Environment Variable Settings",
and its release notes from 460 on; source of the names: published listings. No cache of an NVIDIA GPU was
available. A directory for driver and GPU and one for the program contain pairs of a ``.toc`` and a ``.bin``,
whose format NVIDIA does not document. The driver uses an older place as long as it exists.
"""

from gpucache.caches.opaque import OpaqueFormat
from gpucache.caches.systems import NvidiaGlPlaces


class NvidiaGl(NvidiaGlPlaces, OpaqueFormat):
    """The shaders that the driver compiled for OpenGL and Vulkan."""

    signs = (r"[0-9a-f]{32}/[0-9a-f]{16}/[0-9a-f]{16}\.toc",)
