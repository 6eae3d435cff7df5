"""Reports about generated fleets: nothing is counted twice or left out, the commands build every miss."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from gpucache.answers.warm import FleetOutcome, FleetSummary, WarmResult, fleet
from gpucache.assembly import open_store, open_stores
from gpucache.backends.interface import Backends
from gpucache.engine.prepare import prepare
from gpucache.engine.warm.fleet import check_fleet
from gpucache.engine.warm.plan import plan_recorded
from gpucache.engine.warm.run import Warming
from gpucache.model import Device, Target, Toolchain
from gpucache.probe.profile import Profile, load_profile, save_profile
from gpucache.recording.reading import as_recorded, read_recording
from gpucache.settings import Settings
from tests.fleets import asked, recorded

_GPUS = ("sm_80", "sm_90", "sm_100")
_MACHINE = st.tuples(
    st.frozensets(st.sampled_from(_GPUS), max_size=2), st.sampled_from(["13.5", "12.8"]), st.booleans()
)
_RECORDED = st.tuples(st.sampled_from("abcd"), st.sampled_from((*_GPUS, "compute_80")))


def _device(name: str, version: str, *, present: bool) -> Device:
    toolchain = Toolchain("nvrtc", (("architecture", name), ("NVRTC version", version)), ("architecture",))
    return Device(Target("cuda", name), "cuda", name, "", True, "", toolchain, present)


def _checked(
    place: Path, machines: list[tuple[frozenset[str], str, bool]], programs: list[tuple[str, str]]
) -> tuple[list[FleetOutcome], FleetSummary]:
    profiles = []
    for number, (present, version, small) in enumerate(machines):
        names = (*sorted(present), *(name for name in (*_GPUS, "compute_80") if name not in present))
        devices = [_device(name, version, present=name in present) for name in names[: 2 if small else None]]
        profiles.append(place / f"{number}.json")
        save_profile(profiles[-1], Profile(tuple(devices), {}))
    folders = [  # some builds are in the same recording
        recorded(place / f"recording{number % 2}", [asked(name, _device(gpu, "13.5", present=False))])
        for number, (name, gpu) in enumerate(programs)
    ]
    place_of_ours = Settings(place / "root", "--root", read_only=True)
    run = Warming(place_of_ours, open_store, open_stores, Backends(), print, print, check=True)
    return check_fleet(run, folders, profiles, (), ())


def _made(words: tuple[str, ...], profile: Path) -> set[str]:
    """The keys of all builds that a command makes on a machine."""
    pairs = list(zip(words[2::2], words[3::2], strict=True))
    folders = [Path(value) for option, value in pairs if option == "--recording"]
    targets = [value for option, value in pairs if option == "--target"]
    replayed = [one for folder in folders for one in as_recorded(read_recording(folder))]
    items = plan_recorded(replayed, load_profile(profile).devices, targets, Backends(), {})
    keys = set()
    for item in items:
        if item.request is not None and item.toolchain is not None:
            made = prepare(Backends()["cuda"], item.request, item.toolchain, {}, known=item.known)
            keys.add(str(made.key))
    return keys


@settings(max_examples=25)
@given(st.lists(_MACHINE, min_size=1, max_size=5), st.lists(_RECORDED, min_size=1, max_size=4, unique=True))
def test_the_commands_make_every_missing_build(
    machines: list[tuple[frozenset[str], str, bool]], programs: list[tuple[str, str]]
) -> None:
    """The commands work on any machine that they name; each build is counted once for each machine."""
    with tempfile.TemporaryDirectory() as place:
        outcomes, summary = _checked(Path(place), machines, programs)
        made = [_made(one.words, Path(one.machines[-1])) for one in summary.commands]
    missing = [one.outcome.key for one in outcomes if one.outcome.result is WarmResult.MISSING]
    assert set().union(*made) >= {*missing}
    assert len({*missing}) == summary.builds == sum(one.builds for one in summary.commands)
    for machine in summary.machines:
        own = [one.outcome.result for one in outcomes if machine.profile in one.machines]
        assert machine.builds == {result: own.count(result) for result in WarmResult}


@settings(max_examples=25)
@given(st.lists(_MACHINE, min_size=1, max_size=5), st.lists(_RECORDED, min_size=1, max_size=4, unique=True))
def test_rows_leave_nothing_out(
    machines: list[tuple[frozenset[str], str, bool]], programs: list[tuple[str, str]]
) -> None:
    """All rows have every build of every machine, and groups have the same machines and programs."""
    with tempfile.TemporaryDirectory() as place:
        outcomes, summary = _checked(Path(place), machines, programs)
    asked_for = sum(len(one.machines) for one in outcomes)
    for whole in (True, False):
        rows = [row for block in fleet(outcomes, summary, whole=whole) for row in getattr(block, "rows", ())]
        assert bool(rows) == bool(asked_for)
        assert not whole or len(rows) == asked_for
        assert len(rows) <= asked_for
