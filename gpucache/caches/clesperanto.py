"""clesperanto's kernels: a file for each program and device, with the binary that the driver returned.

Source: CLIc, ``clic/src/cache.cpp``; checked against files of pyclesperanto 0.25, which is newer. Each
version has a directory (``clic-0.25.1-r4``) with ``DEVICE-LENGTH/PROGRAM-LENGTH.bin``: digits of hashes of
the driver's description of a device and of a kernel's source, each with the length of its input. Older
versions had decimal hashes and no version directory; CUDA's files end in ``.ptx``. Files are written under a
temporary name and renamed, a file that the driver rejects is built again, and nothing is ever removed.
"""

from collections.abc import Sequence

from gpucache.answers.entries import CacheEntry
from gpucache.caches.files import Files
from gpucache.caches.files_format import OF_OPENCL, BinaryFormat
from gpucache.caches.layout import Layout, Left, hashed
from gpucache.caches.portable import Fact, Moving
from gpucache.caches.systems import ClesperantoPlaces

_VERSION, _HASH, _OLDER = r"clic-(\d+(?:\.\d+)*-r\d+)", r"([0-9a-f]{16}-\d+)", r"(\d{15,20})"
_NEWER = f"{_VERSION}/{_HASH}/{_HASH}"


def _key(groups: Sequence[str]) -> str:
    program = groups[-1].partition("-")[0]
    digits = program if len(groups) > 2 else f"{int(program) % 2**64:016x}"
    return digits + hashed(groups)[:24]


class Clesperanto(ClesperantoPlaces, BinaryFormat):
    """The programs that clesperanto built for the devices of this machine."""

    layout = Layout(
        [rf"{_NEWER}\.(?:bin|ptx)", rf"{_OLDER}/{_OLDER}\.(?:bin|ptx)"],
        left=[Left(rf"{_NEWER}\.(?:bin|ptx)\.tmp\d+_\d+", sure=True)],
        signs=[f"{_VERSION}/{_HASH}", f"{_VERSION}", rf"{_OLDER}/{_OLDER}\.(?:bin|ptx)"],
        key=_key,
    )
    wanted = {"key": "the 16 hex digits in a file's name, or more of an entry's"}
    opaque = "its entries record only the length of the inputs of their keys"
    served = "clesperanto would hand it to the driver"
    key_digits = 40
    folders_removed = 2
    kinds = OF_OPENCL
    consequence = (
        "clesperanto rebuilds a binary that the driver refuses; some drivers accept it, and the program "
        "ends at every start"
    )
    shows = "a GPU binary"
    tells_toolchain = True
    moving = Moving(tells="the path of the driver's cache", untold=("device", Fact.DRIVER))

    def look(self, item: Files) -> CacheEntry:
        version = item.parts[0].removeprefix("clic-") if len(item.parts) > 1 else ""
        return super().look(item)._replace(toolchain=(("CLIc", version),))
