"""``gpucache record -o DIR -- COMMAND``: record the compiles of an unmodified command, for ``warm``."""

import os
from contextlib import ExitStack, suppress
from pathlib import Path

import click

from gpucache.cli.globals import given, global_options
from gpucache.cli.parameters import PathName, flag, valued
from gpucache.cli.run import WITHOUT_MARK, ending_as, named_command, without_nvrtc
from gpucache.cli.running import libraries
from gpucache.cli.usage import VerbCommand

_PATIENCE_MS = 60_000
"""How long a build may wait to be written down: with hundreds of headers that can take seconds."""


@click.command(cls=VerbCommand, options_metavar="[OPTIONS] -- COMMAND...", context_settings=WITHOUT_MARK)
@valued(
    "-o --output folder",
    "DIR",
    PathName(file_okay=False),
    "The recording to write, or to add to.",
    required=True,
)
@flag(
    "--digests-only",
    "Record names and digests but no sources.\f"
    "Record names and digests but no sources: enough for warm --check, not for builds.",
)
@flag(
    "--keep-arguments",
    "Record the command's arguments.\f"
    "Record the command's arguments, which may contain secrets, and not only its name.",
)
@without_nvrtc
@global_options
def record(folder: Path, digests_only: bool, keep_arguments: bool, no_nvrtc: bool) -> None:
    """Run the command after -- and record the compiles of its OpenCL programs, NVRTC, hipRTC and Triton.

    'gpucache warm --recording DIR' builds the recording on this or another machine; 'gpucache inspect
    --recording DIR' shows it. Several commands may add to one DIR. It contains sources and headers, so only
    its owner may read it. The exit code is the command's.

    \f
    Nothing is served or cached: every build is the driver's own. The caches of the command's libraries
    are moved to an empty directory meanwhile, because a library that hits does not compile. Several processes
    may write into one DIR. Standard output, input and terminal are the command's. Programs that do not start
    with LD_AUDIT (TSan, LSan, Scudo) need --no-nvrtc, see gpucache-run(1).

    Kernels of Triton 3.4 and newer are recorded by every Python that reads PYTHONPATH (not with -E or -I),
    also if it has no gpucache: names, types, constants, options, and digests of source and first IR. The
    source is recorded only of modules that no import finds, such as those that Inductor and Helion write. Not
    recorded are kernels from files of IR, and constants of types that JSON cannot say. A hit of Triton's
    cache counts, too.
    """
    from gpucache.answers.record import RecordSummary, Unrecorded, recorded_line, unrecorded
    from gpucache.caches.known_caches import KnownCaches
    from gpucache.host.scratch import absent, remove_empty, scratch
    from gpucache.kernels import CACHE, UNSEEN, kept, watched
    from gpucache.recording.kernels import read_kernels
    from gpucache.recording.writing import BLOBS, Writer
    from gpucache.serve.command import heed, run_command
    from gpucache.serve.devices import Devices
    from gpucache.serve.environment import REQUIRE, SOCKET, TIMEOUT
    from gpucache.serve.nvrtc import NVRTC
    from gpucache.serve.opencl import OpenCL
    from gpucache.serve.recorder import Recorder

    command = named_command("record")
    found = libraries(nvrtc=not no_nvrtc)
    told = command if keep_arguments else (Path(command[0]).name,)
    new = absent(folder.absolute() / BLOBS)
    with ExitStack() as ends:
        unbegun = ends.enter_context(ExitStack())
        unbegun.callback(remove_empty, new)
        compilers = OpenCL(Devices(), found), NVRTC()
        recorded = Recorder(Writer(folder.absolute(), sources=not digests_only), told, compilers)
        environ = {**os.environ, TIMEOUT: str(_PATIENCE_MS)}
        environ.pop(REQUIRE, None)  # nothing is served, so that nothing can be a hit
        before = {*read_kernels(folder).kernels}
        environ |= watched(str(folder.absolute()), environ, sources=not digests_only)
        with suppress(OSError):  # without a directory the command still runs, and a message says so
            environ |= KnownCaches(os.environ).isolate(ends.enter_context(scratch("record")))
        ended = run_command(command, environ, found, recorded.handlers)
        unbegun.pop_all()
        kernels = read_kernels(folder)
        if not kernels.anything and (unseen := kept(environ.get(CACHE, ""))):
            recorded.unrecorded[UNSEEN] += unseen
    recorded.unrecorded.update(why for _, why in kernels.unrecorded)
    untold = [Unrecorded(reason, number) for reason, number in sorted(recorded.unrecorded.items())]
    unwritten = sum(one.builds for one in untold)
    builds = recorded.builds + len(kernels.kernels.keys() - before)
    summary = RecordSummary(command[0], ended, str(folder), builds, unwritten, recorded.failed)
    with ending_as(ended):
        heed()
        line = recorded_line(summary, sources=not digests_only, inner=SOCKET in os.environ)
        given().tell("record", untold, summary, [*unrecorded(untold, whole=given().whole), line])
