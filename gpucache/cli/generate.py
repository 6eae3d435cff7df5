"""The files made from the code that owns their facts: man pages, completions, and lines that C writes too.

    python -m gpucache.cli.generate          write them
    python -m gpucache.cli.generate --check  list the outdated ones; exit 3 if there are any

Owns their places in a checkout. They contain no date, no path of this machine and no terminal's width.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import click

from gpucache.answers.run_lines import NOT_STARTED, unbuilt
from gpucache.cli import completion, manual
from gpucache.cli.group import PROGRAM, gpucache
from gpucache.errors import ExitCode
from gpucache.host.scratch import MARK
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
    made[top / "gpucache/native/run_lines.h"] = _lines()
    for shell in completion.SHELLS:
        made[top / "completions" / _SCRIPTS[shell.name]] = completion.script(shell, gpucache)
    return made


def _lines() -> str:
    """The header with the texts that ``run`` writes without Python; 111 stands for their argument."""
    lines = {
        "UNSEEN": unbuilt(0, loaded=False),
        "UNSEEN_CODE": unbuilt(111, loaded=False),
        "NO_ROOM": unbuilt(NOT_STARTED, loaded=False),
        "NOTHING": unbuilt(0, loaded=True),
        "NOTHING_CODE": unbuilt(111, loaded=True),
        "BINARY": unbuilt(0, loaded=True, binaries=1),
        "BINARIES": unbuilt(0, loaded=True, binaries=111),
    }
    texts = {f"LINE_{name}": text.replace("111", "%d") for name, text in lines.items()}
    texts |= {"MARK": MARK, "TAG_NAME": TAG_NAME, "TAG_TEXT": TAG_TEXT.decode()}
    made = "".join(f"#define {name} {json.dumps(text)}\n" for name, text in texts.items())
    return f"/* Made by python -m gpucache.cli.generate. */\n{made}"


def pages() -> dict[str, str]:
    """Every manual page, by file name."""
    return manual.pages(tree())


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


if __name__ == "__main__":
    generate(prog_name="python -m gpucache.cli.generate")
