"""darktable's kernel caches for tests, by its own rules from given bytes."""

from functools import partial
from hashlib import md5
from pathlib import Path

from tests.caches.opened import PTX, Cases, Environs, changed, lay

FOLDER = "cached_v4_kernels_for_NVIDIAGeForceRTX4090_5505414"


def put(root: Path, number: int = 0, data: bytes = PTX) -> Path:
    """Lay the binary of a program, and the link to it; the binary."""
    path = lay(root / FOLDER / md5(b"%d" % number).hexdigest(), data)
    path.with_name(f"program{number}.cl.bin").symlink_to(path.name)
    return path


def _links(path: Path) -> None:
    path.with_name("gone.cl.bin").symlink_to("0" * 32)
    path.with_name("out.cl.bin").symlink_to("../../thesis.tex")


CASES: Cases = {
    "a binary": changed(put, lambda path: (path.parent.parent / "mipmaps-0123.d").mkdir()),
    "empty": partial(put, data=b""),
    "cut": partial(put, data=PTX[:-3]),
    "another format": partial(put, data=b"garbage"),
    "no link to it": changed(put, lambda path: path.with_name("program0.cl.bin").unlink()),
    "links to nowhere and out": changed(put, _links),
}
PLACES: Environs = {
    "of a Flatpak": (
        {"HOME": "{tmp}", "XDG_CACHE_HOME": "{tmp}/mine"},
        ".var/app/org.darktable.Darktable/cache/darktable",
    ),
}
