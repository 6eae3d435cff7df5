"""Every known cache kept below a directory, and looked at."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpucache.answers.entries import Snapshot, growth
from gpucache.caches.binary_format import BinaryFormat
from gpucache.caches.known_caches import KnownCaches, open_places
from gpucache.caches.registry import SYSTEMS, format_of, systems
from tests.caches.clesperanto.build import put as put_clesperanto
from tests.caches.darktable.build import put as put_darktable
from tests.caches.jax.build import key as jax_key
from tests.caches.jax.build import put as put_jax
from tests.caches.opencv.build import put as put_opencv
from tests.caches.pytools.build import put as put_pytools
from tests.caches.sycl.build import put
from tests.patience import PATIENCE_S


def redirects(folder: Path, environ: dict[str, str]) -> dict[str, str]:
    return KnownCaches(environ).variables(folder)


def snapshot(environ: dict[str, str], *, private: bool) -> Snapshot:
    return KnownCaches(environ).look(environ, private=private)


def test_every_cache_has_a_place_of_its_own(tmp_path: Path) -> None:
    """No two variables share a directory, and every place is below the one that was given."""
    environment = redirects(tmp_path, {})
    places = [value for value in environment.values() if value.startswith("/")]
    assert len(set(places)) == len(places) and all(Path(place).is_relative_to(tmp_path) for place in places)
    assert {"GPUCACHE_DIR", "NEO_CACHE_DIR", "TRITON_CACHE_DIR", "NUMBA_CACHE_DIR"} < set(environment)
    assert {"SYCL_CACHE_DIR", "POCL_CACHE_DIR", "CUDA_CACHE_PATH", "ROCFFT_RTC_CACHE_PATH"} < set(environment)


def test_jax_is_turned_on_and_keeps_what_the_user_set(tmp_path: Path) -> None:
    """JAX has no cache until its variable names a directory, and by default keeps slow compiles alone."""
    name, least = "JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"
    environment = redirects(tmp_path, {})
    assert (environment[name], environment[least]) == (str(tmp_path / "jax"), "0")
    assert least not in redirects(tmp_path, {name: "/elsewhere"})


def test_what_moves_a_cache_reaches_no_compiler(tmp_path: Path) -> None:
    """The variables that move caches do not enter a key."""
    from gpucache.backends.cuda.options import VARIABLES
    from gpucache.backends.opencl import options

    environment = redirects(tmp_path, {})
    names = (options.POCL, options.INTEL, options.NVIDIA, options.OTHER)
    for variables in (VARIABLES, *map(options.variables, names)):
        assert variables.among(environment) == ()


def test_systems_look_where_they_were_sent(tmp_path: Path) -> None:
    """Each system with a variable finds its place below the directory in the new environment."""
    from gpucache.caches.registry import load_system

    environment = redirects(tmp_path, {"HOME": "/nowhere"})
    moved = [name for name in SYSTEMS if load_system(name).isolation(tmp_path).environment]
    assert len(moved) > len(SYSTEMS) / 2
    for name in moved:
        roots = [Path(one.root) for one in load_system(name).locations(environment) if one.role != "system"]
        assert all(root.is_relative_to(tmp_path) for root in roots), name


def test_no_store_elsewhere_is_asked_where_caches_are_moved(tmp_path: Path) -> None:
    """A start with empty caches, as bench makes it, compiles; a user who keeps the caches keeps the store."""
    known = KnownCaches({"GPUCACHE_REMOTE": "s3://a/b"})
    assert known.isolate(tmp_path)["GPUCACHE_REMOTE"] == ""
    assert "GPUCACHE_REMOTE" not in known.variables(tmp_path)


def test_a_snapshot_counts_entries_files_and_strangers(tmp_path: Path) -> None:
    """Entries of a known system, files of a plain directory, and what else is below the cache directory."""
    environment = dict(KnownCaches({}).isolate(tmp_path))
    put(Path(environment["SYCL_CACHE_DIR"]))
    optix = Path(environment["OPTIX_CACHE_PATH"])
    (optix / "kernel.cubin").write_bytes(b"x" * 7)
    (optix / "empty").write_bytes(b"")
    stranger = Path(environment["XDG_CACHE_HOME"], "unknown-app", "cache")
    stranger.parent.mkdir(parents=True)
    stranger.write_bytes(b"\0" * 5)
    held = snapshot(environment, private=True)
    assert len(held["sycl"]) == 1
    assert [name.partition(" ")[0] for name in held["nvidia-optix"]] == ["kernel.cubin"]
    [(name, one)] = held["others"].items()
    assert (name, one.size_bytes) == ("unknown-app/cache", 5)


def test_text_is_no_entry(tmp_path: Path) -> None:
    """A list of recent files is none, nor a log, whatever it is called; PTX and what is no text is."""
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    before = snapshot(environment, private=True)
    (tmp_path / "recent.txt").write_text("paintings, \u20ac " * 900, encoding="utf-8")
    (tmp_path / "run-2.log").write_text("started", encoding="utf-8")
    assert growth(before, snapshot(environment, private=True)) == ()
    (tmp_path / "kernel.txt").write_text(".version 8.0\n.target sm_90\n", encoding="utf-8")
    (tmp_path / "kernel.bin").write_bytes(b"\x7fELF\0\1")
    [found] = growth(before, snapshot(environment, private=True))
    assert found.names == ("kernel.bin", "kernel.txt")


def test_a_database_that_is_only_opened_is_no_entry(tmp_path: Path) -> None:
    """SQLite writes the index of a log that was left behind anew at each start; a new row is an entry."""
    environment, cache = {"XDG_CACHE_HOME": str(tmp_path)}, tmp_path / "app" / "cache.db"
    start = """if True:
        import os, sqlite3, sys
        database = sqlite3.connect(sys.argv[1])
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE IF NOT EXISTS kernels (key, code)")
        if not database.execute("SELECT * FROM kernels WHERE key = ?", sys.argv[2:]).fetchall():
            database.execute("INSERT INTO kernels VALUES (?, 'code')", sys.argv[2:])
        database.commit()
        os._exit(0)  # without closing it, so that the log stays"""

    def run(key: str) -> None:
        subprocess.run([sys.executable, "-c", start, str(cache), key], check=True, timeout=PATIENCE_S)

    cache.parent.mkdir()
    run("one")
    before = snapshot(environment, private=True)
    assert cache.with_name("cache.db-shm").exists()
    run("one")
    assert growth(before, snapshot(environment, private=True)) == ()
    run("two")
    assert growth(before, snapshot(environment, private=True))[0].names == ("app/cache.db-wal",)


