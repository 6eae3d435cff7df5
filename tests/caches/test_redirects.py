"""Every known cache kept below a folder, and looked at."""

import os
from pathlib import Path

from gpucache.caches.redirects import PLAIN, make_folders, plain_places, redirects
from gpucache.caches.registry import SYSTEMS
from gpucache.caches.watching import snapshot
from gpucache.engine.watch import growth
from tests.caches.sycl.build import put


def test_every_cache_has_a_place_of_its_own(tmp_path: Path) -> None:
    """No two variables share a folder, and every place is below the one that was given."""
    environment = dict(redirects(tmp_path, {}).environment)
    places = [value for value in environment.values() if value.startswith("/")]
    assert len(set(places)) == len(places) and all(Path(place).is_relative_to(tmp_path) for place in places)
    assert {plain.variable for plain in PLAIN} < set(environment)
    assert {"SYCL_CACHE_DIR", "POCL_CACHE_DIR", "CUDA_CACHE_PATH", "ROCFFT_RTC_CACHE_PATH"} < set(environment)


def test_what_cannot_be_moved_is_said(tmp_path: Path) -> None:
    """Futhark's file is named by its own option alone."""
    assert [one.partition(":")[0] for one in redirects(tmp_path, {}).lacking] == ["futhark"]


def test_a_cache_that_is_off_is_not_turned_on_by_moving_it(tmp_path: Path) -> None:
    """JAX has no cache until its variable names a folder."""
    name = "JAX_COMPILATION_CACHE_DIR"
    assert name not in dict(redirects(tmp_path, {}).environment)
    assert dict(redirects(tmp_path, {name: "/elsewhere"}).environment)[name] == str(tmp_path / "jax")


def test_systems_look_where_they_were_sent(tmp_path: Path) -> None:
    """Each system with a variable finds its place below the folder in the new environment."""
    from gpucache.caches.registry import load_system

    environment = dict(redirects(tmp_path, {"HOME": "/nowhere"}).environment)
    moved = [name for name in SYSTEMS if name != "futhark"]
    for name in moved:
        roots = [Path(one.root) for one in load_system(name).locations(environment) if one.role != "system"]
        assert all(root.is_relative_to(tmp_path) for root in roots), name


def test_a_snapshot_counts_entries_files_and_strangers(tmp_path: Path) -> None:
    """Entries of a known system, files of a plain folder, and what else lies below the cache folder."""
    environment = dict(redirects(tmp_path, {}).environment)
    make_folders(tmp_path, environment)
    put(Path(environment["SYCL_CACHE_DIR"]))
    Path(environment["TRITON_CACHE_DIR"], "kernel.cubin").write_bytes(b"x" * 7)
    Path(environment["TRITON_CACHE_DIR"], "empty").write_bytes(b"")
    stranger = Path(environment["XDG_CACHE_HOME"], "unknown-app", "cache")
    stranger.parent.mkdir(parents=True)
    stranger.write_bytes(b"x" * 5)
    held = snapshot(environment, private=True)
    assert len(held["sycl"]) == 1 and list(held["triton"].values()) == [7]
    [(name, size)] = held["others"].items()
    assert (name.partition(" of ")[0], size) == ("unknown-app/cache", 5)


def test_strangers_are_left_out_of_the_users_own_folder(tmp_path: Path) -> None:
    """In the user's own cache folder only known caches are looked at."""
    (tmp_path / "browser").write_bytes(b"x")
    assert "others" not in snapshot({"XDG_CACHE_HOME": str(tmp_path)}, private=False)


def test_defaults_follow_home_and_cache_folder() -> None:
    """Without variables a cache lies where its owner puts it."""
    places = dict(plain_places({"HOME": "/home/me", "XDG_CACHE_HOME": "/caches"}))
    assert places["triton"] == Path("/home/me/.triton/cache") and places["mesa"] == Path(
        "/caches/mesa_shader_cache"
    )
    assert "inductor" not in places


def test_a_file_written_anew_is_another(tmp_path: Path) -> None:
    """The same name and size with another time is an entry that was not hit, but made again."""
    environment = {"TRITON_CACHE_DIR": str(tmp_path)}
    (tmp_path / "k").write_bytes(b"x")
    os.utime(tmp_path / "k", (1, 1))
    before = snapshot(environment, private=False)
    os.utime(tmp_path / "k", (2, 2))
    assert growth(before, snapshot(environment, private=False))[0].cache == "triton"
