"""The heart: request -> keys -> memory -> store -> system stores -> (single flight) compile -> publish.

Owns the order in which a program is looked up, built and kept. A miss is explained once, where it is
reported. The library calls this for one program, ``warm`` for many. Must not know how anything is compiled or
stored.

Also notes the misses for which a program does not wait: a compiler that builds late (PoCL) compiles every
kernel when it has to return a binary, which takes seconds in place of milliseconds, and a crash would end the
calling program. So the caller requests no binary, and ``warm --misses`` builds it later.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpucache import __version__
from gpucache.answers.lookup import Built, Hit, Miss, Noted, Plain, Verdict
from gpucache.backends.installation import replaced_file
from gpucache.engine.explain import explain
from gpucache.engine.hits import WAIT_S, alone, kept_log
from gpucache.engine.hits import find as find
from gpucache.engine.prepare import Prepared, closure_of, holds_paths, stamped
from gpucache.engine.stores import Stores, not_kept, note_miss, record_build
from gpucache.errors import CacheMissError, CacheUnusableError
from gpucache.keys import digest
from gpucache.model import Artifact, BuildRequest, Check, Checks, Entry, EntryDetail, EntryHead
from gpucache.payload import describe, fits
from gpucache.sources import still_closure
from gpucache.store.interface import MissedRequest
from gpucache.units import format_list

if TYPE_CHECKING:
    from gpucache.store.directory import DirectoryStore

LOG_LIMIT = 64 * 1024


def look_up(stores: Stores, prepared: Prepared, *, whole: bool = False) -> Hit | Miss:
    """The result of ``find``, or an explained miss, for a caller that reports it."""
    found = find(stores, prepared, whole=whole)
    if isinstance(found, Hit):
        return found
    return explain(stores, prepared, found)


def get_or_build(stores: Stores, prepared: Prepared, compile_: Callable[[], Artifact]) -> Hit | Built:
    """A sound entry, or a fresh artifact that was published if it could be.

    Raises CacheMissError if the settings require a hit, and the errors of ``compile_``. Trouble with the
    cache itself raises nothing: ``Built.note`` reports it.
    """
    found = look_up(stores, prepared, whole=True)
    if isinstance(found, Hit):
        return found
    require_hit(stores, prepared, found)
    return build(stores, prepared, compile_, found)


def require_hit(stores: Stores, prepared: Prepared, miss: Miss) -> None:
    """If the settings require a hit, write the miss down and raise CacheMissError."""
    if stores.require:
        note_miss(stores, prepared, miss)
        raise CacheMissError(
            f"{prepared.request.program.name} for {prepared.request.target} is not in the cache, and "
            f"GPUCACHE_REQUIRE is set: {miss.verdict}: {miss.detail}"
        )


def build(
    stores: Stores,
    prepared: Prepared,
    compile_: Callable[[], Artifact],
    miss: Miss,
    *,
    wait_s: float = WAIT_S,
    useless: Hit | None = None,
) -> Hit | Built:
    """Compile after a miss, in only one of all processes that want the key, and publish: see ``alone``."""
    prepared = stamped(prepared, stores)
    with alone(stores, prepared, wait_s=wait_s, useless=useless) as published:
        if published is not None:
            return published
        artifact = compile_()
        return keep(stores, prepared, artifact, miss, changed_headers(stores, prepared))


def keep(stores: Stores, prepared: Prepared, artifact: Artifact, miss: Miss, changed: str | None) -> Built:
    """Publish the artifact that was compiled after a miss, if the cache can store it.

    ``changed`` is the result of ``changed_headers`` right after the compile.
    """
    store = stores.target
    if store is None or miss.verdict is Verdict.UNCACHEABLE:
        note, told = why_not_kept(stores, miss)
        return Built(artifact, miss, None, note=note, told_by_miss=told)
    return publish(stores, store, prepared, artifact, miss, changed)


def publish(
    stores: Stores,
    store: "DirectoryStore",
    prepared: Prepared,
    artifact: Artifact,
    miss: Miss,
    changed: str | None,
    *,
    records: bool = True,
) -> Built:
    """Store the compiled artifact. If that is not possible, the note of the result says why.

    Unless it ``records`` the build in the program's history, the caller does.
    """
    if artifact.uncovered:
        unseen = (
            f"the compiler read {format_list(artifact.uncovered)}, which the key does not cover; "
            f"{prepared.request.name_headers}"
        )
        return Built(artifact, Miss(Verdict.UNCACHEABLE, unseen), None, note=unseen, told_by_miss=True)
    if artifact.refusal is not None:
        return Built(artifact, miss, None, note=f"{artifact.refusal}, so it was not kept")
    if changed is not None:
        return Built(artifact, miss, None, note=f"{changed} while it was compiled, so it was not kept")
    wrong: str | None = "it is empty"
    if artifact.payload:
        info = describe(artifact.payload)
        wrong = info.problem or fits(info, artifact.kind.value, str(prepared.request.target))
    if wrong is not None:
        return Built(
            artifact, miss, None, note=f"the compiler's result is damaged, so it was not kept: {wrong}"
        )
    entry = entry_of(prepared, artifact)
    try:
        store.publish(entry)
    except (OSError, CacheUnusableError) as error:
        return Built(artifact, miss, None, note=not_kept(store.root, error), publish_failed=True)
    stores.keep_in_memory(entry)
    if records:
        record_build(store, prepared.request.program, entry)
    if stores.remote is not None:
        stores.remote().send(entry)
    if stores.trim is not None:
        with suppress(OSError, CacheUnusableError):
            stores.trim()
    return Built(artifact, miss, entry.key, entry=entry)


def changed_headers(stores: Stores, prepared: Prepared) -> str | None:
    """The headers that changed since ``stamped``, or were different for a while; None if none did.

    Also a file of the compiler that another one replaced before it was read.

    Ask before the program goes on: it may remove headers that it wrote for one compile. Directories that
    contain the cache's own root do not count: they change when the root is made.
    """
    if stores.target is None:
        return None
    if (file := replaced_file()) is not None:
        return f"the compiler's file {file.name} changed"
    before, root = prepared.closure, stores.target.root
    now = still_closure(before) or closure_of(prepared.request, prepared.compilation, stores)
    names = {include.name for include in {*before.includes} ^ {*now.includes}}
    moved = {path for path, _ in {*(before.stamps or ())} ^ {*(now.stamps or ())}}
    files = sorted(names or (path for path in moved if not path.endswith("/")))
    if files:
        return f"the header{'s' * (len(files) > 1)} {format_list(files)} changed"
    place = root.resolve() if moved else root
    folders = sorted(path for path in moved if not place.is_relative_to(Path(path).resolve()))
    if folders:
        return f"the directory {folders[0]} changed"
    return None if before == now else "a header changed"


def entry_of(prepared: Prepared, artifact: Artifact) -> Entry:
    """The entry of an artifact that was compiled from a request."""
    request, inputs = prepared.request, prepared.compilation.inputs
    log = kept_log(prepared, artifact.build_log)
    located = holds_paths(prepared, artifact.payload, (log, *artifact.lowered_names.values()))
    path = request.program.path
    head = EntryHead(
        program=request.program.name,
        target=str(request.target),
        artifact_kind=artifact.kind.value,
        created_ns=time.time_ns(),
        compile_ns=artifact.compile_ns,
        payload_sha256=digest(artifact.payload),
        language=request.program.language.value,
        variant=request.variant,
        options=inputs.options,
        local_sizes=inputs.local_sizes,
        located=located,
        lowered_names=artifact.lowered_names,
        toolchain=inputs.toolchain.fields,
        toolchain_identity=inputs.toolchain.identity,
        place="" if path is None else digest(os.fsencode(os.path.realpath(path)))[:16],
        has_log=bool(artifact.build_log),
        checks=request.checks.value,
        failures=_failures(request),
    )
    fields = prepared.located if located else prepared.fields
    detail = EntryDetail(fields, log[:LOG_LIMIT], __version__, provenance(prepared))
    return Entry(prepared.located_key if located else prepared.key, head, detail, artifact.payload)


def _failures(request: BuildRequest) -> tuple[Check, ...]:
    if request.checks is Checks.NONE:
        return ()
    from gpucache.checks.calls import instrumented  # few programs have checks, and all would wait for it

    return instrumented(request).table


def provenance(prepared: Prepared) -> tuple[tuple[str, str], ...]:
    """A build's source file, include directories, named headers and options; empty if built from memory."""
    request = prepared.request
    if request.program.path is None:
        return ()
    folders = (("include directory", place) for place in prepared.compilation.include_dirs)
    headers = (("named header", header) for header in request.headers)
    options = (("build option", option) for option in request.options)
    return (("source file", str(request.program.path)), *folders, *headers, *options)


