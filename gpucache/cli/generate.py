"""The files made from the code that owns their facts: man pages, completions, and lines that C writes too.

    python -m gpucache.cli.generate          write them
    python -m gpucache.cli.generate --check  list the outdated ones; exit 3 if there are any

Owns their places in a checkout. They contain no date, no path of this machine and no terminal's width.

The manual pages are of commands (section 1), of a manifest and the documents of ``--json`` (5), and of topics
(7). Must not repeat facts from elsewhere: names, options and help are read from the Click
tree, examples and words from ``topics``, exit codes from the group, variables from the settings,
fields from the manifest's grammar, keys from the types of outcomes.
"""

import inspect
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from gpucache.answers.document import record_name
from gpucache.answers.run_lines import NOT_STARTED, unbuilt
from gpucache.answers.schema import ANSWERS, Answered, Document, Error, meanings, records, words
from gpucache.cli import completion, recipes, topics
from gpucache.cli.group import COMMANDED, PROGRAM, gpucache
from gpucache.cli.topics import EXIT_CODES, WORDS
from gpucache.cli.usage import EXAMPLES, Example
from gpucache.errors import ExitCode
from gpucache.host.file_stamps import FUNCTIONS_OF_FILES
from gpucache.host.scratch import MARK
from gpucache.manifest import FIELDS
from gpucache.serve.command import PASSED_ON
from gpucache.serve.environment import ROOM, ROOM_BYTES
from gpucache.serve.listening import PATH_BYTES_CAP
from gpucache.settings import ENVIRONMENT, RUN_ENVIRONMENT
from gpucache.store.bounded_log import JOURNAL_CAP
from gpucache.store.tag import TAG_NAME, TAG_TEXT

AT_80_COLUMNS = 78  # Click leaves two columns of a terminal free
_SCRIPTS = {"bash": "gpucache.bash", "zsh": "_gpucache", "fish": "gpucache.fish"}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--check", is_flag=True, help="Write nothing; name the outdated files and exit 3.")
def generate(check: bool) -> None:
    """Write the man pages and the completions."""
    top = top_level(Path(__file__))
    changed = {path: text for path, text in files(top).items() if _read(path) != text}
    strays = list(stray_pages(top))
    for path in (*changed, *strays):
        click.echo(f"{path.relative_to(top).as_posix()} {'is out of date' if check else 'written'}")
    if check:
        raise click.exceptions.Exit(ExitCode.FINDINGS if changed or strays else ExitCode.DONE)
    for path, text in changed.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    for path in strays:
        path.unlink()


def top_level(module: Path) -> Path:
    """The checkout that contains a module of ``gpucache/cli/``; raises ClickException if there is none."""
    top = module.resolve().parents[2]
    if not (top / "pyproject.toml").is_file():
        raise click.ClickException(
            f"{top} is not a checkout of gpucache (no pyproject.toml); run this in one"
        )
    return top


def files(top: Path) -> dict[Path, str]:
    """Every generated file with its text."""
    made = {top / "man" / name: text for name, text in pages().items()}
    made[top / "gpucache/native/constants.h"] = _constants()
    for shell in completion.SHELLS:
        made[top / "completions" / _SCRIPTS[shell.name]] = completion.script(shell, gpucache)
    return made


def _constants() -> str:
    """The header with the facts that C shares with Python; 111 stands for a line's argument."""
    lines = {
        "UNSEEN": unbuilt(0, loaded=False),
        "UNSEEN_CODE": unbuilt(111, loaded=False),
        "NO_ROOM": unbuilt(NOT_STARTED, loaded=False),
        "NOTHING": unbuilt(0, loaded=True),
        "NOTHING_CODE": unbuilt(111, loaded=True),
        "BINARY": unbuilt(0, loaded=True, binaries=1),
        "BINARIES": unbuilt(0, loaded=True, binaries=111),
    }
    texts: dict[str, str | int] = {f"LINE_{name}": text.replace("111", "%d") for name, text in lines.items()}
    texts |= {"MARK": MARK, "TAG_NAME": TAG_NAME, "TAG_TEXT": TAG_TEXT.decode()}
    texts |= {"ROOM_NAME": ROOM, "JOURNAL_CAP": JOURNAL_CAP, "SOCKET_CAP": PATH_BYTES_CAP}
    texts["ROOM"] = ROOM_BYTES
    values = {name: json.dumps(value) for name, value in texts.items()}
    values["PASSED_ON"] = ", ".join(PASSED_ON)
    values["FUNCTIONS_OF_FILES"] = ", ".join(
        f"{{\"{name}\", '{form}'}}" for name, form in FUNCTIONS_OF_FILES.items()
    )
    made = "".join(f"#define {name} {value}\n" for name, value in values.items())
    return f"/* Made by python -m gpucache.cli.generate. */\n{made}"


