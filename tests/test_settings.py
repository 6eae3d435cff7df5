"""Settings: option over environment over default, each with its origin."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache import settings
from gpucache.errors import CacheUnusableError, UsageError
from gpucache.settings import (
    DEFAULT_MEMORY_BYTES,
    Settings,
    file_defaults,
    named_by,
    read_settings,
    unknown_variables,
)
from tests.children import run_text


def test_several_stores_stand_apart_by_spaces() -> None:
    """Names of directories may have spaces."""
    remote = read_settings({"GPUCACHE_REMOTE": "/a dir/store oci://host/x  s3://bucket/y"}).remote
    assert remote is not None
    assert (remote.url, *remote.others) == ("/a dir/store", "oci://host/x", "s3://bucket/y")
    remote = read_settings({"GPUCACHE_REMOTE": "./one ./two s3:/typo"}).remote
    assert remote is not None
    assert (remote.url, *remote.others) == ("./one", "./two", "s3:/typo")


def test_the_option_wins_over_the_environment(tmp_path: Path) -> None:
    """A root named by the option is used, whatever the environment says."""
    found = read_settings({"GPUCACHE_DIR": str(tmp_path / "b")}, root=str(tmp_path / "a"))
    assert (found.root, found.root_origin) == (tmp_path / "a", "--root")


def test_the_environment_wins_over_the_default(tmp_path: Path) -> None:
    """A root named by the environment is used if no option is given."""
    found = read_settings({"GPUCACHE_DIR": str(tmp_path)})
    assert (found.root, found.root_origin) == (tmp_path, "GPUCACHE_DIR")


@pytest.mark.parametrize("environ", [{}, {"GPUCACHE_DIR": ""}])
def test_the_default_is_the_users_cache(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With nothing named, or an empty name, the root is in the user's cache directory."""
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda *_, **__: str(tmp_path / "gpucache"))
    found = read_settings(environ)
    assert (found.root, found.root_origin) == (tmp_path / "gpucache", "default")


def test_relative_places_are_meant_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative roots become absolute, since workers run in a separate directory."""
    monkeypatch.chdir(tmp_path)
    environ = {"GPUCACHE_DIR": "own", "GPUCACHE_SYSTEM_DIRS": os.pathsep.join(["one", "", "two"])}
    found = read_settings(environ)
    assert found.root == tmp_path / "own"
    assert found.system_dirs == (tmp_path / "one", tmp_path / "two")


def test_an_empty_option_is_not_the_current_directory() -> None:
    """An empty root, as an unset shell variable gives it, is refused."""
    with pytest.raises(UsageError, match="--root is empty; name a directory"):
        read_settings({}, root="")


def test_defaults_of_everything_else() -> None:
    """An empty environment disables nothing and bounds only the memory store."""
    found = read_settings({}, root="/somewhere")
    assert found == Settings(
        root=Path("/somewhere").absolute(),
        root_origin="--root",
        system_dirs=(),
        max_size_bytes=None,
        memory_bytes=DEFAULT_MEMORY_BYTES,
        disabled=False,
        read_only=False,
        require=False,
        log="",
    )


def test_sizes_and_log_are_read() -> None:
    """Sizes are read with their units, zero turns the memory store off, and the log is text."""
    environ = {"GPUCACHE_MAX_SIZE": "2GiB", "GPUCACHE_MEMORY_BYTES": "0", "GPUCACHE_LOG": "debug"}
    found = read_settings(environ, root="/r")
    assert (found.max_size_bytes, found.memory_bytes, found.log) == (2 * 1024**3, 0, "debug")


_FLAGS: list[tuple[str, Callable[[Settings], bool]]] = [
    ("GPUCACHE_DISABLE", lambda found: found.disabled),
    ("GPUCACHE_READ_ONLY", lambda found: found.read_only),
    ("GPUCACHE_REQUIRE", lambda found: found.require),
]


@pytest.mark.parametrize(("name", "read"), _FLAGS)
def test_flags_are_read(name: str, read: Callable[[Settings], bool]) -> None:
    """A flag has several words for yes and for no, in any case."""
    for text in ("1", "true", "YES", " on "):
        assert read(read_settings({name: text}, root="/r"))
    for text in ("", "0", "False", "no", "OFF"):
        assert not read(read_settings({name: text}, root="/r"))


@pytest.mark.parametrize("name", [name for name, _ in _FLAGS])
def test_a_bad_flag_is_refused(name: str) -> None:
    """A flag that is neither yes nor no is named with the remedy."""
    with pytest.raises(UsageError, match=f"{name}=perhaps is not yes or no; set it to 1 or 0"):
        read_settings({name: "perhaps"}, root="/r")


@pytest.mark.parametrize("name", ["GPUCACHE_MAX_SIZE", "GPUCACHE_MEMORY_BYTES"])
def test_a_bad_size_is_refused(name: str) -> None:
    """A size that cannot be parsed is named with its variable and the remedy."""
    with pytest.raises(UsageError, match=f"{name}: 'much' is not a size; write a number"):
        read_settings({name: "much"}, root="/r")


def _raise_key_error(*_: object, **__: object) -> str:
    raise KeyError("getpwuid(): uid not found: 4711")


@pytest.mark.parametrize("answer", [lambda *_, **__: "~/.cache/gpucache", _raise_key_error])
def test_no_home_is_no_root(answer: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a home there is no default root, and the error names the remedy."""
    monkeypatch.setattr("platformdirs.user_cache_dir", answer)
    found = read_settings({})
    assert found.root is None
    with pytest.raises(CacheUnusableError, match=r"no home directory .* set GPUCACHE_DIR"):
        found.require_root()


