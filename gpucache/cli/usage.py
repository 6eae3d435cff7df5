"""Examples of each verb, and the help of a command: its options in groups, and its first two examples.

Imports nothing but Click: help answers at once. Must not know what an option does.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import click

GROUPS = {
    "Options": "",
    "Selecting": "--cache --manifest --example --target --program --recording --misses/warm --device-profile "
    "--since --max-size --max-files --older-than --superseded --stale --unlike --all --part --want "
    "--keep-binaries",
    "Building": "-I -D --option --name-expression --spec-constant --local-size --checks --jobs "
    "--timeout/warm --shared/warm --retry",
    "Clusters": "--on",
    "Output": "--json --format --color --quiet --verbose --root",
}
"""The headings of help, each with its options: ``--name``, or ``--name/verb`` for one verb. All other options
are below the first heading."""
_HEADINGS: Mapping[str, str] = {name: heading for heading, names in GROUPS.items() for name in names.split()}
_EXAMPLES_SHOWN = 2


class VerbCommand(click.Command):
    """A command whose help has its options in groups, a line for each, then examples.

    An option's text may have a form feed: help shows what is before it, the page what is after it.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.page_texts: dict[click.Parameter, str] = {}
        for param in self.params:
            if isinstance(param, click.Option):
                short, _, self.page_texts[param] = (param.help or "").partition("\f")
                param.help = short

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {heading: [] for heading in GROUPS}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                long = max(param.opts, key=len)
                heading = _HEADINGS.get(f"{long}/{self.name}") or _HEADINGS.get(long, "Options")
                groups[heading].append(record)
        for heading, rows in groups.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        examples = EXAMPLES.get(ctx.command_path.partition(" ")[2], ())[:_EXAMPLES_SHOWN]
        if examples:
            with formatter.section("Examples"):
                for one in examples:
                    formatter.write(f"{'':{formatter.current_indent}}# {one.wish.rstrip(':')}\n")
                    formatter.write(f"{'':{formatter.current_indent}}{one.command}\n")


class Example(NamedTuple):
    """A task, and the command for it."""

    wish: str
    command: str


