"""The group of all verbs, and the version."""

import click

from gpucache import __version__
from gpucache.cli import completion
from gpucache.cli.bench import bench
from gpucache.cli.devices import devices
from gpucache.cli.evict import evict
from gpucache.cli.export import export
from gpucache.cli.globals import global_options
from gpucache.cli.inspect import inspect
from gpucache.cli.verify import verify
from gpucache.cli.warm import warm

EXIT_STATUS = {
    0: "done",
    1: "unexpected: a defect of gpucache",
    2: "usage: what was asked for cannot be meant",
    3: "findings, failures, or with --check misses",
    4: "nothing could be attempted: no usable device, compiler or process",
    5: "the cache cannot be used",
    130: "interrupted",
}
EXIT_CODES = "\b\nExit codes:\n" + "".join(
    f"  {code:<4} {meaning}\n" for code, meaning in EXIT_STATUS.items()
)


class Verbs(click.Group):
    """Verbs in the order in which they are used, not of the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - Click's signature
        """The verbs."""
        return list(self.commands)


@click.group(cls=Verbs, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@global_options
@click.version_option(__version__, prog_name="gpucache", message="%(prog)s %(version)s")
def gpucache() -> None:
    """Warm, inspect, verify, evict and bench the compile caches of OpenCL and CUDA programs.

    --root, --json, --quiet and --verbose may stand before or after the verb.
    """


completion.register()
for _verb in (devices, warm, inspect, verify, evict, bench, export):
    gpucache.add_command(_verb)
