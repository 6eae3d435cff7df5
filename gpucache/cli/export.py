"""``gpucache export``: write a cache of another system, or a layer, for other machines."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gpucache.caches.exports import Argument, ExportForm, ExportRequest, Option, form_of
from gpucache.caches.registry import EXPORTERS
from gpucache.cli.globals import given, global_options, leave
from gpucache.cli.parameters import EntryName, Name, PathName, TargetName, field, read_whole, valued
from gpucache.cli.run import build_noted, end_as, named_command, without_nvrtc
from gpucache.cli.running import Services, libraries
from gpucache.cli.streams import complain
from gpucache.cli.usage import VerbCommand
from gpucache.errors import ExitCode, UsageError
from gpucache.host import os_errors


class _Forms(click.Group):
    """The commands of this module, and a form of each other system, loaded when it is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - Click's signature
        return sorted({*self.commands, *EXPORTERS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in EXPORTERS and cmd_name not in self.commands:
            _form(form_of(cmd_name))
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Forms)
@global_options
def export() -> None:
    """Write a cache file of another system, which its programs then hit; or a layer for images and services.

    \f
    OUT is published whole or not at all.
    """


def _form(form: ExportForm) -> None:
    def write(out: Path, sources: tuple[Path, ...], **values: Any) -> None:
        from gpucache.answers.export import exported
        from gpucache.assembly import compile_exactly
        from gpucache.sources.disk import load_program

        if out.is_dir():
            raise UsageError(f"{out} is a directory; name a file for {form.name}")
        language = form.language
        programs = [] if language is None else [load_program(one, one.name, language) for one in sources]
        options = {one.name: _value(one, values[_parameter(one)]) for one in form.options}
        done = form.write(ExportRequest(out, sources, tuple(programs), options, compile_exactly))
        given().answer("export", [done], {"entries": done.entries}, exported(done))

    function: Callable[..., None] = global_options(write)
    for option in reversed(form.options):
        function = click.option(
            option.name,
            metavar=option.metavar or None,
            type={Argument.TARGET: TargetName(), Argument.FILE: PathName(dir_okay=False)}.get(option.kind),
            is_flag=option.kind is Argument.FLAG,
            multiple=option.many,
            help=option.told,
        )(function)
    function = click.argument("sources", metavar="SOURCE...", nargs=-1, required=True, type=PathName())(
        function
    )
    function = click.argument("out", metavar="OUT", type=PathName())(function)
    export.command(form.name, cls=VerbCommand, help=form.told, short_help=form.told.partition("\n\n")[0])(
        function
    )


def _parameter(option: Option) -> str:
    return option.name.lstrip("-").replace("-", "_")


def _value(option: Option, value: Any) -> Any:
    if option.kind is Argument.FIELD:
        return tuple(field(option.name, text, f"; {option.remedy}") for text in value)
    if option.kind is Argument.FILE and value is not None:
        try:
            return read_whole(value)
        except OSError as error:
            raise os_errors.unreadable(value, error, option.remedy) from None
    return value


@export.command(
    cls=VerbCommand,
    short_help="Write a directory that serves builds without gpucache.",
    context_settings={"allow_extra_args": True},
)
@click.argument("folder", metavar="OUT -- COMMAND...", type=PathName())
@valued("--at place", "PLACE", Name(), "Where OUT will be when it is used, if not on this path.")
@without_nvrtc
@global_options
def layer(folder: Path, place: str | None, no_nvrtc: bool) -> None:
    """Run the command after -- and write OUT, a directory that serves its builds without gpucache.

    Set the variables of OUT/gpucache.env for the programs: by docker run --env-file, systemd's
    EnvironmentFile= or, between set -a and set +a, a shell. Several commands may add to one OUT. With
    GPUCACHE_LAYER_TELL=1 a program prints each hit, and each miss with the difference. If it prints
    nothing, it loaded no library from OUT: libraries built with cc need at least this machine's glibc.

    \f
    For NVRTC and hipRTC the variables are LD_AUDIT and GLIBC_TUNABLES, which replace values that programs
    have already: join these by hand. Programs that do not start with LD_AUDIT (TSan, LSan, Scudo) need
    --no-nvrtc.

    The command runs as under 'gpucache run', and every build that it requested is looked up afterwards. OUT
    is a root with the entries, the sources and the libraries that read them; every user may read it. If
    nothing could be exported, no OUT is made.

    A program is served if it requests exactly the same on the same kind of device, and the CPU, the variables
    that reach the compiler, all headers and the compiler's files are unchanged.
    Headers and compilers must keep their paths; a GPU's driver may be mounted there. Headers in memory
    and compilers that 'gpucache run' cannot reach are not covered.
    """
    from gpucache.answers.export import LayerResult, layer_line, left, summarise_layer
    from gpucache.answers.run_lines import command_name
    from gpucache.assembly import open_stores
    from gpucache.caches.known_caches import KnownCaches
    from gpucache.host.scratch import absent, remove_empty, scratch
    from gpucache.serve.command import heed, run_command
    from gpucache.serve.environment import REQUIRE
    from gpucache.serve.exported_layer import Layer
    from gpucache.serve.questions import Questions
    from gpucache.serve.server import Later
    from gpucache.serve.wire import NVRTC, OPENCL

    command = named_command("export layer")
    settings, found = given().settings(), libraries(nvrtc=not no_nvrtc)
    name = command_name(command)
    questions = Questions(open_stores(settings, command=name), found)
    new = absent(folder.absolute())
    made = Layer(folder, place or "")
    try:
        make = Services(settings, name, found)
        opencl, nvrtc = Later(make.opencl, OPENCL), Later(make.nvrtc, NVRTC)
        with scratch("layer") as caches:  # a library's own cache would hide its builds
            environ = {**given().environment(), **KnownCaches(given().environment()).isolate(caches)}
            environ.pop(REQUIRE, None)  # misses are built for the layer
            handlers = questions.heard({**opencl.handlers, **nvrtc.handlers})
            ended = run_command(command, environ, found, handlers)
        heed()
        opencl.finish(), nvrtc.finish()
        noted = frozenset() if opencl.made is None else opencl.made.noted
        if noted and build_noted(settings, noted)[2]:
            raise KeyboardInterrupt(f"nothing was exported, and {folder} is as it was")
        outcomes, backends = [], set()
        with made.writing():
            for outcome in questions.export(made.stores):
                if outcome is not None:
                    outcomes.append(outcome)
                if outcome is None or outcome.result is LayerResult.EXPORTED:
                    backends.add("opencl" if outcome is None else outcome.target.partition(":")[0])
            # A command without stored builds makes no new layer, as it would serve no program.
            answers, size = made.finish(sorted(backends)) if backends or made.exists else (0, 0)
    finally:
        remove_empty(new)
    if questions.too_many:
        complain("gpucache: the command asked for more than is kept; export with fewer builds at once")
    summary = summarise_layer(command[0], ended, str(folder), outcomes, answers, size)
    told = [*left(outcomes, whole=given().whole), layer_line(summary)]
    given().tell("export", outcomes, summary, told)
    if not (ended.code or answers):
        leave(ExitCode.FINDINGS)
    end_as(ended)


@export.command(cls=VerbCommand, short_help="Write a cache of gpucache into one file.")
@click.argument("out", metavar="FILE", type=PathName(dir_okay=False))
@click.option(
    "--program", "programs", metavar="P", type=EntryName(), multiple=True,
    help="Only the entries of this program; repeatable; default all.",
)  # fmt: skip
@global_options
def root(out: Path, programs: tuple[str, ...]) -> None:
    """Write the entries of gpucache's cache, and the records that belong to them, into FILE.

    Programs use it as it is: by 'gpucache run --cache-file FILE', GPUCACHE_FILE or gpucache.install(). The
    verbs take it where they take a cache's directory: --root FILE, --cache FILE.

    \f
    It is a tar file of a cache's directory. A FILE that is such a cache is replaced, another file is not.
    """
    from gpucache.answers.export import Exported, exported
    from gpucache.assembly import open_store
    from gpucache.store.root_file import export

    try:
        made = export(open_store(given().settings()).root, out.absolute(), programs)
    except OSError as error:
        raise os_errors.unwritable(out, error, "name another file") from None
    done = Exported("gpucache", str(out), made.entries, made.size_bytes)
    given().answer("export", [done], {"entries": done.entries}, exported(done))