def pages() -> dict[str, str]:
    """Every manual page, by file name."""
    return texts(tree())


def stray_pages(top: Path) -> Iterator[Path]:
    """Manual pages in the checkout that are not made any more."""
    names = pages()
    return (path for path in sorted((top / "man").glob("gpucache*.[157]")) if path.name not in names)


def tree() -> click.Context:
    """The context of the whole command line, at a fixed width."""
    return click.Context(
        gpucache, info_name=PROGRAM, terminal_width=AT_80_COLUMNS, **gpucache.context_settings
    )


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


MANIFEST = "gpucache-manifest"
JSON = "gpucache-json"
OTHERS = ((MANIFEST, 5), (JSON, 5), *topics.PAGES, (recipes.RECIPES, 7))
"""The pages that are of no command, with their sections."""
_WHAT_A_MANIFEST_IS = (
    "A manifest lists programs and how they are built, for gpucache warm --manifest FILE and gpucache bench "
    "--manifest FILE. It is a TOML file in UTF-8, of any name, with one table [[program]] for each program "
    "and at most one table [defaults], whose fields count for all programs. Paths are relative to "
    "the manifest's directory. A field or table of another name is an error that names the line.",
    "The options -I, -D, --option and --local-size of the command line are added to every program.",
)
SAMPLE = """\
[defaults]
include = ["include"]

[[program]]
source = "kernels/*.cl"
defines = { N = 4 }
variants = { T = ["float", "double"] }
local_sizes = [[64], [16, 16]]

[[program]]
source = "kernels/scale.cu"
options = ["-std=c++17"]
targets = ["cuda:sm_80", "cuda:sm_90", "cuda:compute_90"]
name_expressions = ["scale<float>"]
"""
_WHAT_A_DOCUMENT_IS = (
    "With --json, a command prints one JSON document on standard output, also if it could not run; "
    "'inspect --watch' prints an object on each line, the last with the reason it ended. "
    "Names are in snake_case and end in their units: _ms is milliseconds, _ns nanoseconds, _bytes bytes. "
    "Every key is always present; unknown values are null or empty text. A byte of a file name that is not "
    "UTF-8 is escaped as an unpaired surrogate.",
)
FILES = (
    ("CACHEDIR.TAG", "Marks this directory as a cache for backup tools; a shared cache has none."),
    ("v1/entries/", "The entries, one file each, found by their key alone."),
    ("v1/programs/", "The builds, evictions and quarantined entries of each program; explains misses."),
    ("v1/removed.jsonl", "The programs whose records were removed; explains misses; bounded."),
    ("v1/journal/", "The last misses, as inspect --misses shows them."),
    ("v1/missed/", "The requests for warm --misses, with their sources; bounded."),
    (
        "v1/closures/",
        "The headers of programs and the files of compilers, for faster starts; bounded.",
    ),
    ("v1/rows/", "The entry for each build under run, so that a hit needs no server; bounded."),
    ("v1/quarantine/", "Damaged entries: the newest 32, up to 64 MiB in total."),
    (
        "v1/tmp/",
        "Entries being written. Leftovers of killed processes are removed after an hour, with the next "
        "stored entry, by evict and by verify --repair.",
    ),
    (
        "v1/locks/",
        "Locks of the builds in progress. A killed process's lock blocks no other, and is removed likewise.",
    ),
    ("v1/targets.json", "The targets that the last probe found, for completions."),
)

_ROOT = (
    "The cache lives in the user's cache directory (~/.cache/gpucache on Linux, ~/Library/Caches/gpucache on "
    "macOS, %LOCALAPPDATA%\\gpucache\\Cache on Windows), unless --root or GPUCACHE_DIR names another. While "
    "a command runs, compilers write to its directory gpucache-* in TMPDIR, and a cache in one file is "
    "unpacked to such a directory in XDG_RUNTIME_DIR, /dev/shm or TMPDIR; that of a killed command is "
    "removed by the next that needs one."
)


