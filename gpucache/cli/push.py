"""``gpucache push``: send entries of caches to a store elsewhere."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucache.caches.interface import OwnRoot
from gpucache.caches.registry import ALL
from gpucache.cli.caches import finish, open_everywhere, open_named, open_store, require_named, stopped
from gpucache.cli.globals import given, global_options
from gpucache.cli.parameters import PIN, EntryName, PathName, flag, valued
from gpucache.cli.stores import refuse_stores, store_options
from gpucache.cli.streams import complain
from gpucache.cli.usage import VerbCommand
from gpucache.errors import RemoteError, UsageError
from gpucache.serve.environment import FOLLOWED

if TYPE_CHECKING:
    from gpucache.answers.transfer import Pushed
    from gpucache.caches.interface import Cache
    from gpucache.engine.follow import Following
    from gpucache.engine.selection import Selected
    from gpucache.remote.objects import Objects
    from gpucache.remote.push import Outcome
    from gpucache.remote.signing import SigningKey


@click.command(cls=VerbCommand)
@store_options
@click.argument("what", metavar="[WHAT]...", nargs=-1, type=EntryName())
@valued(
    "--key",
    "FILE",
    PathName(dir_okay=False),
    "Sign with the secret key in this file.\f"
    "Sign with the secret key in this file; default GPUCACHE_SIGNING_KEY, then your own.",
)
@flag("--sources", "Send entries that contain source text, too.")
@flag(
    "--shared",
    "Let other users, such as a web server's, read the store.\f"
    "Let other users, such as a web server's, read a directory that becomes a store.",
)
@valued(
    "--pin", "NAME", PIN,
    "Pin these entries; evict leaves them.\f"
    "Pin these entries in the store: evict leaves them until NAME pins others.",
)  # fmt: skip
@flag("--dry-run", "Show the entries that would be sent, and stop.")
@flag(
    "--follow",
    "Go on sending entries as they are written.\f"
    "Go on sending entries as they are written, until an interrupt or SIGTERM.",
)
@global_options
def push(
    url: str,
    what: tuple[str, ...],
    cache: tuple[str, ...],
    key: Path | None,
    sources: bool,
    shared: bool,
    pin: str | None,
    dry_run: bool,
    follow: bool,
) -> None:
    """Send the entries that a store lacks: all, or those of WHAT (programs, targets, first digits of keys).

    URL is a directory, s3://BUCKET/PATH, gs://, az:// or oci://. Each entry is checked before it is
    sent. Machines that pull accept entries that a key they trust signed; see gpucache-key(1).

    \f
    The other forms: az://CONTAINER/PATH, and oci://HOST[:PORT]/REPOSITORY[:TAG] with the credentials of
    'docker login' (oci+http:// without TLS). A bucket or a directory that a plain web server serves can be
    pulled by https://.

    Any number of machines may push to one store at once: a file that several entries share is kept once, and
    two variants of a key are both kept. After an interruption the next push goes on. Files of some systems
    contain paths of this machine or names of its programs; push reports that. Entries of gpucache itself
    contain the build options, with every -D value, and the paths of headers: the key is made of them, so they
    cannot be left out. The rows of the index, with which a program's first start hits at once, travel with
    them, and contain no source text; verify checks them, and counts leave them out.

    --follow is for a job that may be killed: what it adds to the caches is in the store within seconds. Until
    the end, a store that does not answer is tried again. An interrupt or SIGTERM sends the rest and ends, a
    second one ends at once. 'gpucache run --push URL' does this for the entries that one command adds.

    An entry is reported as sent once the store was seen to have it. Entries that evict or verify --repair
    removes are gone for readers at once. Their files are only marked, and removed by the first push, eviction
    or repair at least an hour later, so that a machine that is just sending the same file does not lose it.

    Each push --pin NAME moves the pin to the entries that it selects, including those that the store had
    already; with an empty root it removes the pin. 'gpucache inspect URL --pins' lists pins.

    The tag of oci:// (default: gpucache) is an image index. Its images for amd64 and arm64 contain the files
    as programs expect them: entries of gpucache as a root, those of each other system below its name. Mount
    it as an image volume, and set GPUCACHE_SYSTEM_DIRS to the directory. Clients that follow no index find
    the images at TAG.amd64 and TAG.arm64. 'skopeo copy --all' copies the whole store, with --preserve-digests
    also its digests. oci://HOST/REPOSITORY@sha256:DIGEST, of the index, is the store as it was; later pushes
    merge small packs, so pin the digest of a copy.

    Buckets take the variables of their cloud: AWS_ENDPOINT_URL, AWS_REGION, AWS_PROFILE with keys,
    AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, web identity or container credentials;
    GOOGLE_APPLICATION_CREDENTIALS or the login of gcloud; AZURE_STORAGE_ACCOUNT_NAME with a key, a SAS token
    or a client. Without credentials requests are unsigned. The metadata address of an instance is asked for
    credentials only with AWS_EC2_METADATA_DISABLED=false, GCE_METADATA_HOST, or
    AZURE_CREDENTIAL_TYPE=managed_identity.
    """
    from gpucache.answers import transfer as text
    from gpucache.answers.console import display
    from gpucache.answers.transfer import PushResult, PushSummary
    from gpucache.assembly import remembering
    from gpucache.remote.keeping import mark_of, without_rows
    from gpucache.remote.push import push as send
    from gpucache.remote.signing import read_trusted

    refuse_stores(cache)
    if follow and (what or dry_run):
        raise UsageError("--follow sends what is written; leave WHAT and --dry-run out")
    opened = open_named(cache, systems=False)
    file = opened.settings.signing_key
    trusted = read_trusted(opened.settings.trusted_keys, file)
    summary, told, pinned, code = PushSummary(), list["Pushed"](), set[str](), 0
    try:
        # A bar would run over what the program beside it prints.
        bars = display(quiet=True) if follow else given().progress()
        store = open_store(url, shared=shared)
        with closing(store), bars as bar, remembering(opened.caches, opened.settings):
            if not store.writes:
                raise UsageError(f"{store.url} can only be read; push to the place it serves, or to its tag")
            selected = [] if follow else opened.select(what, heads=False)
            sendable = follow or any(
                next(iter(entries), None)
                for one, entries in selected
                if not one.moving.why_not and (sources or not one.moving.sources)
            )
            chosen = opened.select(what) if bar.is_seen and not follow else ()
            total = sum(1 for _, entries in chosen for _ in entries) or None  # the bar says the time left
            signing = _signing_key(store, key, file, makes=sendable and not dry_run)
            how = partial(
                send,
                store=store,
                key=signing,
                trusted=trusted,
                sources=sources,
                dry_run=dry_run,
                progress=lambda done, _, name: bar.show(done, total, name),
            )
            if follow:
                found = open_everywhere() if ALL in cache else opened.caches
                outcomes = _followed(how, [one for one in found if not one.moving.why_not])
            else:
                outcomes = how(_with_rows(selected))
                require_named(opened, cache, may_begin=True)
            for outcome in summary.of(without_rows(outcomes)):
                if outcome.result in (PushResult.SENT, PushResult.PRESENT):
                    pinned.add(mark_of(outcome.entry.cache, outcome.entry.key))
                if given().json or given().whole or outcome.result is PushResult.WOULD_SEND:
                    told.append(outcome)
            if pin is not None and not dry_run:
                code = _pin(store, pin, pinned)
    except (KeyboardInterrupt, RemoteError) as error:
        sent = None if dry_run else summary.counts[PushResult.SENT]
        raise stopped(error, sent, "were sent; push again to go on") from None
    summary.unread = opened.unread
    lines = text.push(told, summary, whole=given().whole, added=FOLLOWED in os.environ)
    given().answer("push", told, summary, lines)
    finish(opened, code or summary.exit_code)


def _with_rows(selected: "Selected") -> "Selected":
    """Selected entries with the rows of our own, whose modules only roots need."""
    if not any(isinstance(cache, OwnRoot) for cache, _ in selected):
        return selected
    from gpucache.serve.row_cache import beside

    return beside(selected)


def _pin(store: "Objects", name: str, marks: set[str]) -> int:
    """The exit code of moving a pin; a failure is reported, and leaves the answer about the entries."""
    from gpucache.remote.keeping import pin

    try:
        pin(store, name, marks)
    except RemoteError as error:
        complain(f"gpucache: the pin {name} was not moved: {error}")
        return error.exit_code
    return 0


def _signing_key(store: "Objects", named: Path | None, file: Path | None, *, makes: bool) -> "SigningKey":
    """The key of the option, or that of this user, made for a directory if asked; raises UsageError."""
    from gpucache.remote.objects import is_folder
    from gpucache.remote.signing import load_signing_key, new_key, signing_key
    from gpucache.remote.store import MADE
    from gpucache.settings import own_key_place

    own, in_folder = own_key_place(), is_folder(store)
    if named:
        return load_signing_key(named)
    if not makes and in_folder and file is None and not (own and own.exists()):
        return new_key("none")
    signing, made = signing_key(file, make=in_folder)
    if made:
        given().say(f"gpucache: {MADE.format(own, signing.public.text)}")
    return signing


_AGAIN_S = 15.0


def _followed(send: "Callable[..., Iterator[Outcome]]", caches: "Sequence[Cache]") -> "Iterator[Outcome]":
    """The outcomes of a push that goes on until this process is asked to end; asked again, it is interrupted.

    A store that fails once it has answered is tried again; raises RemoteError at the first try.
    """
    from gpucache.engine.follow import Following
    from gpucache.serve.row_cache import beside

    end = threading.Event()
    parent, ready = map(int, os.environ.get(FOLLOWED, "0 0").split())

    def ended() -> bool:
        return end.is_set() or (parent != 0 and os.getppid() != parent)

    def stop(*_: object) -> None:
        end.set()
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    following, answered = Following(caches, ended, beside), False
    following.start()
    if parent:
        following.pass_over()
        os.close(ready)
    failed: dict[tuple[str, str], Pushed] = {}

    def batches() -> "Iterator[object]":
        nonlocal answered
        answered = True
        yield from following.batches()

    while True:
        try:
            yield from _arrived(send(following.unseen(), more=batches()), following, failed)
        except RemoteError as error:
            if not answered or ended():
                raise
            complain(f"gpucache: {error}; trying again")
            following.forget()
            end.wait(_AGAIN_S)
        else:
            yield from failed.values()
            return


def _arrived(
    outcomes: "Iterator[Outcome]", following: "Following", failed: "dict[tuple[str, str], Pushed]"
) -> "Iterator[Outcome]":
    """Hold back the failures of entries, which are tried again with the next ones."""
    from gpucache.answers.transfer import Pushed, PushResult

    for one in outcomes:
        if isinstance(one, Pushed):
            place = one.entry.cache, one.entry.key
            failed.pop(place, None)
            if one.result is PushResult.FAILED:
                failed[place] = one
                following.try_again(*place)
                continue
        yield one
