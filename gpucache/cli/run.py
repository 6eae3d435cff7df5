"""``gpucache run -- COMMAND``: an unmodified command whose compilers use our cache."""

import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucache.cli.globals import given, global_options, keep, leave
from gpucache.cli.group import COMMAND_LINES
from gpucache.cli.parameters import PathName, StoreName, flag, require_writable, valued
from gpucache.cli.running import Follower, Running, joined
from gpucache.cli.streams import complain
from gpucache.cli.usage import VerbCommand
from gpucache.errors import GpucacheError, UsageError
from gpucache.host import interrupts, os_errors
from gpucache.host.scratch import end_others
from gpucache.serve.command import end_by, heed

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpucache.answers.run import Ended, Intercepted, RunSummary
    from gpucache.model import CacheKey
    from gpucache.settings import Settings


_LEARN_S = 60.0
"""How long --learn, for which a user waits, tries to build a program; ``warm --misses`` takes longer."""
WITHOUT_MARK = {"allow_extra_args": True, "allow_interspersed_args": False}
"""Click passes a command without a preceding ``--`` on to us, with all its options."""
without_nvrtc = flag(
    "--no-nvrtc",
    "Leave NVRTC and hipRTC alone, and set no LD_AUDIT.\f"
    "Leave NVRTC and hipRTC alone, and set no LD_AUDIT: for programs that do not start with an auditor.",
)