_COMPILERS = (
    "gpucache uses the OpenCL platforms and the NVRTC of the machine. The extra embedded installs two "
    "compilers from PyPI: NVRTC, and PoCL for CPUs (x86-64 Linux). That PoCL is of 2022 and cannot compile "
    "for some newer CPUs, which gpucache devices reports; Debian's pocl-opencl-icd can.",
    "run, record and export layer put a library in C into the command. It is compiled at install time with "
    "cc, or with ziglang from PyPI if there is no cc.",
    "Intel's CPU runtime from PyPI needs an ICD file so that the OpenCL loader can find it:",
)
_INTEL = """\
.venv/bin/pip install intel-opencl-rt intel-cmplr-lib-rt
mkdir icd && echo $PWD/.venv/lib/libintelocl.so > icd/intel.icd
export OCL_ICD_VENDORS=$PWD/icd"""
_COMPLETION = (
    "Manual pages and completions are installed below share in the environment. A place that the shell "
    "searches by itself, such as /usr/local or ~/.local, needs none of these lines; an environment .venv "
    "does:"
)
_SHELLS = """\
share="$PWD/.venv/share"
export MANPATH="$share/man:"
source "$share/bash-completion/completions/gpucache"   # bash
fpath+=("$share/zsh/site-functions")          # zsh, before compinit
cd ~/.config/fish/completions &&                # fish
    ln -s "$share"/fish/vendor_completions.d/gpucache.fish ."""


def texts(context: click.Context) -> dict[str, str]:
    """Every page by file name: for a group, each of its commands, manifests and documents."""
    tree = list(_tree(context))
    every = [*((page_name(one), 1) for one in tree), *OTHERS]
    found = {f"{page_name(one)}.1": _page(one, every) for one in tree}
    others = {f"{MANIFEST}.5": _manifest(), f"{JSON}.5": _json()}
    others |= {f"{name}.7": lines for name, lines in topics.pages()} | {
        f"{recipes.RECIPES}.7": recipes.page()
    }
    return found | {name: "\n".join(lines) + "\n" for name, lines in others.items()}


def _tree(context: click.Context) -> Iterator[click.Context]:
    yield context
    for name, command in commands(context).items():
        yield from _tree(click.Context(command, info_name=name, parent=context))


def commands(context: click.Context) -> dict[str, click.Command]:
    """The commands of a group by name; empty for a command that is not a group."""
    group = context.command
    if not isinstance(group, click.Group):
        return {}
    found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def page_name(context: click.Context) -> str:
    """``gpucache`` or ``gpucache-warm``."""
    return context.command_path.replace(" ", "-")


def _page(context: click.Context, every: Sequence[tuple[str, int]]) -> str:
    name, command = page_name(context), context.command
    lines = [
        *topics.title(name, 1, command.short_help or _paragraphs(command)[0]),
        topics.heading("SYNOPSIS"),
        topics.synopsis(context.command_path, " ".join(command.collect_usage_pieces(context))),
        topics.heading("DESCRIPTION"),
        *topics.paragraphs(_paragraphs(command)),
        *_commands(context),
        topics.heading("OPTIONS"),
        *topics.options(_options(context)),
        *_words(str(context.info_name)),
        *_examples(EXAMPLES.get(context.command_path.partition(" ")[2], ())),
        topics.heading("EXIT STATUS"),
        *_exit_codes(context),
        *_surroundings(context),
        *topics.see_also([page for page in every if page[0] != name]),
    ]
    return "\n".join(lines) + "\n"


def _commands(context: click.Context) -> Iterator[str]:
    if isinstance(context.command, click.Group):
        yield topics.heading("COMMANDS")
        for verb, command in commands(context).items():
            page = topics.reference(f"{page_name(context)}-{verb}", 1)
            yield from (".TP", page, topics.filled(command.short_help or ""))


def _options(context: click.Context) -> Iterator[tuple[str, str]]:
    records = (param.get_help_record(context) for param in context.command.get_params(context))
    return (record for record in records if record and record[1])  # arguments have no help


def _words(verb: str) -> Iterator[str]:
    if verb in WORDS:
        heading, kind = WORDS[verb]
        yield topics.heading(heading)
        yield from topics.listing(words(kind))


def _examples(examples: Sequence[Example]) -> Iterator[str]:
    if examples:
        yield topics.heading("EXAMPLES")
    for number, one in enumerate(examples):
        yield from ((".PP",) if number else ())
        yield from (topics.filled(one.wish), *topics.verbatim(one.command))


