"""darktable's kernels: a directory for each device and driver, with a binary and a link for each program.

Source: darktable 4.2 to 5.4, ``src/common/opencl.c``; checked against files of 4.2. A directory
``cached_v1_kernels_for_DEVICE_DRIVER`` (without ``v1`` before 4.4) has the driver's binary in a file named by
an MD5 of the program's source, the headers, the options and the driver, and ``NAME.cl.bin``, a link to it
whose target darktable compares with that. A binary that the driver rejects, or that no link with that target
points to, is built again and replaced. All files are written in place, without a lock, and directories of
removed drivers stay.
"""

import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.answers.evict import Kept
from gpucache.answers.verify import Checked
from gpucache.caches.binary_format import OF_OPENCL, BinaryFormat
from gpucache.caches.files import Files, open_folder
from gpucache.caches.format import HOUR_NS
from gpucache.caches.layout import Layout, hashed
from gpucache.caches.portable import Moving
from gpucache.folders import Folder

_FOLDER = r"(cached_(?:v\d+_)?kernels_for_\w+)"
_DIGEST, _NAME = "[0-9a-f]{32}", ".cl.bin"


class Darktable(BinaryFormat, of="darktable"):
    """The programs that darktable built for the devices of this machine."""

    layout = Layout(
        [f"{_FOLDER}/({_DIGEST})"],
        own=[rf"{_FOLDER}/.+\.cl\.bin", r"mipmaps-.+", r"mipmaps-.+/"],
        signs=[_FOLDER],
        key=lambda groups: groups[1] + hashed(groups[:1])[:8],
    )
    opaque = (
        "its entries keep a digest of the inputs of their keys, and nothing else; "
        "'darktable -d opencl' logs the files it looks for and builds"
    )
    folders_removed = 1
    kinds = OF_OPENCL
    consequence = (
        "darktable rebuilds a binary that the driver refuses; if the driver accepts it "
        "and fails later, darktable goes "
        "without OpenCL at every start"
    )
    moving = Moving(
        "darktable takes a binary only through a link to it, and links do not move; copy its whole directory "
        "to machines of one device and driver"
    )

    def look(self, item: Files) -> CacheEntry:
        found = super().look(item)
        device, _, driver = item.parts[-1].partition("kernels_for_")[2].rpartition("_")
        with item.open() as folder:
            programs = _leading(folder, item.names[0])
        problem = found.damage
        if not programs and item.written_ns < self.now_ns() - HOUR_NS:
            detail = "no link leads to it, so darktable builds its program again"
            problem = problem or Problem(FindingKind.ORPHAN, detail)
        return found._replace(
            program=programs[0].removesuffix(_NAME) if programs else "",
            target=device,
            fields=(("driver", driver),),
            damage=problem,
            toolchain=((f"the driver of {device}", driver),),
        )

    def check(self, item: Files) -> Iterator[Problem]:
        problems = list(super().check(item))
        problem = self.look(item).damage
        yield from problems or filter(None, [problem])

    def remove(self, item: Files) -> Kept | None:
        if not item.unchanged():
            return Kept()
        with item.open() as folder:
            for name in _leading(folder, item.names[0]):
                folder.unlink(name)
        return super().remove(item)

    def whole(self) -> Iterator[Checked]:
        with open_folder(self.root) as top:
            names = sorted(one.name for one in top.entries() if re.fullmatch(_FOLDER, one.name))
        for name in names:
            with suppress(OSError), open_folder(self.root, name) as folder:
                for link, target in sorted(_links(folder).items()):
                    if not re.fullmatch(_DIGEST, target):
                        detail = f"{link} leads to no binary; darktable follows it, and removes its target"
                        kind = FindingKind.UNTRUSTED
                    elif not _is_there(folder, target):
                        detail = f"{link} leads to a binary that is gone; darktable builds it again"
                        kind = FindingKind.LEFTOVER
                    else:
                        continue
                    yield self.told(self.root / name / link, Problem(kind, detail))

    def clear(self, checked: Checked) -> Checked:
        folder_name, _, link = str(Path(checked.entry).relative_to(self.root)).partition("/")
        with suppress(OSError), open_folder(self.root, folder_name) as folder:
            target = _links(folder).get(link, "")
            if re.fullmatch(_DIGEST, target) and not _is_there(folder, target):
                folder.unlink(link)
                return checked.fixed()
        return super().clear(checked)


def _links(folder: Folder) -> dict[str, str]:
    """The targets of the programs' links by name; empty for a node with such a name that is not a link."""
    return {
        one.name: folder.readlink(one.name) if one.is_symlink() else ""
        for one in folder.entries()
        if one.name.endswith(_NAME)
    }


def _leading(folder: Folder, binary: str) -> list[str]:
    return [name for name, target in _links(folder).items() if target == binary]


def _is_there(folder: Folder, name: str) -> bool:
    try:
        return stat.S_ISREG(folder.lstat(name).st_mode)
    except FileNotFoundError:
        return False
