"""The paths below a root. Pure names; does not access the disk.

    <root>/CACHEDIR.TAG
    <root>/v1/entries/<2 hex>/<64 hex>.gpc
    <root>/v1/log.jsonl  records.row, and what is being written, and locks
    <root>/v1/rows/<16 hex>.row  <64 hex>.memo
    <root>/v1/programs/<slug>-<8 hex of the name's SHA-256>.jsonl
    <root>/v1/removed.jsonl
    <root>/v1/missed/<64 hex>.json
    <root>/v1/quarantine/

Each directory and each file takes a block of the disk, so there are few. Older gpucaches have v1/tmp,
v1/locks, v1/journal/misses.jsonl, v1/programs/first-00000000.jsonl, v1/closures and v1/index besides.
Another format version has its own directory next to ``v1``, and is left alone.
"""

import re
from collections.abc import Mapping

from gpucache.model import CacheKey
from gpucache.store.tag import TAG_NAME

VERSION_FOLDER = "v1"
LIBRARIES, ENVIRONMENT = "lib", "gpucache.env"
"""In a layer, next to the root: its libraries, and the variables that make programs read it."""
RECORDS, RECORDS_SIGN = "gpucache", "gpucache-store"
"""In the image of a registry, next to the root: the records of a store, and the file that marks them."""
ENTRIES = (VERSION_FOLDER, "entries")
PROGRAMS = (VERSION_FOLDER, "programs")
BASE = TMP = LOCKS = LOG = (VERSION_FOLDER,)
QUARANTINE = (VERSION_FOLDER, "quarantine")
JOURNAL = (VERSION_FOLDER, "journal")
MISSED = (VERSION_FOLDER, "missed")
INDEX = (VERSION_FOLDER, "index")
ROWS = (VERSION_FOLDER, "rows")
HISTORY_SUFFIX = ".jsonl"
FIRST_HISTORY = f"first-00000000{HISTORY_SUFFIX}"
"""In which older gpucaches have the events of the first programs."""
LOG_NAME, RECORDS_NAME = "log.jsonl", "records"
REMOVED_NAME = "removed.jsonl"
JOURNAL_NAME = "misses.jsonl"
ENTRY_SUFFIX, LOCK_SUFFIX = ".gpc", ".lock"
MISSED_LOCK, ROWS_LOCK = "missed.lock", "rows.lock"
"""The locks of the single process that builds the missed requests of a root, or replaces rows."""
_HEX = "0123456789abcdef"
# Compiled on first use, as a command needs few of them.
_VERSION = r"v[0-9]{1,4}"
_HISTORY = rf"[a-z0-9-]{{1,40}}-[0-9a-f]{{8}}{re.escape(HISTORY_SUFFIX)}"
_PREFIX = r"[0-9a-f]{2,64}"
_SLUG_LENGTH = 40
_DIGEST_LENGTH = 8
_PARTIAL = (
    r"[0-9]{1,10}-[0-9a-f]{16}"
    rf"(-([0-9a-f]{{64}}\.(gpc|json|memo)|([0-9a-f]{{16}}|records)\.row|[0-9a-f]{{16}}\.idx|{_HISTORY}|(misses|removed|log)\.jsonl|targets\.json)"
    r"|\.history)"
)
_LOCK = r"([0-9a-f]{64}|missed|rows)\.lock"
BESIDE: Mapping[tuple[str, ...], str] = {
    BASE: rf"{_PARTIAL}|{_LOCK}|{re.escape(LOG_NAME)}|{RECORDS_NAME}\.row",
    (VERSION_FOLDER, "tmp"): _PARTIAL,
    (VERSION_FOLDER, "locks"): _LOCK,
    QUARANTINE: r"[0-9]{20}-.+\.gpc",
    JOURNAL: r"misses(\.1)?\.jsonl",
    (VERSION_FOLDER, "closures"): r"[0-9a-f]{64}\.memo",
    MISSED: r"[0-9a-f]{64}\.json",
    PROGRAMS: _HISTORY,
    INDEX: r"[0-9a-f]{16}\.idx",
    ROWS: r"[0-9a-f]{16}\.row|[0-9a-f]{64}\.memo",
}
"""The directories next to the entries, each with the pattern of its file names."""


def entry_folder(key: CacheKey) -> tuple[str, ...]:
    """The directory of an entry, as parts below the root; raises ValueError if the key is invalid."""
    if len(key.hex) != 64 or key.hex.strip(_HEX):
        raise ValueError(f"{key.hex!r} is not a cache key of 64 lower-case hex digits")
    return (*ENTRIES, key.hex[:2])


def entry_name(key: CacheKey) -> str:
    return f"{key.hex}{ENTRY_SUFFIX}"


def lock_name(key: CacheKey) -> str:
    return f"{key.hex}{LOCK_SUFFIX}"


def fits(folder: str, name: str) -> bool:
    """Whether a file of this name belongs in this directory of ``entries/``."""
    stem = name.removesuffix(ENTRY_SUFFIX)
    return len(stem) == 64 and len(name) > 64 and stem[:2] == folder and not stem.strip(_HEX)


def is_in_root(name: str) -> bool:
    """Whether some version of gpucache uses this name directly in its root."""
    return name in (TAG_NAME, LIBRARIES, ENVIRONMENT) or re.fullmatch(_VERSION, name) is not None


def is_beside(place: tuple[str, ...], name: str) -> bool:
    """Whether a file in one of the directories of ``BESIDE`` has a name that we give."""
    return re.fullmatch(BESIDE[place], name) is not None


def is_left(name: str) -> bool:
    """Whether a file is one that is being written, or a lock."""
    return re.fullmatch(rf"{_PARTIAL}|{_LOCK}", name) is not None


def is_prefix(text: str) -> bool:
    """Whether a text can be the beginning of a key and is long enough to name its directory."""
    return re.fullmatch(_PREFIX, text) is not None


def history_name(program: str) -> str:
    """The file name of a program's history: readable, and unique by its digest."""
    from gpucache.keys import digest  # not needed by a scan

    slug = re.sub(r"[^a-z0-9]+", "-", program.lower()).strip("-")[:_SLUG_LENGTH] or "program"
    return f"{slug}-{digest(program.encode('utf-8', 'surrogatepass'))[:_DIGEST_LENGTH]}{HISTORY_SUFFIX}"


def program_digest(history: str) -> str:
    """The digest of a program's name, taken from the file name of its history."""
    return history.removesuffix(HISTORY_SUFFIX)[-_DIGEST_LENGTH:]