def _exit_codes(context: click.Context) -> Iterator[str]:
    """The exit codes for the whole run, and those for a command that could not be started."""
    codes = list(ExitCode)
    verb = context.command_path.partition(" ")[2]
    if verb in COMMANDED[:2]:
        yield topics.filled(
            "That of the command; if a signal ended it, this process ends by the same one. If nothing was "
            "started:"
        )
        of_verbs = (ExitCode.DONE, ExitCode.FINDINGS, ExitCode.INTERRUPTED)
        codes = [code for code in codes if code not in of_verbs]
    elif verb == "export layer":
        yield topics.filled(
            "That of the command if it failed; if a signal ended it, this process ends by the same one, "
            "which a shell shows as 128 and the signal's number. 3 also if the layer serves nothing. Else:"
        )
    elif verb and verb not in COMMANDED:
        codes = [code for code in codes if code not in (ExitCode.NOT_EXECUTABLE, ExitCode.NOT_FOUND)]
    own = EXIT_CODES.get(verb)
    if own is not None:
        codes = [code for code in codes if code in own or code in (ExitCode.UNEXPECTED, ExitCode.INTERRUPTED)]
    yield from topics.listing((str(code.value), (own or {}).get(code, code.meaning)) for code in codes)


def _surroundings(context: click.Context) -> Iterator[str]:
    """Variables and files on the page of the whole command, and on the other pages a reference to it."""
    yield topics.heading("ENVIRONMENT")
    if context.parent is not None:
        page = topics.reference(page_name(context.find_root()), 1)
        told = topics.filled("lists the variables that say where the cache is and how it is used.")
        yield f"{page}\n{told}"
        return
    variables = (*ENVIRONMENT, *RUN_ENVIRONMENT)
    yield from topics.listing((variable.name, variable.meaning) for variable in variables)
    yield from (topics.heading("FILES"), topics.filled(_ROOT), *topics.listing(FILES))
    yield from (topics.heading("COMPILERS"), *topics.paragraphs(_COMPILERS), *topics.verbatim(_INTEL))
    yield from (topics.heading("COMPLETION"), topics.filled(_COMPLETION), *topics.verbatim(_SHELLS))


def _paragraphs(command: click.Command) -> list[str]:
    return [" ".join(text.split()) for text in inspect.cleandoc(command.help or "").split("\n\n")]


def _manifest() -> Iterator[str]:
    yield from topics.title(MANIFEST, 5, "programs to warm")
    yield topics.heading("DESCRIPTION")
    yield from topics.paragraphs(_WHAT_A_MANIFEST_IS)
    yield topics.heading("FIELDS")
    for field in FIELDS:
        where = "" if field.shared else " In [[program]] alone."
        yield from topics.listing([(f"{field.name} = {field.example}", field.meaning + where)])
    yield topics.heading("EXAMPLES")
    yield topics.filled(
        "Each OpenCL program is built twice for every device, the CUDA program for three targets:"
    )
    yield from topics.verbatim(SAMPLE)
    yield from topics.see_also([("gpucache-warm", 1), ("gpucache-bench", 1), ("gpucache", 1)])


def _json() -> Iterator[str]:
    yield from topics.title(JSON, 5, "the JSON documents of gpucache")
    yield topics.heading("DESCRIPTION")
    yield from topics.paragraphs(_WHAT_A_DOCUMENT_IS)
    yield topics.heading("DOCUMENT")
    yield from topics.listing(_rows(Document))
    yield from (
        ".PP",
        topics.filled("If a command could not run, the document has one more key, error, with:"),
    )
    yield from topics.listing(_rows(Error))
    yield topics.heading("OUTPUT")
    for answered in ANSWERS:
        yield from _answered(answered)
    yield topics.heading("RECORDS")
    for kind in records():
        meaning = (kind.__doc__ or "").partition("\n\n")[0]
        yield from (topics.subheading(record_name(kind)), topics.filled(meaning))
        yield from topics.listing(_rows(kind))
    yield from topics.see_also([("gpucache", 1)])


def _answered(one: Answered) -> Iterator[str]:
    outcomes = f"Outcomes: {record_name(one.outcome)}. " if one.outcome else "No outcomes. "
    yield from (
        topics.subheading(f"gpucache {one.asked}"),
        topics.filled(f"{outcomes}{one.meaning} Summary:"),
    )
    yield from topics.listing(_rows(one.summary)) if one.summary else ()


def _rows(kind: type) -> Iterator[tuple[str, str]]:
    return ((key.name, f"({key.form.words}) {meaning}") for key, meaning in meanings(kind))


if __name__ == "__main__":
    generate(prog_name="python -m gpucache.cli.generate")