def test_what_a_hit_rewrites_is_no_entry(tmp_path: Path) -> None:
    """JAX notes next to each entry when it was last used."""
    environment = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path)}
    put_jax(tmp_path, used_ns=10**18)
    before = snapshot(environment, private=False)
    assert list(before["jax"]) == [f"jit_f {jax_key(0)}"]
    put_jax(tmp_path, used_ns=2 * 10**18, only_use=True)
    assert growth(before, snapshot(environment, private=False)) == ()


def test_mesas_index_is_no_entry(tmp_path: Path) -> None:
    """Mesa's database notes there when an entry was last used; a new one makes the database larger."""
    for name in ("mesa_cache.db", "mesa_cache.idx"):
        part = tmp_path / "mesa_shader_cache_db" / "part0"
        part.mkdir(parents=True, exist_ok=True)
        (part / name).write_bytes(b"MESA_DB")
    held = snapshot({"MESA_SHADER_CACHE_DIR": str(tmp_path)}, private=False)
    assert len(held["mesa"]) == 1


def test_a_known_cache_that_is_filled_again_is_another(tmp_path: Path) -> None:
    """Entries of the same key and size are distinguished by the time they were written."""
    environment = {"SYCL_CACHE_DIR": str(tmp_path), "SYCL_CACHE_PERSISTENT": "1"}
    put(tmp_path)
    before = snapshot(environment, private=False)
    assert growth(before, snapshot(environment, private=False)) == ()
    for file in tmp_path.rglob("*.bin"):
        os.utime(file, (1, 1))
    assert [one.cache for one in growth(before, snapshot(environment, private=False))] == ["sycl"]


def test_strangers_are_left_out_of_the_users_own_folder(tmp_path: Path) -> None:
    """In the user's own cache directory only known caches are looked at."""
    (tmp_path / "browser").write_bytes(b"x")
    assert "others" not in snapshot({"XDG_CACHE_HOME": str(tmp_path)}, private=False)


