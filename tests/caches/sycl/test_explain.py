"""Why a program would be answered from the cache, or not."""

import os
from pathlib import Path

import pytest

from gpucache.answers.lookup import Verdict
from gpucache.answers.why import Reach, Served
from gpucache.caches.interface import Wanted
from gpucache.caches.registry import of_others
from gpucache.errors import UsageError
from tests.caches.sycl.build import DEVICE, Made, copy, lock, opened, put, spirv

SYSTEM = of_others("sycl")


def _wanted(made: Made) -> dict[str, tuple[bytes, ...]]:
    return {
        "device": (made.device,),
        "options": (made.options,),
        "spec": (made.spec,),
        "image": (made.image,),
    }


def _ask(root: Path, wanted: Wanted, *, enabled: bool = True) -> Reach:
    (reach,) = opened(root, enabled=enabled).explain(wanted)
    return reach


def test_what_is_stored_and_reached_is_a_hit(tmp_path: Path) -> None:
    """With the key of the entry."""
    put(tmp_path)
    (entry,) = opened(tmp_path).scan()

    reach = _ask(tmp_path, _wanted(Made()))

    assert (reach.verdict, reach.nearest, reach.differences) == (Served.HIT, entry.key, ())
    assert "device name Some GPU" in reach.wanted


@pytest.mark.parametrize(
    ("change", "labels"),
    [
        ({"device": DEVICE.replace(b"1.2.3", b"1.2.4")}, ["driver version"]),
        ({"device": b"Other/Some GPU/OpenCL 3.0/9"}, ["platform name", "driver version"]),
        ({"options": b"-cl-slow"}, ["options"]),
        ({"spec": b"01"}, ["spec"]),
        ({"image": spirv("first_kernel", words=7)}, ["image"]),
    ],
)
def test_the_field_that_changed_is_named(change: dict[str, bytes], labels: list[str], tmp_path: Path) -> None:
    """The device by its parts, the image by its hash."""
    put(tmp_path)
    wanted = _wanted(Made()) | {name: (value,) for name, value in change.items()}

    reach = _ask(tmp_path, wanted)

    assert reach.verdict is Verdict.KEY_CHANGED
    assert [one.label for one in reach.differences] == labels


def test_options_that_are_one_letter_off_are_nearer_than_none(tmp_path: Path) -> None:
    """An entry without options is as unlike as one can be."""
    for options in (b"", b"-cl-unsafe", b"-cl-fasd"):
        put(tmp_path, Made(options=options))

    (difference,) = _ask(tmp_path, _wanted(Made())).differences

    assert (difference.left, difference.right) == ("-cl-fasd", "-cl-fast")


def test_entries_that_differ_in_options_are_told_apart_by_their_shown_keys(tmp_path: Path) -> None:
    """Twelve digits are shown, and the first of them find the entry."""
    for options in (b"-a", b"-b", b"-c"):
        put(tmp_path, Made(options=options))
    cache = opened(tmp_path)
    shown = {entry.key[:12] for entry in cache.scan()}

    assert len(shown) == 3
    assert [len(cache.find(one)) for one in shown] == [1, 1, 1]


def test_an_entry_behind_a_hole_is_not_served(tmp_path: Path) -> None:
    """The missing number is named."""
    put(tmp_path, number=2)

    reach = _ask(tmp_path, _wanted(Made()))

    assert reach.verdict is Verdict.CORRUPT
    assert "it is present, but programs stop looking at 0, which is missing" in reach.detail


def test_a_cut_entry_is_not_served(tmp_path: Path) -> None:
    """With the consequence and the remedy."""
    os.truncate(put(tmp_path) / "0.bin", 50)

    reach = _ask(tmp_path, _wanted(Made()))

    assert reach.verdict is Verdict.CORRUPT
    assert reach.detail.endswith(f"run 'gpucache verify --repair --cache sycl:{tmp_path}'")


def test_a_locked_entry_is_not_served(tmp_path: Path) -> None:
    """The lock is named."""
    lock(put(tmp_path) / "0.lock")

    reach = _ask(tmp_path, _wanted(Made()))

    assert reach.verdict is Verdict.CORRUPT
    assert "0.lock" in reach.detail
    assert reach.detail.count("gpucache verify") == 1


def test_a_copy_that_is_reached_makes_it_a_hit(tmp_path: Path) -> None:
    """Programs pass a locked one over."""
    folder = put(tmp_path)
    copy(folder, 0, 1)
    lock(folder / "0.lock")

    reach = _ask(tmp_path, _wanted(Made()))

    assert reach.verdict is Served.HIT


def test_a_cache_that_is_off_is_not_consulted(tmp_path: Path) -> None:
    """With the variable that turns it on."""
    put(tmp_path)
    (location,) = SYSTEM.locations({"SYCL_CACHE_DIR": str(tmp_path)})

    (reach,) = SYSTEM.open(location).explain(_wanted(Made()))

    assert reach.verdict is Verdict.NOT_CONSULTED
    assert "export SYCL_CACHE_PERSISTENT=1" in reach.detail


