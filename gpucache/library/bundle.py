"""The entries of a process as bytes, for processes without a disk, such as the ranks of an MPI program."""

from io import BytesIO

from gpucache.errors import FormatError
from gpucache.library import process, rows
from gpucache.library.missing import LATER
from gpucache.model import CacheKey, Entry, EntryDetail
from gpucache.store import layout
from gpucache.store.format import encode, parse
from gpucache.store.root_file import Member, members, packed


def bundle() -> bytes:
    """The entries that this process built or used so far, for ``restore`` in other processes.

    Waits for those that are still being stored. The bytes are a cache in one file; they contain no more than
    GPUCACHE_MEMORY_BYTES of entries, the last ones. Empty of entries where the cache is not used.
    """
    LATER.wait()
    stores = process.stores()
    for key in tuple(rows.used):
        stores.find([CacheKey(key)])  # which keeps it in memory
    found = []
    for one in stores.memory.all() if stores.memory is not None else ():
        details = (store.detail(one.key) for store in stores.on_disk())
        detail = next((each for each in details if each is not None), EntryDetail((), one.log))
        member = Member(layout.entry_folder(one.key), layout.entry_name(one.key), one.head.created_ns)
        found.append((member, encode(Entry(one.key, one.head, detail, one.payload))))
    return b"".join(packed(found))


def restore(data: bytes) -> int:
    """Keep the entries of a ``bundle`` in the memory of this process, where its programs then hit.

    Writes nothing. Returns how many entries are kept: fewer than there are if some are damaged, or larger
    together than GPUCACHE_MEMORY_BYTES, and none if the cache is not used; the log says why. The bytes have
    to come from where programs may come from: an entry that is sound is used.
    """
    stores = process.stores()
    if stores.memory is None or stores.disabled:
        process.say_once("no bundle is restored: GPUCACHE_DISABLE or GPUCACHE_MEMORY_BYTES=0 is set")
        return 0
    keys = []
    try:
        for member, file in members(BytesIO(data)):
            if member.is_entry:
                key = CacheKey(member.name.removesuffix(layout.ENTRY_SUFFIX))
                stores.memory.publish(parse(file, key))
                keys.append(key)
    except FormatError as error:
        process.say_once(f"a bundle is damaged, and is restored in part: {error}")
    kept = sum(key in stores.memory for key in keys)
    if kept < len(keys):
        process.say_once(f"{len(keys) - kept} entries of a bundle exceed GPUCACHE_MEMORY_BYTES; raise it")
    return kept
