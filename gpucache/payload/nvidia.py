"""NVIDIA's containers: fatbins and LTO-IR. Neither is documented by NVIDIA.

Every statement about their layout comes from files that ``fatbinary`` 13.0 and NVRTC 11.8, 12.4, 12.9 and
13.5 made. Fields that were not understood are not read.
"""

from collections.abc import Iterator

from gpucache.payload.reading import PayloadKind, Reading

_FATBIN_KINDS = {1: "compute_", 2: "sm_"}
_TAG_ARCHITECTURE = 1
_TAG_SPECIFIC = 0x20
_TAG_END = 0x63
_TAGS_READ = 256
_IMAGES_READ = 4096


def read_fatbin(reading: Reading) -> None:
    """Describe a fatbin, whose header is u32 magic, u16 version, u16 header size and u64 size of the images.

    The header of an image is u16 kind (1 for PTX, 2 for a cubin), u16, u32 header size, u64 content size, and
    at offset 28 the architecture as u32. Raises BrokenError where an image or the whole leaves the payload,
    as every cut behind the magic number makes it.
    """
    reading.kind = PayloadKind.FATBIN
    version, header_size, size = reading.unpack("<HHQ", 4, "fatbin header")
    reading.note("fatbin version", version)
    reading.note_names("images", _images(reading, header_size, header_size + size))
    reading.require(header_size + size, "last image")


def _images(reading: Reading, start: int, end: int) -> Iterator[str]:
    for _ in range(_IMAGES_READ):
        if start >= end:
            return
        kind, _unread, header_size, size = reading.unpack("<HHIQ", start, "image header")
        (number,) = reading.unpack("<I", start + 28, "image header")
        yield f"{_FATBIN_KINDS.get(kind, f'kind {kind} for sm_')}{number}"
        start += max(header_size, 32) + size
        reading.require(start, "image")


def read_ltoir(reading: Reading) -> None:
    """Describe NVRTC's LTO-IR, which is encoded NVVM IR behind pairs of u16 tag and u16 value.

    The u16 at offset 12 says where the pairs begin, the u32 at 16 where they end, and the u32 at 20 where the
    content begins. Tag 1 holds ten times the architecture, tag 0x20 holds 1 for an ``a`` architecture (an
    ``f`` leaves no trace), and tag 0x63 ends the pairs. The length of the content is stored nowhere, so a cut
    behind the header is not noticed. LTO-IR is code for a virtual architecture, so its architecture is shown
    as ``compute_90``.
    """
    reading.kind = PayloadKind.LTOIR
    start, _unread, end, content = reading.unpack("<HHII", 12, "LTO-IR header")
    reading.require(max(end, content + 1), "LTO-IR header")
    tags: dict[int, int] = {}
    for offset in range(start, min(end, start + 4 * _TAGS_READ), 4):
        tag, value = reading.unpack("<HH", offset, "LTO-IR header")
        if tag == _TAG_END:
            break
        tags[tag] = value
    if number := tags.get(_TAG_ARCHITECTURE):
        reading.architecture = f"compute_{number // 10}{'a' if tags.get(_TAG_SPECIFIC) else ''}"
