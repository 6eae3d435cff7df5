"""Limits of libsycl's cache that what is stored shows to be wrong.

Owns the questions that need both the environment and the entries. Must not change anything.
"""

from collections.abc import Iterator
from pathlib import Path

from gpucache.caches.sycl import environment, slots, totals, tree
from gpucache.caches.sycl.environment import MAX_IMAGE, MAX_SIZE, MIN_IMAGE, Bounds, SyclLocation
from gpucache.caches.sycl.naming import Family, Group
from gpucache.errors import FormatError
from gpucache.units import format_size


def problems(location: SyclLocation) -> Iterator[str]:
    """What is wrong with the limits of a place, each with the line that mends it. Raises nothing."""
    root = Path(location.root)
    if location.limit_bytes is not None and location.limit_bytes >= environment.LITTLE_BYTES:
        yield from _too_small(root, location.limit_bytes)
    if location.bounds != Bounds():
        yield from _keeping_out(root, location.bounds)


def _too_small(root: Path, limit_bytes: int) -> Iterator[str]:
    stored = totals.summed_bytes(root)
    if stored > limit_bytes:
        yield (
            f"the limit is too small: {format_size(stored)} are stored and {MAX_SIZE} allows "
            f"{format_size(limit_bytes)}, so libsycl evicts when the next entry is added; "
            f"export {MAX_SIZE}={2 * stored}"
        )


def _keeping_out(root: Path, bounds: Bounds) -> Iterator[str]:
    """A sentence where no stored image would be cached now."""
    count = 0
    for size_bytes in _image_sizes(root):
        if not bounds.refusal(size_bytes):
            return
        count += 1
    if count:
        names = [MIN_IMAGE] * bool(bounds.min_bytes) + [MAX_IMAGE] * (bounds.max_bytes != Bounds().max_bytes)
        yield (
            f"{' and '.join(names)} keep out the images of all {count} entries that are stored, so programs "
            f"compile them at every run; unset {' '.join(names)}"
        )


def _image_sizes(root: Path) -> Iterator[int]:
    for group in tree.walk(root):
        if isinstance(group, Group) and group.family is Family.PROGRAM:
            yield from _of_group(root, group)


def _of_group(root: Path, group: Group) -> Iterator[int]:
    try:
        with tree.open_group(root, group) as folder:
            for stem in tree.listing(folder).stems:
                slot = slots.look(folder, group, stem)
                if slot.source is not None:
                    try:
                        yield slots.source_of(folder, slot)[0].images.length
                    except FormatError:
                        continue
    except OSError:
        return
