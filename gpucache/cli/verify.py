"""``gpucache verify``: check that the entries of caches are intact."""

import time
from typing import TYPE_CHECKING

import click

from gpucache.cli.caches import Opened, cache_option, finish, open_named
from gpucache.cli.globals import given, global_options
from gpucache.cli.machines import toolchains_for
from gpucache.cli.parameters import EntryName
from gpucache.errors import CacheUnusableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpucache.answers.entries import CacheEntry
    from gpucache.answers.verify import Checked
    from gpucache.engine.verify import Try


@click.command()
@click.argument("what", metavar="[WHAT]...", nargs=-1, type=EntryName())
@cache_option
@click.option("--load", is_flag=True, help="Load each entry on its device, in a child process.")
@click.option("--rebuild", is_flag=True, help="Compile each entry again from its source file and compare.")
@click.option(
    "--repair",
    is_flag=True,
    help="Take what is wrong out of the way: to quarantine in our own cache, removed or mended in others.",
)
@click.option("--strict", is_flag=True, help="Exit 3 for what is only worth knowing, too.")
@global_options
def verify(
    what: tuple[str, ...], cache: tuple[str, ...], load: bool, rebuild: bool, repair: bool, strict: bool
) -> None:
    """Check every entry, or those of WHAT (programs, targets, first digits of keys).

    Wrong (exit 3): truncated, corrupt, misplaced, mislabelled, untrusted. Worth knowing (exit 3
    with --strict): stale, superseded, orphan, leftover, locked, unsupported. Not checked (exit 4): with
    --load, where the machine is so short of processes, memory or descriptors that nothing loads. Caches of
    others may have entries without a checksum: of these only the form is checked, and their number is shown.

    With --repair a damaged entry of SYCL goes with its whole folder, copies too: programs hit all others
    at once, and that one at their second start.
    """
    from gpucache.answers import verify as text
    from gpucache.answers.verify import summarise_verify

    opened = open_named(cache)
    if repair and opened.settings.read_only:
        raise CacheUnusableError("GPUCACHE_READ_ONLY is set, so nothing is repaired; unset it")
    # Sound entries are only counted: there may be a hundred thousand.
    told: list[Checked] = []

    def noted() -> "Iterator[Checked]":
        for outcome in _run(opened, what, _trials(opened, load=load, rebuild=rebuild), repair=repair):
            if given().whole or outcome.findings or outcome.notes or outcome.unchecked:
                told.append(outcome)
            yield outcome

    summary = summarise_verify(noted())._replace(unread=opened.unread)
    findings = [finding for outcome in told for finding in outcome.findings]
    given().answer("verify", findings, summary, text.verify(told, summary, whole=given().whole))
    finish(opened, summary.exit_code(strict=strict))


def _run(
    opened: Opened,
    what: tuple[str, ...],
    trials: "dict[str, list[Try]]",
    *,
    repair: bool,
) -> "Iterator[Checked]":
    """Every entry as it is checked; repairs come at the end of its cache."""
    from gpucache.engine.evict import superseded
    from gpucache.engine.staleness import Origins
    from gpucache.engine.verify import repaired, run_verify

    selected = opened.select(what)
    origins = [Origins() for _ in selected]
    old = [superseded(one.of(own)) for one, (_, own) in zip(origins, selected, strict=True)]
    done, total = 0, sum(one.seen for one in origins)
    toolchains = toolchains_for(entry for one in origins for entry in one.samples())
    stale = [one.stale(toolchains, time.time_ns()) for one in origins]
    with given().progress() as bar:
        try:
            for (cache, entries), of, own, unread in zip(selected, origins, old, stale, strict=True):
                wrong: list[tuple[Checked, CacheEntry | None]] = []
                tries = trials.get(cache.location().root, ())
                for checked, entry in run_verify(
                    cache,
                    entries if what else None,  # a cache is read again rather than kept in memory
                    old=own,
                    stale=unread,
                    trials=tries,
                    whole=not what,
                    sound_alike=0 if what or given().whole else of.seen,
                ):
                    bar.show(done, total, checked.entry[:12])
                    done += entry is not None
                    if repair and checked.findings:
                        wrong.append((checked, entry))
                    else:
                        yield checked
                yield from repaired(cache, wrong)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"{done} of {total} were checked") from None


def _trials(opened: Opened, *, load: bool, rebuild: bool) -> "dict[str, list[Try]]":
    """The trials of the entries in each of our own roots, by root."""
    trials: dict[str, list[Try]] = {own.cache.location().root: [] for own in opened.owns}
    for option, asked in (("--load", load), ("--rebuild", rebuild)):
        if asked:
            opened.require_own(option)
    if load or rebuild:
        from gpucache.assembly import backends
        from gpucache.engine.load_and_rebuild import load_trial, rebuild_trial
        from gpucache.probe.ask import ask

        devices = ask() if rebuild else []
        for own in opened.owns:
            if load:
                trials[own.cache.location().root].append(load_trial(own.cache))
            if rebuild:
                trials[own.cache.location().root].append(rebuild_trial(own.cache, devices, backends()))
    return trials
