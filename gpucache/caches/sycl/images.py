"""The device images of an entry, which lie one behind the other: the names of the kernels in them."""

from dataclasses import dataclass

from gpucache.payload import describe, spirv
from gpucache.payload.mangled import readable

READ_BYTES = 1 << 20
"""How much of the images is searched for names."""
_TOLD_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Kernels:
    """Names of kernels as the images have them, mangled, in the order of the images."""

    names: tuple[str, ...]
    format: str
    """What the images are, such as ``spir-v``."""

    @property
    def shown(self) -> str:
        """The first name, readable, and how many more there are; the format where the images tell no name."""
        if not self.names:
            return f"{self.format} image" if self.format else ""
        first = readable(self.names[0])
        return f"{first} and {len(self.names) - 1} more" if self.names[1:] else first


def kernels(images: bytes) -> Kernels:
    """The kernels of some images, or of the first bytes of them. Raises nothing."""
    return Kernels(spirv.kernel_names(images), describe(images[:_TOLD_BYTES]).kind.value if images else "")