@click.command(cls=VerbCommand, options_metavar="[OPTIONS] -- COMMAND...", context_settings=WITHOUT_MARK)
@flag(
    "--learn",
    "Afterwards build the kernels of first launches.\f"
    "Build afterwards the kernels that the compiler builds at first launch, all of them; this "
    "takes up to two minutes for each program.",
)
@click.option(
    "--cache-file", metavar="FILE", type=PathName(dir_okay=False), expose_value=False, callback=keep,
    help="Keep the cache in FILE.\f"
    "Keep the cache in FILE, which is written anew at the end if the cache has changed.",
)  # fmt: skip
@valued("--report", "FILE", PathName(dir_okay=False), "Write the JSON document to FILE.")
@valued(
    "--push url",
    "URL",
    StoreName(),
    "Send what the command adds to any cache to a store.\f"
    "Send what the command adds to any known cache, as it is written.",
)
@flag("--sources with_text", "Push entries that contain source text, too.")
@valued(
    "--keep-sources folder", "DIR", PathName(file_okay=False),
    "Write source, options, log and binary into DIR.\f"
    "Write source, options, log and binary of each program into DIR, in place of those of the run before.",
)  # fmt: skip
@without_nvrtc
@global_options
def run(
    learn: bool, report: Path | None, url: str | None, with_text: bool, folder: Path | None, no_nvrtc: bool
) -> None:
    """Run the command after -- and serve its OpenCL, NVRTC and hipRTC compiles from the cache.

    The command needs no change. On a miss its driver compiles as usual, and the result is cached for
    the next run. For compilers that build at first launch (PoCL) only the request is noted; build it with
    --learn or 'warm --misses'. The exit code is the command's. GPUCACHE_LOG=info prints each hit and miss.

    \f
    Processes that the command starts are served too. If anything goes wrong, or this process is killed, a
    program continues as without gpucache. With GPUCACHE_REQUIRE=1 a miss fails, and its build log has the
    reason.

    NVRTC and hipRTC are reached through LD_AUDIT, which leaves less room for the thread-local variables of
    libraries; so the command has glibc.rtld.optional_static_tls=4096 in GLIBC_TUNABLES, which is enough for
    jemalloc, tcmalloc and ASan. Programs with TSan, LSan or Scudo, which need more, start with --no-nvrtc.

    OpenCL: the ICD loader must support OPENCL_LAYERS. For programs built with clCompileProgram and
    clLinkProgram the link step is served, but not on PoCL. Of a SPIR-V module the first build is served, with
    its specialization constants, as SYCL programs need it on OpenCL devices (SYCL_CACHE_PERSISTENT=1 has them
    keep a cache of their own).

    NVRTC 12 and 13, and the hipRTC of libamdhip64 5 and 6 or libhiprtc 5 to 7 (tried: Debian's 5.2), must be
    loaded dynamically by glibc, from any path. The options of hipRTC must name one architecture, and its
    linker is not served. Not supported: an NVRTC that is linked statically or not named libnvrtc.so (as in
    some wheels), setuid programs, and other C libraries than glibc.

    A program whose mounts, root directory, user, group or capabilities differ from gpucache's, or that has a
    seccomp filter which gpucache lacks, gets hits at most: its misses are not cached. With another /tmp or as
    another user it cannot reach gpucache, and no build of it is seen. For a program in a container with a
    default profile misses are cached if gpucache runs in the container, too.

    With --cache-file, or GPUCACHE_FILE, which every verb and every program that uses gpucache reads, the
    cache is one file: a tar file of a cache's directory, for one program. It is unpacked into memory
    (XDG_RUNTIME_DIR, /dev/shm or TMPDIR) at the start; when it is written, superseded entries are dropped. A
    run that is killed leaves it unchanged, and several runs at once add to it one after another. The file
    need not exist, but its directory must.

    With --push entries are sent within seconds, as 'gpucache push --cache all --follow' does, so a job that
    is killed loses only the last of them. Entries that the caches had before are left to 'gpucache push'; the
    command starts once they are listed. At its end run waits up to a minute until the rest is sent. A store
    that cannot be reached changes neither the command nor its exit code.

    Standard output, input and terminal are the command's. At its end one line on standard error
    summarises its builds; with --json the document is printed there. If a signal ends the command, this
    process ends by the same one.
    """
    from gpucache.answers.run import summarise_run
    from gpucache.settings import Settings

    command = named_command("run")
    if with_text and not url:
        raise UsageError("--sources is about what is sent; add --push URL, or leave it out")
    if report is not None:
        require_writable(report)
    sources = None
    if folder is not None:
        from gpucache.serve.kept_sources import KeptSources

        sources = KeptSources(folder)
    running, misspelt, follower = given().running, "", None
    root = given().root
    try:
        settings = given().settings()
        root = str(settings.folder) if settings.folder is not None else root
    except GpucacheError as error:
        if root == "" or (given().cache_file is not None and isinstance(error, UsageError)):
            raise
        settings, misspelt = Settings(root=None, root_origin="none"), str(error)
    if running is None:
        is_light = not (settings.disabled or settings.log or sources)  # else the server says it
        own, systems = str(settings.folder or settings.root or ""), [*map(str, settings.system_dirs)]
        say = given().say  # silent with --json, whose document is on standard error
        running = Running(
            command,
            joined(own, systems) if is_light else "",
            root,
            misspelt,
            lambda told: say(f"gpucache: {told}"),
            nvrtc=not no_nvrtc,
            sources=sources,
        )
        follower = Follower(url, root, sources=with_text) if url else None
        running.run(given().environment() if not misspelt else os.environ)
        if follower and running.code is None:  # it did not start
            follower.kill()
    with ending_as(ended := running.ended):
        heed()
        outcomes = running.finish()
        opencl = running.opencl and running.opencl.made
        noted = opencl.noted if opencl else frozenset()
        learned, left, _ = (
            build_noted(settings, noted, _LEARN_S)
            if noted and (learn or settings.learn)
            else (0, len(noted), False)
        )
        summary = summarise_run(
            command[0],
            ended,
            outcomes,
            len(noted) if learned else left,
            learned,
            running.binaries,
            *running.in_library,
        )
        _tell(outcomes, summary, report, _written() if settings.folder is not None else ())
        if follower and (why := follower.end()):
            complain(f"gpucache: {why}")


