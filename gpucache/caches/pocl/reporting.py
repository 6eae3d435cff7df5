"""One program with everything that its folder says of it."""

from collections.abc import Iterator
from contextlib import suppress

from gpucache import payload as payloads
from gpucache.caches import files
from gpucache.caches.pocl import entries, names
from gpucache.caches.pocl.checks import Subject
from gpucache.caches.pocl.entries import shown
from gpucache.caches.pocl.tree import Item, Role
from gpucache.errors import FormatError
from gpucache.model import KeyField
from gpucache.outcomes import CacheEntry, EntryReport
from gpucache.payload import elf
from gpucache.payload.bitcode import Module
from gpucache.units import format_size

LOG_BYTES = 64 << 10
_VARIANTS = 64
_NO_INPUTS = "PoCL stores neither source, options nor its own build time"


def report(entry: CacheEntry, subject: Subject) -> EntryReport:
    """The report of a program that reads; raises FormatError where its file is gone."""
    module = subject.module if isinstance(subject.module, Module) else None
    return EntryReport(
        entry,
        key_fields=tuple(_key_fields(subject, entry, module)),
        payload=tuple(_payload(subject)),
        build_log=_log(subject),
        provenance=(("compiled from", module.source),) if module and module.source else (),
    )


def _key_fields(subject: Subject, entry: CacheEntry, module: Module | None) -> Iterator[KeyField]:
    digits = len(entry.key)
    lost = ", of which the fourth digit is on no disk" if digits == 39 else ""
    yield KeyField(f"SHA-1{lost}", entry.key)
    yield KeyField("inputs", _NO_INPUTS)
    kernels = entries.kernels_of(subject.tree, module)
    for label, value in entries.fields(subject.tree, module, kernels):
        yield KeyField(label, value)


def _payload(subject: Subject) -> Iterator[tuple[str, str]]:
    program = subject.tree.program
    if program is not None:
        try:
            yield from payloads.describe(subject.read(program)).pairs
        except OSError as error:
            raise FormatError(f"{program.place} cannot be read ({error.strerror})") from error
    compiled = (*subject.tree.of(Role.BINARY), *subject.tree.of(Role.DEVICE))
    for item in compiled[:_VARIANTS]:
        variant = names.variant_of(*item.parts[:2]) if len(item.parts) > 1 else None
        label = f"{shown(names.short(variant.kernel))} {variant.words}" if variant else shown(item.place)
        yield label, f"{shown(item.parts[-1])}, {format_size(item.status.st_size)}{_compiler(subject, item)}"


def _compiler(subject: Subject, item: Item) -> str:
    if item.role is not Role.BINARY:
        return ""
    with suppress(OSError, FormatError):
        found = elf.read_exports(subject.read(item)).compilers
        return f", clang {', '.join(found)}" if found else ""
    return ""


def _log(subject: Subject) -> str:
    if not subject.tree.of(Role.LOG):
        return ""
    try:
        with files.open_folder(subject.root, subject.pair, subject.rest) as folder:
            return files.read_part(folder, names.LOG, 0, LOG_BYTES).decode("utf-8", "replace")
    except (OSError, FormatError):
        return ""
