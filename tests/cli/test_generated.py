"""Every file generated from the Click tree is up to date on disk and complete."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gpucache import errors, manifest, settings
from gpucache.cli import completion, generate, main, manual, usage
from gpucache.cli.group import gpucache
from gpucache.errors import GpucacheError
from gpucache.probe import remembered
from gpucache.store import layout
from gpucache.store.tag import TAG_NAME

TOP = Path(__file__).parents[2]
PARTS = (
    "NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "FIELDS", "DOCUMENT", "OUTPUT", "RECORDS", "OPTIONS",
    "RESULTS", "VERDICTS", "FINDINGS", "EXAMPLES", "EXIT STATUS", "ENVIRONMENT", "FILES", "COMPILERS",
    "COMPLETION", "SYSTEMS", "MOVING", "KEYS", "MISSES", "REASONS", "CHECKS", "BATCHES",
    "A LIMIT EVERY DAY", "A MACHINE FOR MANY USERS", "IMAGES", "CONTINUOUS INTEGRATION", "A JOB ARRAY",
    "METRICS", "CONTAINERS", "NODES", "JOBS THAT MAY BE KILLED", "A STORE THAT STAYS SMALL",
    "KERNELS OF SERVERS",
    "UPGRADES OF DRIVERS", "SNAPSHOTS OF ENGINES", "MACHINES THAT WOULD MISS", "FAILURES", "SEE ALSO",
)  # fmt: skip
"""Every section of a page, in order."""
NEEDED = {
    "gpucache": {"DESCRIPTION", "COMMANDS", "OPTIONS", "EXIT STATUS", "ENVIRONMENT", "FILES"},
    "gpucache-export": {"DESCRIPTION", "COMMANDS", "OPTIONS", "EXIT STATUS", "ENVIRONMENT"},
    "gpucache-caches": {"DESCRIPTION", "SYSTEMS", "MOVING"},
    "gpucache-keys": {"KEYS", "MISSES", "REASONS"},
    "gpucache-checks": {"CHECKS", "BATCHES"},
    "gpucache-fleet": {
        "DESCRIPTION",
        "CONTINUOUS INTEGRATION",
        "CONTAINERS",
        "NODES",
        "MACHINES THAT WOULD MISS",
        "FAILURES",
    },
    "gpucache-recipes": {"A LIMIT EVERY DAY", "A MACHINE FOR MANY USERS", "IMAGES", "A JOB ARRAY"},
    "gpucache-manifest": {"DESCRIPTION", "FIELDS", "EXAMPLES"},
    "gpucache-json": {"DESCRIPTION", "DOCUMENT", "OUTPUT", "RECORDS"},
}
OF_A_VERB = {"DESCRIPTION", "OPTIONS", "EXAMPLES", "EXIT STATUS", "ENVIRONMENT"}
PAGES = generate.pages()
OF_COMMANDS = {name: text for name, text in PAGES.items() if name.endswith(".1")}


def commands(command: click.Command = gpucache, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every command of the tree, the root's being empty."""
    yield path
    for name, inner in generate.commands(click.Context(command)).items():
        yield from commands(inner, (*path, name))


def command_at(path: tuple[str, ...]) -> click.Command:
    command: click.Command = gpucache
    for name in path:
        command = generate.commands(click.Context(command))[name]
    return command


class Recorded(dict[str, str]):
    """An environment that remembers the variables read from it."""

    def __init__(self, values: Mapping[str, str]) -> None:
        super().__init__(values)
        self.asked: set[str] = set()

    def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override]
        self.asked.add(key)
        return super().get(key, default)


def test_generated_files_are_up_to_date() -> None:
    """Every generated file on disk equals a fresh one; the remedy is ``python -m gpucache.cli.generate``."""
    made = generate.files(TOP)
    old = [
        path.name for path, text in made.items() if not path.is_file() or path.read_bytes() != text.encode()
    ]
    assert old == []
    assert list(generate.stray_pages(TOP)) == []


def test_check_says_the_same_on_any_terminal_and_in_any_locale() -> None:
    """Neither width, language nor the user's settings affect a generated file."""
    environment = os.environ | {
        "COLUMNS": "200",
        "LC_ALL": "C",
        "LANGUAGE": "de",
        "GPUCACHE_DIR": "/elsewhere",
    }
    command = [sys.executable, "-m", "gpucache.cli.generate", "--check"]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (answer.stdout, answer.stderr, answer.returncode) == ("", "", 0)


