"""darktable's kernels: a folder for each device and driver, and in it a binary and a link for each program.

Source: darktable 4.2 to 5.4, ``src/common/opencl.c``; checked against what 4.2 wrote. A folder
``cached_v1_kernels_for_DEVICE_DRIVER`` (without ``v1`` before 4.4) has what the driver gave as the binary, in
a file called by an MD5 of the program's source, the headers, the options and the driver, and ``NAME.cl.bin``,
a link to it whose target darktable compares with that. A binary that the driver refuses, or that no link of
that target leads to, is built again and replaced. All is written in place, without a lock, and folders of
drivers that are gone stay.
"""

import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from gpucache.answers.entries import FindingKind, Problem
from gpucache.answers.evict import Kept
from gpucache.answers.verify import Checked
from gpucache.caches.files import Files, open_folder
from gpucache.caches.files_format import OF_OPENCL, BinaryFormat
from gpucache.caches.format import HOUR_NS, Look
from gpucache.caches.layout import Layout, hashed
from gpucache.caches.systems import DarktablePlaces
from gpucache.folders import Folder

_FOLDER = r"(cached_(?:v\d+_)?kernels_for_\w+)"
_DIGEST, _NAME = "[0-9a-f]{32}", ".cl.bin"


class Darktable(DarktablePlaces, BinaryFormat):
    """What darktable built for the devices of this machine."""

    layout = Layout(
        [f"{_FOLDER}/({_DIGEST})"],
        own=[rf"{_FOLDER}/.+\.cl\.bin", r"mipmaps-.+", r"mipmaps-.+/"],
        signs=[_FOLDER],
        key=lambda groups: groups[1] + hashed(groups[:1])[:8],
    )
    wanted = {"key": "the MD5 that a file is called by, or hex digits of an entry"}
    opaque = (
        "its entries keep a digest of what their keys were made from, and nothing else; "
        "'darktable -d opencl' tells which files it looks for and builds"
    )
    absent = "no entry has this key: it was never built here, or another build of its program took its place"
    served = "darktable would hand it to the driver"
    key_digits = 40
    folders_removed = 1
    kinds = OF_OPENCL
    consequence = (
        "darktable builds again what the driver refuses; where that takes it and fails later, darktable goes "
        "without OpenCL at every start"
    )
    shows = "a GPU binary"

    def look(self, item: Files) -> Look:
        """The program whose link leads to it, with device and driver as the folder's name says them."""
        found = super().look(item)
        device, _, driver = item.parts[-1].partition("kernels_for_")[2].rpartition("_")
        with item.open() as folder:
            programs = _leading(folder, item.names[0])
        problem = found.problem
        if not programs and item.written_ns < self.now_ns() - HOUR_NS:
            detail = "no link leads to it, so darktable builds its program again"
            problem = problem or Problem(FindingKind.ORPHAN, detail)
        return replace(
            found,
            program=programs[0].removesuffix(_NAME) if programs else "",
            target=device,
            fields=(("driver", driver),),
            problem=problem,
            toolchain=((f"the driver of {device}", driver),),
        )

    def check(self, item: Files) -> Iterator[Problem]:
        """What it holds, and that a link leads to it."""
        problems = list(super().check(item))
        problem = self.look(item).problem
        yield from problems or filter(None, [problem])

    def remove(self, item: Files) -> Kept | None:
        """The binary, after what leads to it."""
        if not item.unchanged():
            return Kept()
        with item.open() as folder:
            for name in _leading(folder, item.names[0]):
                folder.unlink(name)
        return super().remove(item)

    def whole(self) -> Iterator[Checked]:
        """What is called as a program's link and leads to no binary beside it."""
        with open_folder(self.root) as top:
            names = sorted(one.name for one in top.entries() if re.fullmatch(_FOLDER, one.name))
        for name in names:
            with suppress(OSError), open_folder(self.root, name) as folder:
                for link, target in sorted(_links(folder).items()):
                    if not re.fullmatch(_DIGEST, target):
                        detail = f"{link} leads to no binary; darktable follows it, and removes what it names"
                        kind = FindingKind.UNTRUSTED
                    elif not _is_there(folder, target):
                        detail = f"{link} leads to a binary that is gone; darktable builds it again"
                        kind = FindingKind.LEFTOVER
                    else:
                        continue
                    yield self.told(self.root / name / link, Problem(kind, detail))

    def clear(self, checked: Checked) -> Checked:
        """Remove a link to a binary that is gone."""
        folder_name, _, link = str(Path(checked.entry).relative_to(self.root)).partition("/")
        with suppress(OSError), open_folder(self.root, folder_name) as folder:
            target = _links(folder).get(link, "")
            if re.fullmatch(_DIGEST, target) and not _is_there(folder, target):
                folder.unlink(link)
                return checked.mended()
        return super().clear(checked)


def _links(folder: Folder) -> dict[str, str]:
    """By name where the links of programs lead; empty for what is called so and is no link."""
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


FORMAT = Darktable