@pytest.mark.parametrize(("uid", "usable"), [(0, True), (4711, False)])
def test_a_home_of_slash_is_roots_alone(uid: int, usable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """HOME=/, which container runtimes set for a uid without a name, counts as a home only for root."""
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda *_, **__: "/.cache/gpucache")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "geteuid", lambda: uid, raising=False)
    assert (read_settings({}).root is not None) is usable


def test_a_named_root_needs_no_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A named root is used even without a home."""
    monkeypatch.setattr("platformdirs.user_cache_dir", _raise_key_error)
    assert read_settings({"GPUCACHE_DIR": str(tmp_path)}).require_root() == tmp_path


def test_a_misspelt_variable_is_told_with_the_nearest_name() -> None:
    """Each variable similar to ours is reported once; ours and unrelated ones are not."""
    environ = {"GPUCACHE_DISABEL": "1", "GPUCACHE_DIR": "/x", "_GPUCACHE_COMPLETE": "x", "HOME": "/root"}
    (sentence,) = unknown_variables(environ)
    assert sentence.startswith("GPUCACHE_DISABEL is set") and sentence.endswith("GPUCACHE_DISABLE does")


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of the user's settings file, next to that of a machine."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(settings, "MACHINE", str(tmp_path / "machine.toml"))
    (tmp_path / "gpucache").mkdir()
    return tmp_path / "gpucache" / "settings.toml"


def test_files_are_defaults_of_variables(own_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's file wins over the machine's; lists, truth values and paths have the variables' form."""
    monkeypatch.setenv("WHO", "me")
    machine = 'max_size = "20GiB"\nread_only = true\nsystem_dirs = ["/a", "/b"]\n'
    (own_file.parent.parent / "machine.toml").write_text(machine, encoding="utf-8")
    own_file.write_text('max_size = "1GiB"\ndir = "/scratch/$WHO"\n', encoding="utf-8")
    assert file_defaults({}) == {
        "GPUCACHE_MAX_SIZE": "1GiB",
        "GPUCACHE_READ_ONLY": "1",
        "GPUCACHE_SYSTEM_DIRS": "/a:/b",
        "GPUCACHE_DIR": "/scratch/me",
    }


def test_a_place_is_decided_by_the_file_that_names_it(own_file: Path) -> None:
    """A variable that is set wins, and is named itself."""
    own_file.write_text('dir = "/scratch/mine"\n', encoding="utf-8")
    assert file_defaults({}) and named_by("GPUCACHE_DIR") == str(own_file)
    assert not file_defaults({"GPUCACHE_DIR": "/a"}) and named_by("GPUCACHE_DIR") == "GPUCACHE_DIR"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max_sise = 1", "did you mean 'max_size'"),
        ("max_size", "is not TOML"),
        ('dir = "here"', "relative path"),
        ("dir = {}", "write one in quotes"),
        ('dir = "/scratch/$NO_SUCH_NAME/c"', "NO_SUCH_NAME for dir, which is not set"),
        ('max_size = "many"', "wrong value for max_size"),
        ('require = "maybe"', "wrong value for require"),
        (f"log = '{'x' * 70_000}'", "larger than"),
    ],
)
def test_a_wrong_file_is_refused(own_file: Path, text: str, words: str) -> None:
    """One sentence names the file and the remedy."""
    own_file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=words) as refused:
        file_defaults({})
    assert str(own_file) in str(refused.value)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="there are no permissions here")
def test_a_file_that_others_change_is_refused(own_file: Path) -> None:
    """Who can write it could name a cache of his own."""
    own_file.write_text("", encoding="utf-8")
    own_file.chmod(0o666)
    with pytest.raises(UsageError, match="chmod go-w"):
        file_defaults({})


@pytest.mark.skipif(sys.platform != "linux", reason="run is for Linux")
def test_a_command_and_a_program_read_the_file(own_file: Path, tmp_path: Path) -> None:
    """Below run the command finds the variables, and one that is set wins; a program uses the directory."""
    own_file.write_text(f'dir = "{tmp_path / "named"}"\nmax_size = "1GiB"\n', encoding="utf-8")
    environ = {**os.environ, "GPUCACHE_MAX_SIZE": "2GiB"}
    environ.pop("GPUCACHE_DIR", None)
    told = run_text(
        ["gpucache", "run", "-q", "--", "sh", "-c", "echo $GPUCACHE_DIR $GPUCACHE_MAX_SIZE"],
        env={**environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    assert told.stdout.split() == [str(tmp_path / "named"), "2GiB"]
    ask = "from gpucache.library.process import stores; print(stores().user.root)"
    assert run_text([sys.executable, "-c", ask], env=environ).stdout.strip() == str(tmp_path / "named")


def test_a_settings_file_that_is_wrong_stops_no_command(own_file: Path, tmp_path: Path) -> None:
    """It runs without gpucache, as with a wrong variable; every other verb says so and ends."""
    own_file.write_text("max_size = \n", encoding="utf-8")
    environ = {**os.environ, "GPUCACHE_DIR": str(tmp_path / "root")}
    words = (sys.executable, "-m", "gpucache")
    done = run_text([*words, "run", "--", sys.executable, "-c", "raise SystemExit(7)"], env=environ)
    assert (done.returncode, "settings.toml is not TOML" in done.stderr) == (7, True)
    assert run_text([*words, "inspect"], env=environ).returncode == 2