EXAMPLES = {
    "devices": (
        Example("The targets of this machine:", "gpucache devices"),
        Example("Save this machine's profile, to check elsewhere for it:",
                "gpucache devices --save node.json"),
        Example("The differences that keep two machines from sharing entries:",
                "gpucache devices --compare node.json other.json"),
    ),
    "warm": (
        Example("Try it, with the programs that come with gpucache:", "gpucache warm --example"),
        Example(
            "All programs of a directory, for PoCL and for a GPU of another machine:",
            "gpucache warm kernels/ --target opencl:pocl --target cuda:sm_90",
        ),
        Example("The programs of a manifest, into a cache for an image:",
                "gpucache --root image/cache warm --shared --manifest gpucache.toml"),
        Example("Stop a deployment (exit 3) if anything would be compiled:",
                "gpucache warm --check --manifest gpucache.toml"),
        Example("The same for another machine:",
                "gpucache warm --check kernels/ --device-profile node.json"),
        Example("Which machines of a fleet would miss recorded programs, and what would serve all:",
                "gpucache warm --check --device-profile node.json --recording app"),
        Example("The programs that a command compiled elsewhere, for this machine's devices:",
                "gpucache warm --recording recording"),
        Example("Kernels of Triton that a server compiled, for another GPU:",
                "gpucache warm --recording recording --target hip:gfx942"),
        Example("Fill every cache that a program uses, below one directory:",
                "gpucache warm --into caches -- python app.py"),
    ),
    "inspect": (
        Example("Every cache on this machine, and the last misses:", "gpucache inspect"),
        Example("The entries of one program, with all key fields if it is one entry:",
                "gpucache inspect saxpy.cl --target opencl:pocl"),
        Example("Would it hit if it were built like this, and if not why?",
                "gpucache inspect --why kernels/saxpy.cl --target opencl:pocl -D N=8"),
        Example("The misses of the last hour:", "gpucache inspect --misses --since 1h"),
        Example("The cubin of an entry, for other tools:",
                "gpucache inspect scale.cu --target cuda:sm_90 --extract scale.cubin"),
        Example("The programs that a command compiled:", "gpucache inspect --recording recording"),
        Example("The entries of PoCL's cache:", "gpucache inspect --cache pocl --list"),
        Example("Hits, misses by reason and the time saved, since the last --zero:",
                "gpucache inspect --stats"),
        Example("The same for Prometheus, by node_exporter's textfile collector:",
                "gpucache inspect --stats --format prometheus"),
    ),
    "verify": (
        Example("Is every entry of the cache intact?", "gpucache verify"),
        Example("Quarantine damaged entries:", "gpucache verify --repair"),
        Example("Compile the entries of one program again, and compare:",
                "gpucache verify scale.cu --rebuild"),
        Example("Every cache on this machine, for a script:", "gpucache --json verify --cache all"),
    ),
    "evict": (
        Example("The entries that a limit of 2 GiB would remove:",
                "gpucache evict --max-size 2GiB --dry-run"),
        Example("Entries that are stale and unused for a month:",
                "gpucache evict --older-than 30d --stale"),
        Example("The entries of one program for one target:",
                "gpucache evict --program scale.cu --target cuda:sm_90"),
        Example("Limit the size of another system's cache, by that system's rules:",
                "gpucache evict --cache pocl --max-size 500M"),
        Example("Everything:", "gpucache evict --all --yes"),
    ),
    "run": (
        Example("An unmodified program, which gets its builds from the cache:",
                "gpucache run -- ffmpeg -i in.mp4 -vf avgblur_opencl out.mp4"),
        Example("With PoCL: build this run's kernels after its end, so that the next run hits:",
                "gpucache run --learn -- python app.py"),
        Example("The cache of one program in one file beside it:",
                "gpucache run --cache-file app.cache -- python app.py"),
        Example("A job that may be preempted: what it compiles is in a store within seconds:",
                "gpucache run --push s3://fleet/caches -- python train.py"),
        Example("The result of every build, as JSON:",
                "gpucache run --report builds.json -- python app.py"),
    ),
    "record": (
        Example("The programs that a command compiles; a further run adds to them:",
                "gpucache record -o recording -- python app.py"),
        Example("Build them on another machine, into a cache for an image:",
                "gpucache --root image/cache warm --shared --recording recording"),
        Example("Names and digests alone, enough to check a machine's cache:",
                "gpucache record -o digests --digests-only -- python app.py"),
        Example("Every kernel of Triton that a server compiles:",
                "gpucache record -o recording -- python serve.py"),
        Example("The check on that machine:", "gpucache warm --check --recording digests"),
    ),
    "bench": (
        Example("Starts of a program with an empty cache and with a full one:",
                "gpucache bench kernels/saxpy.cl --target opencl:pocl --local-size 64"),
        Example("The same for any command, with a plot of the results:",
                "gpucache bench --runs 10 --export starts.svg -- python app.py"),
        Example("A test that fails (exit 3) unless a warm start is twice as fast:",
                "gpucache bench --fail-below 2 --manifest gpucache.toml"),
        Example("Compared with cuda.core's own cache:",
                "gpucache bench scale.cu --target cuda:sm_90 --against cuda.core"),
        Example("The cost of checks inside kernels on PoCL:", "gpucache bench --checks --target opencl:pocl"),
    ),
    "push": (
        Example("Send the entries of every cache on this machine, signed:",
                "gpucache push s3://fleet/caches --cache all --key ci.key"),
        Example("The entries of one program, as a plan:", "gpucache push store saxpy.cl --dry-run"),
        Example("Beside a job: what it adds to any cache, within seconds:",
                "gpucache push s3://fleet/caches --cache all --follow"),
    ),
    "pull": (
        Example("Fill this user's caches before a job starts:",
                "gpucache pull s3://fleet/caches --cache all"),
        Example("In an init container, into a volume that programs find by gpucache.env:",
                "gpucache pull https://caches/fleet --cache all --to /c --best-effort"),
        Example("The entries that another machine would get:",
                "gpucache pull store --dry-run --device-profile node.json"),
    ),
    "key": (
        Example("A key for a machine that pushes; the name of the file is the name of the key:",
                "gpucache key ci.key"),
        Example("The line for GPUCACHE_TRUSTED_KEYS on machines that pull:", "gpucache key --public ci.key"),
    ),
    "export futhark": (
        Example("A cache file for another machine, from a Futhark program's dump:",
                "gpucache export futhark foo.cache foo.cu --target cuda:sm_86"),
    ),
    "export rocfft": (
        Example("One rocFFT database from the databases of several nodes:",
                "gpucache export rocfft all.db node1.db node2.db"),
    ),
    "export rocfft-image": (
        Example("An image for rocfft_cache_deserialize:", "gpucache export rocfft-image all.image all.db"),
    ),
    "export rocfft-restore": (
        Example("The database of an image:", "gpucache export rocfft-restore all.db all.image"),
    ),
    "export root": (
        Example("The cache of one program, for a start elsewhere with GPUCACHE_FILE=fft.cache:",
                "gpucache export root fft.cache --program fft.cl"),
    ),
    "export layer": (
        Example("The builds of a service, for an image that has them in /opt/layer:",
                "gpucache export layer layer --at /opt/layer -- ./service --check"),
    ),
}  # fmt: skip
