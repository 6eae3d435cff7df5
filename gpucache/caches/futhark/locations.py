"""Where Futhark's cache files are: wherever people name them, and nowhere by default."""

import os
from collections.abc import Iterator
from pathlib import Path

from gpucache.caches.places import Place, Places


class FutharkPlaces(Places):
    """No own place."""

    name = "futhark"
    title = "Futhark cache files"
    owner = "Futhark"
    place = Place(
        (),
        remedy="name another file with --cache-file",
        nowhere="Futhark keeps a cache only where --cache-file names one; give that file",
        lacking="Futhark names its cache file by --cache-file alone; give the program its own file "
        "there, or none",
        makes=False,
        opt_in=False,
    )

    @classmethod
    def at_place(cls, root: Path) -> Iterator[str]:
        """Of the directory, which Futhark does not make: it fails to write without a word but in its log."""
        return super().at_place(folder_of(root))


def folder_of(root: Path) -> Path:
    """The directory that a location is, or is in. Raises nothing."""
    # Path.is_dir raises below a directory that may not be entered.
    return root if os.path.isdir(root) else root.parent  # noqa: PTH112