def why_not_kept(stores: Stores, miss: Miss) -> tuple[str, bool]:
    """Why nothing is kept after a miss, in one sentence, and whether the miss itself says so."""
    if miss.verdict in (Verdict.UNCACHEABLE, Verdict.NOT_CONSULTED):
        return miss.detail, True
    if stores.read_only:
        return "GPUCACHE_READ_ONLY is set, so it was not kept", False
    if stores.unusable:  # an explanation names every root that could not be queried
        return stores.unusable, miss.verdict not in (Verdict.REJECTED, Verdict.INCOMPLETE)
    return "the cache cannot be written, so it was not kept", False


Variables = tuple[tuple[str, str], ...]
LATE = "this compiler needs seconds to give a binary, so the program was built as without a cache"


def leave(
    stores: Stores,
    prepared: Prepared,
    miss: Miss,
    compile_ns: int,
    environment: Variables = (),
    question: tuple[str, ...] = (),
) -> Plain:
    """Write down a miss whose program was built without the cache; for a late compiler note its request.

    ``environment`` are the variables that reach the compiler, ``question`` is as ``MissedRequest`` has it.
    """
    noted, told = Noted.NONE, False
    why = LATE if prepared.compilation.late else ""
    if stores.target is None or miss.verdict is Verdict.UNCACHEABLE:
        why, told = why_not_kept(stores, miss)
    elif prepared.compilation.late:
        rejected = miss.verdict is Verdict.REJECTED
        missed = _missed(stores, prepared, environment, question, rejected=rejected)
        noted = stores.target.missed.note(missed)
        if not noted.is_kept:
            why = (
                f"{LATE}, and its request could not be noted for 'gpucache warm --misses': "
                f"{stores.target.root} cannot be written, or the request is larger than 8 MiB"
            )
    note_miss(stores, prepared, miss, noted=noted.is_kept)
    return Plain(miss, compile_ns, noted, why, told)


