"""The CUDA driver's compute cache: of all that the driver compiles, opaque, so one entry as a whole.

It is the cache of PTX, of NVIDIA's OpenCL programs and, from 12.9 on, of NVRTC's, and lies under the caches
of all frameworks, so one that was emptied may still be served from here. Source of the variables: CUDA
Programming Guide, "CUDA Environment Variables"; what the driver makes of values that the guide does not
provide for is not known, and is said to be so. ``survey`` has the layout, as far as listings show it.
"""

from collections.abc import Iterator
from pathlib import Path

from gpucache.answers.entries import CacheEntry, EntryReport, FindingKind, Problem
from gpucache.answers.evict import ALL, Kept
from gpucache.answers.verify import Checked
from gpucache.caches.cuda_driver.survey import BINARY, INDEX, KEY, Survey, clear, survey
from gpucache.caches.files import open_folder
from gpucache.caches.format import SECOND_NS, Format, Look, UnjudgedError
from gpucache.caches.layout import Layout, Whose
from gpucache.caches.systems import (
    CUDA_MAXSIZE,
    CUDA_MOST_BYTES,
    CUDA_PATH,
    CudaDriverPlaces,
)
from gpucache.errors import FormatError
from gpucache.model import KeyField
from gpucache.units import format_size

_BUSY_NS = 60 * SECOND_NS
_NEARLY_FULL = 0.9
_PROGRAM = "(opaque: the whole cache)"
_FOREIGN = (
    "this is no cache of the CUDA driver, as it has neither its index nor its layout, so nothing in it is "
    "looked at or removed; name the folder of one"
)
_UNPROVEN = (
    "nothing there is named as only the driver names its files: an index and plain numbers are what others "
    "have as well, so nothing is removed; remove it yourself if it is the driver's"
)


class CudaDriver(CudaDriverPlaces, Format[Survey]):
    """The tree below one root; a driver makes anew what it lacks, but whether it stands the loss of single
    files is not documented, so it is emptied whole or not at all, and nothing in it is mended."""

    item = Survey
    mends = frozenset()
    opaque = (
        "what the driver's keys are made from is not documented, and a new driver starts anew; "
        "gpucache.cuda.compile_program keeps a cubin that needs no such cache, and explains its misses"
    )

    @classmethod
    def whose(cls, path: Path) -> Whose:
        """The driver's with an index and a binary, or with either in a folder of the driver's name."""
        with open_folder(path) as folder:
            index = any(
                found.name == INDEX and found.is_file(follow_symlinks=False) for found in folder.entries()
            )
        binary = Layout(BINARY.pattern).whose(path) is Whose.OWN
        own = (index and binary) or (path.name == "ComputeCache" and (index or binary))
        return Whose.OWN if own else Whose.UNKNOWN

    def items(self, prefix: str) -> Iterator[Survey]:
        """The whole cache; none where it holds no files."""
        if not KEY.startswith(prefix):
            return
        found = self._survey()
        if found.unread.count:
            self.closed_folders[self.root] = (
                f"in {self.root} {found.unread} could not be read; fix their permissions"
            )
        if found.files:
            yield found

    def look(self, item: Survey) -> Look:
        """How much there is."""
        fields = {
            "files": str(item.files),
            "bytes": str(item.apparent_bytes),
            "index": "present" if item.has_index else "missing",
            "files of unusual names": str(item.strangers.count),
        }
        return Look(
            _PROGRAM,
            fields=tuple(fields.items()),
            problem=None if item.foreign else next(_untrusted(item), None),
            used_ns=item.newest_ns,
            stays=self._stays(item),
            indivisible=f"the driver bounds this cache itself: set {CUDA_MAXSIZE}; {ALL} removes it whole",
        )

    def check(self, item: Survey) -> Iterator[Problem]:  # noqa: ARG002 - the tree as it is now is checked
        """Links, owners and modes in the tree."""
        found = self._survey()
        if not found.files:
            raise FileNotFoundError(str(self.root))
        if found.foreign:
            raise UnjudgedError(f"{self.root}: {_FOREIGN}")
        yield from _untrusted(found)

    def notes(self, item: Survey) -> Iterator[str]:  # noqa: ARG002 - of any
        """That the rest cannot be checked."""
        yield (
            "the driver's format is not documented, so nothing in it can be checked but owners, modes and "
            "sizes"
        )

    def unchanged(self, item: Survey) -> bool:  # noqa: ARG002 - ``remove`` compares what it looked at itself
        """Its programs add files at any time, which makes nothing of what was seen untrue."""
        return True

    def payload(self, item: Survey) -> bytes:
        """Refused."""
        raise FormatError(f"{item.path} is opaque: the driver's format is not documented; copy it whole")

    def report(self, item: Survey, entry: CacheEntry) -> EntryReport:  # noqa: ARG002 - a scan tells all
        """How much there is, and that no more can be told."""
        return EntryReport(entry, (KeyField("key", "opaque: its format is not documented"),), entry.fields)

    def remove(self, item: Survey) -> Kept | None:
        """Empty the cache where no program uses it and nothing of others lies in it."""
        now_ns = self.now_ns()
        found = survey(self.root, now_ns, None)
        if why := self._stays(found):
            return Kept(why)
        if not found.same(item):
            return Kept()
        failed = clear(self.root, now_ns)
        if failed.count:
            told = f"{failed.count} of its files could not be removed ({failed.first[0]})"
            return Kept(f"{told}; mend their rights")
        return None

    def whole(self) -> Iterator[Checked]:
        """Its limit, its index, and what writers left behind."""
        for problem in _worth_knowing(self._survey(), self.location.limit_bytes):
            yield self.told(self.root, problem, program=_PROGRAM)

    def _survey(self) -> Survey:
        return survey(self.root, self.now_ns(), self.location.limit_bytes)

    def _stays(self, found: Survey) -> str:
        """Why the cache is not emptied, as a clause; empty where it may be."""
        if found.foreign:
            return _FOREIGN
        if found.strangers.count:
            others = f" and {found.strangers.count - 1} more like it" if found.strangers.count > 1 else ""
            return (
                f"{found.strangers.first[0]!r}{others} in {self.root} is not named as the driver names its "
                f"files, so nothing there is removed; move that elsewhere, or set {CUDA_PATH} to a folder "
                "that only the driver uses"
            )
        if not found.telling:
            return _UNPROVEN
        if abs(self.now_ns() - found.newest_ns) < _BUSY_NS:
            return "a program is using it: it changed within the last minute; end that, or wait"
        return ""


