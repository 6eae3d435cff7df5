"""Files laid by the rules of darktable's kernel cache, and what is said of those that break them."""

from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from tests.caches.darktable.build import FOLDER, put
from tests.caches.opened import HOUR_NS, PTX, kinds, only, opened

SYSTEM = of_others("darktable")


def test_a_binary_says_its_program_its_device_and_its_driver(tmp_path: Path) -> None:
    """The program by the link that leads to it; the MD5 begins its key."""
    path = put(tmp_path)
    (tmp_path / "mipmaps-0123.d").mkdir()
    cache = opened(SYSTEM, tmp_path)
    (entry,) = cache.find(path.name)
    assert (entry.program, entry.target) == ("program0", "NVIDIAGeForceRTX4090")
    assert entry.producer == "the driver of NVIDIAGeForceRTX4090 5505414"
    assert not cache.check(entry).findings and cache.extract(entry) == PTX and not list(cache.leftovers())


def test_a_removal_takes_the_link_and_the_folder_too(tmp_path: Path) -> None:
    """Nothing is left of a driver whose last binary went; another program's link stays."""
    put(tmp_path)
    put(tmp_path, 1)
    cache = opened(SYSTEM, tmp_path)
    first, second = cache.scan()
    assert cache.remove(first, "--all") is None and len(list((tmp_path / FOLDER).iterdir())) == 2
    assert cache.remove(second, "--all") is None and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", FindingKind.TRUNCATED),
        (PTX[:-3], FindingKind.CORRUPT),
        (b"garbage", FindingKind.MISLABELLED),
    ],
)
def test_damage_is_reported_with_what_comes_of_it_and_repaired(
    data: bytes, kind: FindingKind, tmp_path: Path
) -> None:
    """A repair removes the binary and its link, and leaves the others."""
    other, path = put(tmp_path, 1), put(tmp_path, data=data)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = (one for one in cache.scan() if one.path == str(path))
    checked = cache.check(entry)
    assert kinds(checked) == [kind] and "without OpenCL" in checked.findings[0].detail
    assert cache.repair(checked, entry).findings[0].repaired
    assert not path.exists() and other.exists() and not list(cache.leftovers())


def test_a_binary_that_no_link_leads_to_is_an_orphan_once_it_is_old(tmp_path: Path) -> None:
    """darktable writes the binary first."""
    path = put(tmp_path)
    (path.parent / "program0.cl.bin").unlink()
    now_ns = path.stat().st_mtime_ns
    young, old = (opened(SYSTEM, tmp_path, now_ns + hours * HOUR_NS) for hours in (0, 2))
    assert not young.check(only(young)).findings
    assert kinds(old.check(only(old))) == [FindingKind.ORPHAN]


def test_links_that_lead_nowhere_are_cleared_and_those_that_lead_out_are_told(tmp_path: Path) -> None:
    """darktable unlinks what a link names that does not suit it."""
    path = put(tmp_path)
    gone, out = path.with_name("gone.cl.bin"), path.with_name("out.cl.bin")
    gone.symlink_to("0" * 32)
    out.symlink_to("../../thesis.tex")
    cache = opened(SYSTEM, tmp_path)
    first, second = cache.leftovers()
    assert (kinds(first), kinds(second)) == ([FindingKind.LEFTOVER], [FindingKind.UNTRUSTED])
    assert cache.repair(first, None).findings[0].repaired and not gone.is_symlink()
    assert not cache.repair(second, None).findings[0].repaired and out.is_symlink()


def test_the_cache_of_a_flatpak_is_another(tmp_path: Path) -> None:
    """Flatpak gives each program a cache folder of its own, whatever the user's variable says."""
    inner = tmp_path / ".var" / "app" / "org.darktable.Darktable" / "cache" / "darktable"
    put(inner)
    found = SYSTEM.locations({"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "mine")})
    assert [one.root for one in found] == [str(tmp_path / "mine" / "darktable"), str(inner)]