def named_command(verb: str) -> tuple[str, ...]:
    """The command to be run; raises UsageError if it is missing or not after ``--``."""
    command, before = given().command, click.get_current_context().args
    line = COMMAND_LINES[verb]
    if before and command:
        raise UsageError(f"only options may come before '--'; leave {before[0]!r} out")
    if before:
        line = line.replace("./app", shlex.join(before))
        raise UsageError(f"write '--' before the command, as in 'gpucache {line}'")
    if not command:
        raise UsageError(f"no command is named; write it after '--', as in 'gpucache {line}'")
    return command


def build_noted(
    settings: "Settings", noted: "Collection[CacheKey]", timeout_s: float = 300.0
) -> tuple[int, int, bool]:
    """Build the requests that the command noted, in a time for each.

    Returns how many were built, how many 'warm --misses' would build, and whether this was interrupted.
    """
    from gpucache.answers.run_lines import learning_line
    from gpucache.answers.warm import WarmResult
    from gpucache.cli.warm import warm_noted
    from gpucache.units import printable

    try:
        if not (given().json or given().quiet):
            complain(f"gpucache: {learning_line(len(noted))}")
        outcomes = warm_noted(settings, noted, timeout_s)
    except GpucacheError as error:
        complain(f"gpucache: nothing was built for the next run: {error}")
        return 0, len(noted), False
    except KeyboardInterrupt:  # before the first was begun, or after the last
        interrupts.disarm()
        outcomes, interrupted = [], True
    else:
        interrupted = any(one.result is WarmResult.INTERRUPTED for one in outcomes)
    for one in outcomes:
        if one.result not in (WarmResult.BUILT, WarmResult.INTERRUPTED):
            told = f"{one.program} for {one.target} was not built: {one.result}: {one.reason}"
            complain(f"gpucache: {printable(told, None)}")
    built = sum(one.result is WarmResult.BUILT for one in outcomes)
    if interrupted:
        complain(f"gpucache: building for the next run was interrupted after {built} of {len(noted)}")
    lost = sum(one.result in (WarmResult.FAILED, WarmResult.POISONED) for one in outcomes)
    return built, len(noted) - built - lost, interrupted


def _written() -> Iterator[str]:
    """Write the cache's file if the cache has changed, and give a part of the line about it."""
    from gpucache.store.root_file import write_all
    from gpucache.units import format_count, format_size

    for one in write_all():
        if one.problem:
            complain(f"gpucache: {one.problem}")
        if one.problem or not one.size_bytes:
            continue
        has = f"{format_count(one.entries, 'entry', 'entries')}, {format_size(one.size_bytes)}"
        yield f"{one.path.name} {'written' if one.changed else 'unchanged'} ({has})"


def _tell(
    outcomes: "tuple[Intercepted, ...]", summary: "RunSummary", report: Path | None, kept: Iterable[str]
) -> None:
    """Report the results of the builds to stderr, and write the document if a path for it is given."""
    from gpucache.answers.run_lines import reasons, summary_line
    from gpucache.serve.environment import SOCKET

    line = "; ".join([summary_line(summary, inner=SOCKET in os.environ), *kept])
    given().tell("run", outcomes, summary, [*reasons(outcomes, whole=given().whole), line])
    if report is None:
        return
    from gpucache.answers.document import document

    try:
        report.write_text("".join(document("run", outcomes, summary)) + "\n", encoding="ascii")
    except OSError as error:
        complain(f"gpucache: {os_errors.unwritable(report, error, 'name another file')}")


@contextmanager
def ending_as(ended: "Ended") -> Iterator[None]:
    """Report on a command in the block, and end as it did.

    Nothing that the report meets changes that: the program has done its work.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if not isinstance(error, BrokenPipeError | KeyboardInterrupt):
            complain(f"gpucache: the command's builds cannot be reported ({type(error).__name__}: {error})")
    end_as(ended)


def end_as(ended: "Ended") -> None:
    interrupts.disarm()
    if ended.signal:
        end_others()
        end_by(ended.signal)
    leave(ended.code)