def test_generated_files_hold_no_place_of_this_machine() -> None:
    """Man pages and scripts are ASCII and name neither this checkout nor this home."""
    scripts = [completion.script(shell, gpucache) for shell in completion.SHELLS]
    for text in (*PAGES.values(), *scripts):
        assert text.isascii()
        assert str(TOP) not in text
        assert str(Path.home()) not in text


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(generate, "__file__", str(tmp_path / "gpucache" / "cli" / "generate.py"))
    return tmp_path


def test_generate_writes_what_check_then_finds_in_order(checkout: Path) -> None:
    """It writes every file and removes a lost verb's page, and then there is nothing to do."""
    stray = checkout / "man" / "gpucache-prime.1"
    stray.parent.mkdir()
    stray.touch()
    before = CliRunner().invoke(generate.generate, ["--check"])
    assert before.exit_code == 3
    assert "completions/gpucache.bash is out of date" in before.output
    assert "man/gpucache-prime.1 is out of date" in before.output
    assert stray.exists()
    assert CliRunner().invoke(generate.generate, []).exit_code == 0
    after = CliRunner().invoke(generate.generate, ["--check"])
    assert (after.output, after.exit_code) == ("", 0)
    assert not stray.exists()


def test_generate_refuses_what_is_no_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence says that an installed package is not a checkout."""
    monkeypatch.setattr(generate, "__file__", str(tmp_path / "gpucache" / "cli" / "generate.py"))
    answer = CliRunner().invoke(generate.generate, [])
    assert answer.exit_code != 0
    assert "is not a checkout of gpucache" in answer.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_help_works_for_every_command(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--help`` ends with 0, fits a terminal of 80 columns and has one line for each option."""
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*path, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Usage: {' '.join(('gpucache', *path))} ")
    assert max(map(len, shown.splitlines())) <= 80
    assert not re.search(r"^ {8,}\S", shown.partition("\nOptions:")[2], re.MULTILINE)
    assert main(["help", *path]) == 0
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_every_command_and_option_has_a_help(path: tuple[str, ...]) -> None:
    """Every command has a short and a full description, every option a help in sentences."""
    command = command_at(path)
    assert command.help
    assert not path or (command.short_help or "").endswith(".")
    for param in command.get_params(click.Context(command)):
        if isinstance(param, click.Option):
            assert (param.help or "").endswith("."), param.opts


def test_every_command_has_a_page_with_every_section() -> None:
    """One page for the group and one for each verb, and each page has its sections in order."""
    assert sorted(OF_COMMANDS) == sorted(f"{'-'.join(('gpucache', *path))}.1" for path in commands())
    for name, text in PAGES.items():
        found = re.findall(r"^\.SH (.+)$", text, re.MULTILINE)
        needed = NEEDED.get(name[:-2], OF_A_VERB) | {"NAME", "SEE ALSO"}
        assert needed <= set(found), name
        assert found == [part for part in PARTS if part in found], name


def test_the_page_of_the_manifest_tells_every_field() -> None:
    """The terms of the page are the fields of a manifest."""
    terms = re.findall(r"^\.TP\n\\fB(\w+)", PAGES["gpucache-manifest.5"], re.MULTILINE)
    assert {*terms} == manifest.FIELDS and len(terms) == len(manifest.FIELDS)


def test_every_page_is_installed() -> None:
    """The wheel puts every page where man looks for its section."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))
    shared = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    placed = {source: place for source, place in shared.items() if source.startswith("man/")}
    assert placed == {f"man/{name}": f"share/man/man{name[-1]}/{name}" for name in PAGES}


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("reader", ["groff", "mandoc", "lexgrog"])
def test_pages_are_sound_roff(reader: str, name: str) -> None:
    """Groff formats a page in 80 columns, mandoc misses the date alone, and man-db finds its name."""
    if shutil.which(reader) is None:
        pytest.skip(f"{reader} is not installed")
    how = {"groff": "-ww -man -Tascii -P-cbou -rLL=78n", "mandoc": "-T lint -W warning", "lexgrog": ""}
    command = [reader, *how[reader].split(), str(TOP / "man" / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=reader != "mandoc")
    lines = done.stdout.splitlines()
    if reader == "groff":
        assert done.stderr == "" and max(map(len, lines)) <= 80
    elif reader == "mandoc":
        assert [line for line in lines if "missing date" not in line] == []
    else:
        assert f'"{name[:-2]} - ' in done.stdout


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_a_page_tells_every_option(path: tuple[str, ...]) -> None:
    """Every spelling of every option is on its verb's page, and every variable on the main page."""
    page = PAGES[f"{'-'.join(('gpucache', *path))}.1"]
    words = set(re.findall(r"[\w-]+", re.sub(r"\\f[BIR]", " ", page).replace(r"\-", "-")))
    options = {
        spelled
        for param in command_at(path).params
        if isinstance(param, click.Option)
        for spelled in param.opts
    }
    variables = {*settings.ENVIRONMENT, *settings.RUN_ENVIRONMENT}
    assert (options if path else options | variables) <= words


