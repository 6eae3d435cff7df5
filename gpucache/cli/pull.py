"""``gpucache pull``: fill caches from a store elsewhere."""

from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucache.cli.caches import finish, open_store, require_store, stopped
from gpucache.cli.globals import given, global_options, leave
from gpucache.cli.parameters import PathName, flag, valued
from gpucache.cli.stores import open_to_fill, store_options, write_environment
from gpucache.cli.usage import VerbCommand
from gpucache.errors import CacheUnusableError, ExitCode, GpucacheError, RemoteError, UsageError
from gpucache.host import os_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpucache.answers.transfer import Pulled
    from gpucache.caches.interface import Cache


@click.command(cls=VerbCommand)
@store_options
@valued(
    "--to folder",
    "DIR",
    PathName(file_okay=False),
    "Fill caches below DIR.\f"
    "Fill caches below DIR, and write DIR/gpucache.env with the variables that lead programs there.",
)
@click.option(
    "--device-profile", "profile", metavar="FILE", type=PathName(dir_okay=False),
    help="Pull for another machine.\f"
    "Pull for another machine, from a profile written by 'gpucache devices --save'.",
)  # fmt: skip
@click.option(
    "--best-effort", is_flag=True,
    help="Report errors and findings, but exit 0.\f"
    "Report errors and findings, but exit 0, so that an init container does not keep its program from "
    "starting.",
)  # fmt: skip
@flag("--dry-run", "Show the entries that would be pulled, and stop.")
@global_options
def pull(
    url: str,
    cache: tuple[str, ...],
    folder: Path | None,
    profile: Path | None,
    best_effort: bool,
    dry_run: bool,
) -> None:
    """Fill caches with the entries of a store that programs of this machine would hit.

    URL is as for push, or https:// of a plain web server. An entry is left out, and listed with the reason,
    if its architecture, driver or version is not this machine's. Each must be signed by your own key or by a
    key of GPUCACHE_TRUSTED_KEYS.

    \f
    With --cache all, every system that the store has entries of is filled. Each entry is checked by its
    format and written as its owner writes it; an entry that exists is left alone. Facts that are not known of
    the machine are listed and do not prevent a pull. After an interruption the next pull goes on. From a web
    server, pull sees only entries listed in the index, which push and programs that send entries update.

    In a directory or bucket that it may write to, pull notes the day, so that 'gpucache evict URL
    --older-than 30d' removes entries that no machine pulled for 30 days.

    --to writes gpucache.env even if nothing is pulled. Its paths are absolute, so mount DIR at the same path
    where programs run, and load the file there with: set -a; . DIR/gpucache.env; set +a
    """
    from gpucache.answers import transfer as text
    from gpucache.answers.transfer import PullResult, PullSummary
    from gpucache.assembly import machine_of, remembering
    from gpucache.engine.machine import find_machine
    from gpucache.remote.keeping import mark_of, note_use, without_rows
    from gpucache.remote.pull import pull as receive
    from gpucache.remote.signing import read_trusted

    with _forgiven() if best_effort else nullcontext():
        if folder is not None and given().root is not None:
            raise UsageError("--to keeps every cache below DIR, gpucache's too; leave --root out")
        opened = open_to_fill(cache, folder, dry_run=dry_run)
        if opened.settings.read_only and not dry_run:
            raise CacheUnusableError("GPUCACHE_READ_ONLY is set, so nothing is written; unset it")
        summary, told, used = PullSummary(), list["Pulled"](), set[str]()
        try:
            trusted = read_trusted(opened.settings.trusted_keys, opened.settings.signing_key)
            there = profile and machine_of(find_machine(profile).devices, elsewhere=True)
            require_store(url)
            store, remembered = open_store(url), remembering(opened.caches, opened.settings)
            with closing(store), given().progress() as bar, remembered:
                caches: list[Cache] = [*opened.caches]
                if opened.roots:
                    from gpucache.serve.row_cache import RowCache

                    caches += map(RowCache, opened.roots)  # after the entries that they answer with
                outcomes = without_rows(
                    receive(
                        store,
                        caches,
                        trusted=trusted,
                        machine=lambda backends: (
                            there or machine_of(find_machine(None, backends).devices, elsewhere=False)
                        ),
                        dry_run=dry_run,
                        progress=bar.show,
                    )
                )
                for outcome in summary.of(outcomes):
                    if outcome.result in (PullResult.PULLED, PullResult.PRESENT):
                        used.add(mark_of(outcome.entry.cache, outcome.entry.key))
                    if given().json or given().whole or outcome.result is PullResult.WOULD_PULL:
                        told.append(outcome)
                if not dry_run:
                    note_use(store, used)
        except (KeyboardInterrupt, RemoteError) as error:
            pulled = None if dry_run else summary.counts[PullResult.PULLED]
            raise stopped(error, pulled, "were pulled; pull again to go on") from None
        finally:  # a program that reads the file starts without the store, too
            if folder is not None and not dry_run:
                write_environment(folder, opened)
        summary.unread = opened.unread
        given().answer("pull", told, summary, text.pull(told, summary, whole=given().whole))
        finish(opened, summary.exit_code)


@contextmanager
def _forgiven() -> "Iterator[None]":
    """Report errors and findings, but exit with 0."""
    try:
        yield
    except click.exceptions.Exit:
        leave(ExitCode.DONE)
    except BrokenPipeError:
        raise
    except Exception as error:
        if isinstance(error, GpucacheError):
            told = error
        elif isinstance(error, OSError):
            told = os_errors.told(error)
        else:
            told = GpucacheError(f"unexpected {type(error).__name__}: {error}; this is a defect of gpucache")
        told.exit_code = ExitCode.DONE
        raise told from error.__cause__
