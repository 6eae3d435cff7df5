"""``gpucache export layer DIR -- COMMAND``: what a command compiles, for when it runs without gpucache."""

from pathlib import Path

from gpucache.cli.globals import given, leave
from gpucache.cli.run import build_noted, end_as, named_command
from gpucache.cli.running import Services, libraries
from gpucache.cli.streams import complain
from gpucache.errors import ExitCode

FORM = "layer"
TOLD = f"""{FORM}: OUT is a folder for images and services, whose programs are served without gpucache. The
command after -- runs as under 'gpucache run', and all that it asked its compilers for is looked up
afterwards; several commands may add to one OUT. It holds libraries, an index that these read by themselves,
and gpucache.env with the variables, for docker run --env-file, systemd's EnvironmentFile= and, between
set -a and set +a, a shell.

A program is served where it asks for exactly the same on the same kind of device, and the contents of all
headers, the compiler's own files, the variables that reach it and the CPU are as they were; headers and
compilers keep their paths, and a driver of a GPU may be mounted there. GPUCACHE_LAYER_TELL=1 prints each hit,
and each miss with what differs. Headers in memory, headers that are included through macros and compilers
that 'gpucache run' does not reach are not covered. If nothing is printed, no library of OUT was loaded: built
by cc these need a glibc as new as this machine's. OUT holds sources, and everybody may read it. Where nothing
could be exported, none is made."""
"""What is said of this form by the help of export."""


def export_layer(folder: Path, place: str) -> None:
    """Run the command, and write what answers its builds; ``place`` is where the folder will be used."""
    from gpucache.answers.layer import layer_line, left, summarise_layer
    from gpucache.assembly import open_layers
    from gpucache.caches.known_caches import KnownCaches
    from gpucache.host.scratch import absent, remove_empty, scratch
    from gpucache.intercept.command import run_command
    from gpucache.intercept.environment import REQUIRE
    from gpucache.intercept.layer import Layer
    from gpucache.intercept.layering import Questions
    from gpucache.intercept.server import Later
    from gpucache.intercept.wire import NVRTC, OPENCL

    command = named_command("export")
    settings, found = given().settings(), libraries()
    questions = Questions(open_layers(settings, command=Path(command[0]).name), found)
    new = absent(folder.absolute())
    layer = Layer(folder, place)
    try:
        make = Services(settings, Path(command[0]).name, found)
        opencl, nvrtc = Later(make.opencl, OPENCL), Later(make.nvrtc, NVRTC)
        with scratch("layer") as caches:  # what a library's own cache answers is not asked for
            environ = {**given().environment(), **KnownCaches(given().environment()).isolate(caches)}
            environ.pop(REQUIRE, None)  # what misses is to be built for the layer
            handlers = questions.heard({**opencl.handlers, **nvrtc.handlers})
            ended = run_command(command, environ, found, handlers)
        opencl.finish(), nvrtc.finish()
        noted = frozenset() if opencl.made is None else opencl.made.noted
        if noted and build_noted(settings, noted)[1]:
            raise KeyboardInterrupt(f"nothing was exported, and {folder} is as it was")
        outcomes, rows, kinds = [], [], set()
        for kind, outcome, row in questions.answers():
            outcomes.append(outcome)
            if row is not None:
                rows.append(row)
                kinds.add(kind)
        # A command that nothing is kept of makes no new layer, which would answer nobody.
        answers, size = layer.add(sorted(kinds), rows) if rows or layer.exists else (0, 0)
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