@pytest.mark.parametrize(
    ("variable", "value"),
    [("SYCL_CACHE_MIN_DEVICE_IMAGE_SIZE", "100000"), ("SYCL_CACHE_MAX_DEVICE_IMAGE_SIZE", "10")],
)
def test_an_image_outside_the_bounds_is_uncacheable(
    variable: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable is named."""
    monkeypatch.setenv(variable, value)
    environ = {"SYCL_CACHE_PERSISTENT": "1", "SYCL_CACHE_DIR": str(tmp_path), variable: value}
    (location,) = SYSTEM.locations(environ)

    (reach,) = SYSTEM.open(location).explain(_wanted(Made()))

    assert reach.verdict is Verdict.UNCACHEABLE
    assert variable in reach.detail


def test_several_images_are_put_into_order(tmp_path: Path) -> None:
    """libsycl sorts them by their first kernel."""
    first, second = spirv("a_kernel"), spirv("b_kernel")
    put(tmp_path, Made(image=first + second))

    assert _ask(tmp_path, {"image": (second, first)}).hit


@pytest.mark.parametrize("wanted", [{"colour": (b"x",)}, {}, {"image": ()}])
def test_an_unknown_field_or_none_is_a_usage_error(wanted: Wanted, tmp_path: Path) -> None:
    """It names those there are."""
    with pytest.raises(UsageError, match=r"device.*options.*image"):
        _ask(tmp_path, wanted)


def test_two_devices_are_a_usage_error(tmp_path: Path) -> None:
    """A key has one."""
    with pytest.raises(UsageError, match="one device"):
        _ask(tmp_path, {"device": (b"a", b"b")})


@pytest.mark.parametrize(
    ("wanted", "hit"),
    [
        ({"device": b"Some GPU"}, True),
        ({"device": b"Some CPU"}, False),
        ({"device": b"Some OpenCL/Some GPU"}, True),
        ({"device": b"/Some GPU//"}, True),
        ({"device": b"///1.2.4"}, False),
        ({"device": DEVICE + b"4"}, False),
        ({"device name": b"Some GPU", "driver version": b"1.2.3"}, True),
        ({"driver version": b"1.2.4"}, False),
        ({"options": b"-cl-fast"}, True),
        ({"options": b"-cl-slow"}, False),
        ({"spec": b"none"}, True),
        ({"spec": b"nonesuch"}, False),
        ({"kernel": b"_ZTSN2ns3addE"}, True),
        ({"kernel": b"ns::add"}, True),
        ({"kernel": b"ns::sub"}, False),
    ],
)
def test_fields_go_by_the_labels_that_are_printed(
    wanted: dict[str, bytes], hit: bool, tmp_path: Path
) -> None:
    """Those of inspect as well as the short ones, and of a device only the parts that are given."""
    put(tmp_path, Made(image=spirv("_ZTSN2ns3addE")))

    reach = _ask(tmp_path, {name: (value,) for name, value in wanted.items()})

    assert reach.hit is hit
    assert bool(reach.differences) is not hit


def test_every_printed_key_field_is_accepted(tmp_path: Path) -> None:
    """A user can ask with what an entry's own fields say."""
    put(tmp_path)
    (entry,) = opened(tmp_path).scan()

    wanted = {label: (value.encode(),) for label, value in entry.fields if label != "image"}

    assert _ask(tmp_path, wanted).hit


def test_parts_that_are_not_given_are_named(tmp_path: Path) -> None:
    """So that a hit is not taken for more than it is."""
    put(tmp_path)

    detail = _ask(tmp_path, {"device": (b"Some GPU",)}).detail

    assert "; not compared: platform name, device version, driver version, options, " in detail


def test_a_device_of_another_form_can_be_wanted_whole(tmp_path: Path) -> None:
    """It has no parts."""
    put(tmp_path, Made(device=b"nothing known"))

    assert _ask(tmp_path, {"device": (b"nothing known",)}).hit
    assert [one.label for one in _ask(tmp_path, {"device": (b"other",)}).differences] == ["device name"]


@pytest.mark.parametrize("wanted", [{"device": b"//"}, {"device": b""}])
def test_a_device_that_cannot_be_is_a_usage_error(wanted: dict[str, bytes], tmp_path: Path) -> None:
    """It has no part."""
    with pytest.raises(UsageError, match="device"):
        _ask(tmp_path, {name: (value,) for name, value in wanted.items()})


def test_an_entry_that_is_being_written_is_not_corrupt(tmp_path: Path) -> None:
    """Its lock is young; programs compile until it is gone."""
    lock(put(tmp_path) / "0.lock", age_s=5)

    reach = _ask(tmp_path, _wanted(Made()))

    assert reach.verdict is Verdict.NOT_CONSULTED
    assert "0.lock is less than 10 min old" in reach.detail


def test_the_remedy_names_the_variable_s_cache_by_its_system(tmp_path: Path) -> None:
    """The environment leads to the place."""
    os.truncate(put(tmp_path) / "0.bin", 50)
    (location,) = SYSTEM.locations({"SYCL_CACHE_PERSISTENT": "1", "SYCL_CACHE_DIR": str(tmp_path)})

    (reach,) = SYSTEM.open(location).explain(_wanted(Made()))

    assert reach.detail.endswith("run 'gpucache verify --repair --cache sycl'")


def test_a_place_with_a_space_is_quoted(tmp_path: Path) -> None:
    """The remedy can be pasted into a shell."""
    root = tmp_path / "my cache"
    os.truncate(put(root) / "0.bin", 50)

    assert f"--cache 'sycl:{root}'" in _ask(root, _wanted(Made())).detail