@pytest.mark.parametrize(
    ("command", "script"),
    [
        (("shellcheck",), "gpucache.bash"),
        (("bash", "-n"), "gpucache.bash"),
        (("zsh", "-n"), "_gpucache"),
        (("fish", "-n"), "gpucache.fish"),
    ],
)
def test_completion_scripts_are_sound(command: tuple[str, ...], script: str) -> None:
    """Each shell reads its script, and shellcheck has nothing to say of the one it knows."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    answer = subprocess.run([*command, str(TOP / "completions" / script)], capture_output=True, text=True)
    assert (answer.stdout, answer.stderr, answer.returncode) == ("", "", 0)


def test_the_documented_exit_codes_are_the_ones_in_use() -> None:
    """Help and man pages name every exit code, and every exception of ours ends with one of them."""
    page = generate.pages()["gpucache.1"]
    for code in errors.ExitCode:
        assert f"  {code.value:<4} {code.meaning}\n" in str(gpucache.epilog)
        assert f"\\fB{code.value}\\fR\n{manual.filled(code.meaning)}\n" in page
    raised = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, GpucacheError)
    ]
    assert all(isinstance(kind.exit_code, errors.ExitCode) for kind in raised)


def test_the_documented_variables_are_the_ones_read() -> None:
    """The table has exactly the variables that the settings read or any module names."""
    documented = settings.ENVIRONMENT
    environment = Recorded({})
    settings.read_settings(environment)
    assert sorted(name for name in environment.asked if name.startswith("GPUCACHE_")) == sorted(documented)
    sources = (path.read_text(encoding="utf-8") for path in (TOP / "gpucache").rglob("*.py"))
    named = {name for text in sources for name in re.findall(r"\bGPUCACHE_[A-Z_]+\b", text)}
    header = (TOP / "gpucache/include/gpucache/check.h").read_text(encoding="utf-8")
    macros = set(re.findall(r"\bGPUCACHE_[A-Z_]+\b", header))  # which are no variables
    of_run = {*settings.RUN_ENVIRONMENT}
    clients = "".join(path.read_text(encoding="utf-8") for path in (TOP / "gpucache/native").glob("*.[ch]"))
    of_server = {"GPUCACHE_OWNER_UID", "GPUCACHE_RECORD_KERNELS", "GPUCACHE_FOLLOWED"}
    of_server |= {"GPUCACHE_RECORD_NO_SOURCES"}
    of_programs = {"GPUCACHE_DISABLE", "GPUCACHE_LOG", "GPUCACHE_READ_ONLY", "GPUCACHE_REQUIRE"}
    of_programs |= {"GPUCACHE_DIR", "GPUCACHE_FILE", "GPUCACHE_SYSTEM_DIRS"}
    assert set(re.findall(r'"(GPUCACHE_[A-Z_]+)"', clients)) == of_run - of_server | of_programs
    assert named - macros == {*documented, *of_run}


def test_the_documented_files_are_the_ones_of_the_store() -> None:
    """FILES names every directory and file that is below a root."""
    kept = (
        layout.ENTRIES,
        layout.ROWS,
        layout.PROGRAMS,
        layout.MISSED,
        layout.QUARANTINE,
    )
    places = {f"{'/'.join(folder)}/" for folder in kept}
    names = (layout.LOG_NAME, f"{layout.RECORDS_NAME}.row", layout.REMOVED_NAME, "*.lock")
    files = {TAG_NAME, *(f"{layout.VERSION_FOLDER}/{name}" for name in names), remembered.FILE.as_posix()}
    told = {*manual.terms("surroundings")}
    assert told == places | files | {*settings.ENVIRONMENT, *settings.RUN_ENVIRONMENT}


def test_help_is_in_groups_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    """Options of one subject are together, every heading has some, and each verb shows two examples."""
    assert main(["warm", "--help"]) == 0
    text = capsys.readouterr().out
    headings = re.findall(r"^(\w+):$", text, re.MULTILINE)
    assert headings == ["Options", "Selecting", "Building", "Clusters", "Output", "Examples"]
    assert len(re.findall(r"^  gpucache warm", text, re.MULTILINE)) == 2


def test_every_grouped_option_exists() -> None:
    """No heading names an option that no verb has."""
    every = {name for path in commands() for param in command_at(path).params for name in param.opts}
    named = {name.partition("/")[0] for names in usage.GROUPS.values() for name in names.split()}
    assert named - every == set()
