"""``gpucache devices``: the targets here."""

import click

from gpucache.cli.globals import given, global_options, leave


@click.command(short_help="List devices and compilers as targets.")
@global_options
def devices() -> None:
    """List OpenCL devices, CUDA devices and compilers that need none, each as the target to pass to --target.

    Drivers are asked in child processes with a time limit: a broken one is a row with its error.
    """
    from gpucache.assembly import remember_targets
    from gpucache.outcomes import ExitCode
    from gpucache.probe import ask
    from gpucache.render import document, tables

    rows = ask()
    remember_targets(given().settings(), rows)
    targets = [row.target for row in rows if row.target is not None and row.available]
    here = sum(row.present for row in rows if row.target is not None and row.available)
    summary = {"targets": len(targets), "devices": here, "errors": sum(row.target is None for row in rows)}
    given().document(lambda: document.document("devices", map(document.device, rows), summary))
    given().show(tables.devices(rows))
    leave(ExitCode.DONE if targets else ExitCode.NOTHING_ATTEMPTED)
