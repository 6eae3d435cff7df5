"""``gpucache devices``: the targets of this machine, saved and compared."""

from pathlib import Path

import click

from gpucache.cli.globals import given, global_options, leave
from gpucache.cli.parameters import PathName, valued
from gpucache.cli.usage import VerbCommand
from gpucache.errors import ExitCode, UsageError


@click.command(cls=VerbCommand)
@valued(
    "--save",
    "FILE",
    PathName(dir_okay=False),
    "Write this machine's profile, for warm --check elsewhere.",
)
@click.option(
    "--compare", metavar="A B", nargs=2, type=PathName(dir_okay=False),
    help="Compare two profiles (exit 3 if they differ).\f"
    "Show the differences that keep two machines from sharing a cache (exit 3 if there are any).",
)  # fmt: skip
@global_options
def devices(save: Path | None, compare: tuple[Path, Path] | None) -> None:
    """List OpenCL devices, CUDA devices and compilers that need no device, each as a target for --target.

    \f
    HIP programs are compiled for named architectures alone; GPUs of AMD are not looked for.

    Drivers are queried in child processes with a time limit; a broken driver is a row with its error.
    A profile contains platforms, devices, drivers, toolchains and the variables that reach compilers, but
    no host name and no user name.
    """
    if compare is not None and save is not None:
        raise UsageError("--compare reads two profiles and --save writes one; give one of them")
    if compare is not None:
        _compare(*compare)
        return
    from gpucache.answers import devices as text
    from gpucache.assembly import remember_targets
    from gpucache.engine.machine import profile_of
    from gpucache.probe.ask import ask
    from gpucache.probe.profile import save_profile

    rows = ask()
    targets = [row.target for row in rows if row.target is not None and row.available]
    remember_targets(given().settings(), rows)
    if save is not None:
        save_profile(save, profile_of(rows))
    present = sum(row.present for row in rows if row.target is not None and row.available)
    errors = sum(row.target is None for row in rows)
    given().answer(
        "devices",
        rows,
        {"targets": len(targets), "devices": present, "errors": errors},
        text.devices(rows, whole=given().whole),
    )
    if save is not None:
        given().say(
            f"Saved as {save}; 'gpucache warm --check --device-profile {save}' checks for this machine."
        )
    leave(ExitCode.DONE if targets else ExitCode.NOTHING_ATTEMPTED)


def _compare(left: Path, right: Path) -> None:
    from gpucache.answers import devices as text
    from gpucache.probe.profile import compare, load_profile

    found = compare(load_profile(left), load_profile(right))
    given().answer(
        "devices", found, {"differences": len(found)}, text.comparison(found, left.name, right.name)
    )
    leave(ExitCode.FINDINGS if found else ExitCode.DONE)
