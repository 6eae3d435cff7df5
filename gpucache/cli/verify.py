"""``gpucache verify``: check that the entries of caches are intact."""

from typing import TYPE_CHECKING

import click

from gpucache.cli.caches import cache_option, finish, open_named, require_named, stores_apart, timeout_option
from gpucache.cli.globals import given, global_options
from gpucache.cli.parameters import EntryName, flag
from gpucache.cli.shipped import show_files
from gpucache.cli.usage import VerbCommand
from gpucache.errors import CacheUnusableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpucache.answers.verify import Checked
    from gpucache.engine.verify import Try


@click.command(cls=VerbCommand)
@click.argument("what", metavar="[WHAT]...", nargs=-1, type=EntryName())
@cache_option
@timeout_option
@flag(
    "--load",
    "Load our own entries on their devices; launch nothing.\f"
    "Load each entry of our own cache on its device in a child process, as a program would; no kernel is "
    "launched. Entries of other systems are never loaded: start their own program to try them.",
)
@flag("--rebuild", "Compile each entry again from its source and compare.")
@flag(
    "--repair",
    "Quarantine, repair or remove damaged entries.\f"
    "Quarantine damaged entries of our own cache; remove or repair those of other caches.",
)
@flag("--strict", "Exit 3 for notes, too.")
@global_options
def verify(
    what: tuple[str, ...], cache: tuple[str, ...], load: bool, rebuild: bool, repair: bool, strict: bool
) -> None:
    """Check every entry, or those of WHAT (programs, targets, first digits of keys; a
    store's URL; or compiled files, as inspect takes them).

    Damage (exit 3): truncated, corrupt, misplaced, mislabelled, untrusted. Notes (exit 3 with --strict):
    stale, superseded, orphan, leftover, locked, unsupported.

    \f
    Exit 2 also means that a named cache, or the directory of --root or GPUCACHE_DIR, does not exist. With
    --load, exit 4 means that the machine lacks processes, memory or descriptors to load anything. Entries of
    other caches may have no checksum: of these only the form is checked, and verify says how many they are.

    With --repair a damaged entry of SYCL is removed with its whole directory, copies too: programs hit all
    other entries at once, and that one at their second start.
    """
    from gpucache.answers import verify as text
    from gpucache.answers.verify import summarise_verify
    from gpucache.engine.machine import toolchains_for
    from gpucache.engine.verify import verify_caches

    if what and not cache and show_files("verify", what):
        return
    what, cache = stores_apart(what, cache)
    opened = open_named(cache)
    require_named(opened, cache)
    if repair and opened.settings.read_only:
        raise CacheUnusableError("GPUCACHE_READ_ONLY is set, so nothing is repaired; unset it")
    tried: Mapping[str, Sequence[Try]] = {}
    if load or rebuild:
        from gpucache.engine.load_and_rebuild import trials

        tried = trials(opened, load=load, rebuild=rebuild)
    # Sound entries are only counted: there may be a hundred thousand.
    told: list[Checked] = []

    def noted() -> "Iterator[Checked]":
        for outcome in verify_caches(
            opened, what, tried, toolchains_for, bar.show, repair=repair, whole=given().whole
        ):
            if given().whole or outcome.findings or outcome.notes or outcome.unchecked:
                told.append(outcome)
            yield outcome

    with given().progress() as bar:
        summary = summarise_verify(noted(), load=load, rebuild=rebuild)._replace(unread=opened.unread)
    findings = [finding for outcome in told for finding in outcome.findings]
    given().answer("verify", findings, summary, text.verify(told, summary, whole=given().whole))
    finish(opened, summary.exit_code(strict=strict))