def _untrusted(found: Survey) -> Iterator[Problem]:
    if found.links.count:
        detail = f"{found.links}: no regular file, which the driver does not make; remove what it did not"
        yield Problem(FindingKind.UNTRUSTED, detail)
    if found.distrusted.count:
        detail = (
            f"{found.distrusted}: not to be believed, and the driver loads it; mend that, or empty the cache"
        )
        yield Problem(FindingKind.UNTRUSTED, detail)


def _worth_knowing(found: Survey, limit_bytes: int | None) -> Iterator[Problem]:
    if found.foreign:
        yield Problem(FindingKind.UNSUPPORTED, _FOREIGN)
        return
    if limit_bytes is not None:
        yield from _near_the_limit(found, limit_bytes)
    if found.binaries and not found.has_index:
        detail = "its file 'index' is missing, so programs may not find the binaries in it"
        yield Problem(FindingKind.ORPHAN, detail, "'gpucache evict --cache cuda --all' empties it")
    elif found.has_index and not found.binaries:
        yield Problem(FindingKind.ORPHAN, "it holds an index and no binaries, so programs compile anew")
    if found.temporary.count:
        yield Problem(FindingKind.LEFTOVER, f"{found.temporary}: temporary and over an hour old")
    if found.empty.count:
        detail = "empty, as a program leaves them that is stopped while it writes a binary"
        yield Problem(FindingKind.LEFTOVER, f"{found.empty}: {detail}")
    if found.unread.count:
        yield Problem(FindingKind.UNSUPPORTED, f"{found.unread}: a folder that was not looked into")


def _near_the_limit(found: Survey, limit_bytes: int) -> Iterator[Problem]:
    raising = limit_bytes < CUDA_MOST_BYTES
    remedy = (
        f"raise {CUDA_MAXSIZE}, at most to {CUDA_MOST_BYTES}"
        if raising
        else f"give programs caches of their own by {CUDA_PATH}"
    )
    if found.oversize.count:
        detail = (
            f"{found.oversize}: larger than the whole limit of {format_size(limit_bytes)}; the driver does "
            f"not cache what is, so that a program compiles it at every start: {remedy}"
        )
        yield Problem(FindingKind.STALE, detail)
    if found.binaries and found.apparent_bytes >= _NEARLY_FULL * limit_bytes:
        told = f"{format_size(found.apparent_bytes)} of {format_size(limit_bytes)} are used"
        if found.recent * 2 >= found.binaries:
            told += (
                f" and {found.recent} of {found.binaries} binaries are less than an hour old: programs evict "
                "each other's binaries at every start"
            )
        else:
            told += ": old binaries are evicted for new ones, and their programs compile anew"
        yield Problem(FindingKind.STALE, told, remedy)


FORMAT = CudaDriver
