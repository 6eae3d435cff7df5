"""hashcat's kernels: a file for each kernel and device, with the binary that the driver returned.

Source: hashcat 6.2, ``src/backend.c`` and ``src/folder.c``; checked against its files. The 8 hex digits in a
name are the beginning of an MD5 of when hashcat was compiled, of its options and of the device and driver;
the kernel's source is not part of it. An empty file is built again, every other one is passed to the driver.
Files are written in place, without a lock, and nothing is ever removed.
"""

from gpucache.answers.entries import CacheEntry
from gpucache.caches.files import Files
from gpucache.caches.files_format import OF_OPENCL, BinaryFormat
from gpucache.caches.layout import Layout, hashed
from gpucache.caches.portable import Moving
from gpucache.caches.systems import HashcatPlaces


class Hashcat(HashcatPlaces, BinaryFormat):
    """The kernels that hashcat built for the devices of this machine."""

    layout = Layout(
        [r"((?:m\d+_a\d-(?:optimized|pure)|shared|markov_[bl]e|amp_a\d))\.([0-9a-f]{8})\.kernel"],
        key=lambda groups: groups[1] + hashed(groups[:1])[:32],
    )
    wanted = {"key": "the 8 hex digits in a file's name, or more of an entry's"}
    opaque = (
        "its entries do not record the inputs of their keys; the digits change with hashcat's build, "
        "the device and the driver, and not with the kernel's source"
    )
    served = "hashcat would pass it to the driver, also if its kernel's source has changed"
    key_digits = 40
    kinds = OF_OPENCL
    consequence = "hashcat hands it to the driver, which fails or ends the program, at every start"
    shows = "a GPU binary"
    moving = Moving(
        "a kernel is found for any source, so another hashcat would run it; copy the kernels along "
        "with hashcat itself"
    )
    empty = "it is empty, so hashcat builds it again"

    def look(self, item: Files) -> CacheEntry:
        return super().look(item)._replace(program=item.names[0].partition(".")[0])
