"""rocFFT's databases and images written for other machines: merged, as an image, or restored from one.

Puts together what the command line asks for and what ``transfer`` and ``images`` do.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from gpucache.answers.entries import Location
from gpucache.answers.export import Exported
from gpucache.caches.exports import Asked, Form, Kind, Option
from gpucache.caches.registry import of_others
from gpucache.caches.rocfft.images import restore, write_image
from gpucache.caches.rocfft.locations import NAME
from gpucache.caches.rocfft.schema import parse_hip
from gpucache.caches.rocfft.transfer import Filters, merge
from gpucache.errors import UsageError

_LIKE = Option(
    "--like",
    Kind.FIELD,
    "rocfft: only rows with this arch, hip_version or generator_sum; may be given again.",
    "FIELD=VALUE",
    many=True,
    remedy="write it as arch=gfx90a",
)
_KEEP_TIMES = Option("--keep-times", Kind.FLAG, "rocfft: keep the rows' times, which makes files differ.")
_INTO = Option(
    "--into", Kind.FLAG, "rocfft: add to OUT, which is there, and replace older rows; times are kept."
)


def _merged(asked: Asked) -> Exported:
    """Merge databases and images into one; raises UsageError, FormatError or CacheUnusableError."""
    like, keep_times, into = (asked.options[one.name] for one in (_LIKE, _KEEP_TIMES, _INTO))
    done = merge(
        asked.sources, asked.out, filters=_filters(like), keep_times=keep_times or into, into_existing=into
    )
    counts = {
        "left out for a newer one with the same key": done.older,
        "left out by --like": done.filtered,
        "left out as unsound": done.unsound,
        "that took the place of an older one": done.replaced,
    }
    notes = tuple(
        f"{number} {'row' if number == 1 else 'rows'}: {what}." for what, number in counts.items() if number
    )
    sources_told = tuple((str(source.path), source.written) for source in done.sources)
    size_bytes = asked.out.stat().st_size
    return Exported(NAME, str(asked.out), done.rows, size_bytes, sources_told, notes=notes)


def _image(asked: Asked) -> Exported:
    return _copied("rocfft-image", write_image, asked)


def _restored(asked: Asked) -> Exported:
    return _copied("rocfft-restore", restore, asked)


def _copied(form: str, write: Callable[[Path, Path], int], asked: Asked) -> Exported:
    """A database as an image, or the other way; raises UsageError, FormatError or CacheUnusableError."""
    if len(asked.sources) != 1:
        raise UsageError(f"{form} takes one SOURCE, and {len(asked.sources)} are named; merge them first")
    (source,) = asked.sources
    size_bytes = write(source, asked.out)
    opened = of_others(NAME).open(Location(NAME, str(asked.out), "OUT", enabled=True))
    entries = sum(1 for _ in opened.scan())
    return Exported(NAME, str(asked.out), entries, size_bytes, ((str(source), entries),))


FORMS = (
    Form(
        "rocfft",
        "the SOURCEs are databases or images, merged into one database whose bytes depend on its rows alone.",
        (_LIKE, _KEEP_TIMES, _INTO),
        _merged,
    ),
    Form("rocfft-image", "one database as an image for nodes without a disk;", (), _image),
    Form("rocfft-restore", "an image as a database again.", (), _restored),
)


def _filters(like: Sequence[tuple[str, str]]) -> Filters:
    unknown = [label for label, _ in like if label not in ("arch", "hip_version", "generator_sum")]
    if unknown:
        raise UsageError(
            f"--like {unknown[0]}: a row has arch, hip_version and generator_sum; name one of these"
        )
    values = {name: [value for label, value in like if label == name] for name, _ in like}
    return Filters(
        frozenset(values.get("arch", ())),
        frozenset(map(parse_hip, values.get("hip_version", ()))),
        frozenset(map(_sum, values.get("generator_sum", ()))),
    )


def _sum(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise UsageError(f"--like generator_sum={text} is not hex; copy it from 'gpucache inspect'") from None
