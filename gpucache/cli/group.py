"""The group of all verbs, and the version. A verb's module is imported when that verb is called."""

from importlib import import_module

import click

from gpucache import __version__
from gpucache.cli.globals import global_options
from gpucache.errors import ExitCode

PROGRAM = "gpucache"
COMPLETE = "_GPUCACHE_COMPLETE"
"""The environment variable by which a shell asks for completions."""
VERBS = {
    "devices": "List devices and compilers as targets.",
    "warm": "Compile programs into the cache before they are needed.",
    "run": "Run a command and serve its compiles from the cache.",
    "record": "Run a command and record its compiles, for warm.",
    "inspect": "Show caches and entries, and why something missed.",
    "verify": "Check headers, checksums, keys and payloads.",
    "evict": "Remove entries by size, age or kind.",
    "bench": "Compare starts with an empty cache and with a full one.",
    "push": "Send entries of caches to a store for other machines.",
    "pull": "Fill caches with entries from a store.",
    "key": "Make a pair of keys that sign entries for other machines.",
    "export": "Write another system's cache file, or a layer for images.",
}
"""Every verb with its help in one line, in the order in which they are used."""
COMMAND_LINES = {
    "run": "run -- ./app",
    "record": "record -o DIR -- ./app",
    "warm": "warm -- ./app",
    "bench": "bench -- ./app",
    "export layer": "export layer DIR -- ./app",
}
"""The command lines of commands that run another after ``--``; the first two verbs end as it does."""
COMMANDED = tuple(COMMAND_LINES)
NEAR = {
    **dict.fromkeys(("prune", "clean", "clear", "gc", "rm", "remove", "delete"), "evict"),
    **dict.fromkeys(("list", "ls", "show", "status", "info"), "inspect"),
    "stats": "inspect --stats",
    "why": "inspect --why",
    "check": "verify",
    **dict.fromkeys(("build", "compile", "prime"), "warm"),
    "warm --dry-run": "--check",
}
"""Words of other tools, each with ours: hints, not aliases."""

EXIT_CODES = "\b\nExit codes:\n" + "".join(f"  {code.value:<4} {code.meaning}\n" for code in ExitCode)


class Verbs(click.Group):
    """Verbs that are listed without being imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - Click's signature
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in VERBS:
            return None
        command: click.Command = getattr(import_module(f"gpucache.cli.{cmd_name}"), cmd_name)
        command.short_help = VERBS[cmd_name]
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=Verbs, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@global_options
@click.version_option(__version__, prog_name="gpucache", message="%(prog)s %(version)s")
def gpucache() -> None:
    """Warm, use, inspect, verify, evict and bench the compile caches of OpenCL, CUDA and HIP programs.

    --root, --json, --quiet and --verbose may come before or after the command. 'gpucache help COMMAND'
    explains a command, 'man gpucache-COMMAND' in more detail.
    """