def test_what_no_variable_moves_is_the_users_own(tmp_path: Path) -> None:
    """clesperanto keeps to the home folder: what it writes there is in no folder that others are moved to."""
    environ = {"HOME": str(tmp_path / "home")}
    known = KnownCaches(environ)
    put_clesperanto(tmp_path / "home" / ".cache" / "clesperanto")
    moved = {**environ, **known.isolate(tmp_path / "moved")}
    assert "clesperanto" not in known.look(moved, private=True)
    assert len(known.look(environ, private=False)["clesperanto"]) == 1


def test_systems_of_one_file_are_counted_by_their_format(tmp_path: Path) -> None:
    """Locks, links and logs next to their entries are none, though strangers' files would be."""
    known = KnownCaches({})
    environ = dict(known.isolate(tmp_path))
    put_opencv(Path(environ["OPENCV_OPENCL_CACHE_DIR"]))
    put_darktable(Path(environ["XDG_CACHE_HOME"], "darktable"))
    database = put_pytools(Path(environ["XDG_CACHE_HOME"], "pytools"))
    Path(f"{database}-journal").write_bytes(b"\xd9\xd5\x05\xf9")
    held = known.look(environ, private=True)
    assert {name: len(found) for name, found in held.items() if found} == {
        "opencv": 1,
        "darktable": 1,
        "pytools": 1,
    }


def test_defaults_follow_home_and_cache_folder(clean_session: Path) -> None:
    """Without variables a cache is where its owner puts it."""
    environ = {"HOME": "/home/me", "XDG_CACHE_HOME": "/caches", "USER": "me"}
    around = KnownCaches(environ)
    assert around.place_of("triton", environ) == "/home/me/.triton/cache"
    assert around.place_of("mesa", environ) == "/caches/mesa_shader_cache"
    assert around.place_of("inductor", environ) == f"{clean_session}/tmp/torchinductor_me"
    assert around.place_of("numba", environ) == ""


def test_a_file_written_anew_is_another(tmp_path: Path) -> None:
    """The same name and size with another time is an entry that was not hit, but made again."""
    environment = {"OPTIX_CACHE_PATH": str(tmp_path)}
    (tmp_path / "k").write_bytes(b"x")
    os.utime(tmp_path / "k", (1, 1))
    before = snapshot(environment, private=False)
    os.utime(tmp_path / "k", (2, 2))
    assert growth(before, snapshot(environment, private=False))[0].cache == "nvidia-optix"


def test_what_is_off_is_told_with_its_variable() -> None:
    """A cache that no variable turned on, or that one turned off, is on where it is moved; others are not."""
    user = {"HOME": "/home/me", "POCL_KERNEL_CACHE": "0", "JAX_COMPILATION_CACHE_DIR": "/caches/jax"}
    around = KnownCaches(user)
    assert around.off == {"sycl", "rocfft", "pocl"}
    assert around.notes({"sycl", "pocl", "jax", "vllm"}) == (
        "the SYCL persistent device code cache was turned on; in your environment it is off, as "
        "SYCL_CACHE_PERSISTENT is not set",
        "the PoCL kernel cache was turned on; in your environment it is off, as POCL_KERNEL_CACHE is 0",
    )


@pytest.mark.parametrize("name", [one for one in SYSTEMS if one != "vulkan"])
def test_what_verify_cannot_see_of_bare_binaries_is_told(name: str) -> None:
    """A byte changed inside shows nowhere, if its owner has no checksum; a Vulkan driver may have one."""
    made = format_of(name)
    assert made.unseen or made.checksums or not issubclass(made, BinaryFormat)


@pytest.mark.parametrize("place", ["/", "/etc", "/usr", "/usr/lib", sys.prefix, str(Path(sys.prefix, "lib"))])
def test_directories_of_a_machine_are_no_cache(place: str) -> None:
    """A system that recognised one would take a program's every file below it for an entry."""
    assert [one.name for one in systems() if Path(place).is_dir() and one.recognises(Path(place))] == []


def test_a_place_that_is_named_as_its_variable_does_need_not_exist(tmp_path: Path) -> None:
    """Its origin is the variable; another place is the option's."""
    environ = {"CUPY_CACHE_DIR": str(tmp_path / "missing"), "HOME": str(tmp_path)}
    origins = [
        open_places("cupy", tmp_path / name, environ)[0].location().decided_by for name in ("missing", "else")
    ]
    assert origins == ["CUPY_CACHE_DIR", "--cache"]