def note_lacking(
    stores: Stores,
    prepared: Prepared,
    found: Hit | None,
    environment: Variables = (),
    question: tuple[str, ...] = (),
) -> Noted:
    """Note a request for local sizes that its entry, or without one the next, is not compiled for."""
    sizes = prepared.compilation.inputs.local_sizes if found is None else prepared.lacking_sizes(found.head)
    if stores.target is None or not sizes:
        return Noted.NONE
    return stores.target.missed.note(_missed(stores, prepared, environment, question))


def discard(stores: Stores, found: Hit, why: str) -> None:
    """Quarantine an entry that its driver rejects and that this process does not replace."""
    store = stores.target
    scanned = store.look_at(found.key) if store is not None else None
    if store is not None and scanned is not None:
        store.quarantine(scanned, why)


def _missed(
    stores: Stores,
    prepared: Prepared,
    environment: Variables,
    question: tuple[str, ...],
    *,
    rejected: bool = False,
) -> MissedRequest:
    now_ns, request = time.time_ns(), _elsewhere(prepared)
    return MissedRequest(prepared.key, now_ns, stores.command, request, environment, rejected, question)


def _elsewhere(prepared: Prepared) -> BuildRequest:
    """The request changed so that a worker, which runs in an empty directory, finds the same headers."""
    request = prepared.request
    here = request.cwd.rstrip(os.sep) + os.sep
    if request.searches_cwd and any(file.startswith(here) for file in prepared.closure.files):
        request = request._replace(options=(f"-I{request.cwd}", *request.options))
    return request._replace(searches_cwd=False)
