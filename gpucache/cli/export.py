"""``gpucache export``: write a cache of another system, for machines that are not here."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucache.cli.globals import given, global_options
from gpucache.cli.parameters import TargetName, field
from gpucache.errors import UsageError

if TYPE_CHECKING:
    from gpucache.outcomes import Exported

FORMATS = ("futhark", "rocfft", "rocfft-image", "rocfft-restore")


@click.command()
@click.argument("form", metavar="|".join(FORMATS), type=click.Choice(FORMATS))
@click.argument("out", metavar="OUT", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--target", metavar="T", type=TargetName(), help="futhark: the device, such as cuda:sm_86.")
@click.option(
    "--option", "options", metavar="O", multiple=True, help="futhark: what --nvrtc-option is given."
)
@click.option(
    "--log",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="futhark: what the program wrote with -L; its option list is taken as it is.",
)
@click.option(
    "--like",
    metavar="FIELD=VALUE",
    multiple=True,
    help="rocfft: only rows with this arch, hip_version or generator_sum; may be given again.",
)
@click.option("--keep-times", is_flag=True, help="rocfft: keep the rows' times, which makes files differ.")
@click.option(
    "--into", is_flag=True, help="rocfft: add to OUT, which is there, and replace older rows; times are kept."
)
@global_options
def export(
    form: str,
    out: Path,
    sources: tuple[Path, ...],
    target: str | None,
    options: tuple[str, ...],
    log: Path | None,
    like: tuple[str, ...],
    keep_times: bool,
    into: bool,
) -> None:
    """Write OUT, a cache file of another system, which its programs then hit.

    futhark: SOURCE is what a program dumped with --dump-cuda; it is compiled to PTX with the options
    that Futhark gives NVRTC. rocfft: the SOURCEs are databases or images, merged into one database
    whose bytes depend on its rows alone. rocfft-image: one database as an image for nodes without a
    disk; rocfft-restore: an image as a database again. OUT is published whole or not at all.
    """  # fmt: skip
    from gpucache.render.tables import exported

    if given().verbose:
        raise UsageError("export says all it knows; leave --verbose out")
    if form == "futhark":
        _refuse(form, {"--like": like, "--keep-times": keep_times, "--into": into})
        done = _futhark(out, sources, target, options, log)
    else:
        _refuse(form, {"--target": target, "--option": options, "--log": log})
        done = _rocfft(form, out, sources, like, keep_times=keep_times, into=into)
    given().document("export", [done], {"entries": done.entries})
    given().show(exported(done))


def _refuse(form: str, unmeant: dict[str, object]) -> None:
    for option, value in unmeant.items():
        if value:
            raise UsageError(f"{option} is not for {form}; leave it out")


def _futhark(
    out: Path, sources: tuple[Path, ...], target: str | None, options: tuple[str, ...], log: Path | None
) -> "Exported":
    from gpucache.assembly import compile_exactly
    from gpucache.caches.exports import futhark_file
    from gpucache.model import Language
    from gpucache.sources import load_program

    if len(sources) != 1:
        raise UsageError(f"a Futhark cache file holds one program, and {len(sources)} are named; name one")
    if target is None and log is None:
        raise UsageError("say which device the file is for, such as --target cuda:sm_86, or give the --log")
    if target is not None and log is not None:
        raise UsageError("the log says what the program is built for; leave --target out")
    program = load_program(sources[0], sources[0].name, Language.CUDA_CPP)
    told = None if log is None else _read(log)
    return futhark_file(out, program, target, options, told, compile_exactly)


def _rocfft(
    form: str, out: Path, sources: tuple[Path, ...], like: tuple[str, ...], *, keep_times: bool, into: bool
) -> "Exported":
    from gpucache.caches.exports import rocfft_database, rocfft_image, rocfft_restored

    if form == "rocfft":
        fields = tuple(field("--like", text, "; write it as arch=gfx90a") for text in like)
        return rocfft_database(out, sources, fields, keep_times=keep_times, into=into)
    _refuse(form, {"--like": like, "--keep-times": keep_times, "--into": into})
    if len(sources) != 1:
        raise UsageError(f"{form} takes one SOURCE, and {len(sources)} are named; merge them first")
    return (rocfft_image if form == "rocfft-image" else rocfft_restored)(out, sources[0])


def _read(path: Path) -> bytes:
    from gpucache.cli.files import read_whole

    try:
        return read_whole(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); name the log that -L wrote") from None
