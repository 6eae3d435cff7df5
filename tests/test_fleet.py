"""The recipes of gpucache-fleet(7) word for word, each in a clean environment, and their failures."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from gpucache.cli import manual
from gpucache.remote.signing import load_signing_key
from gpucache.serve.environment import TIMEOUT
from tests.children import run_text
from tests.nvrtc import need_nvrtc
from tests.patience import TIME_OUT_MS
from tests.remote.fleet import PATIENT
from tests.remote.servers import Silent, docker_registry, make_bucket, moto_url, nginx
from tests.unprivileged import needs_root

pytestmark = pytest.mark.slow
NODES = int(os.environ.get("GPUCACHE_TEST_NODES", "4"))
CHECKOUT = Path(__file__).parents[1]
_APP = """\
from cuda.core import Program, ProgramOptions
source = 'extern "C" __global__ void scale(float *y) { y[threadIdx.x] *= FACTOR; }'
Program(source, "c++", ProgramOptions(arch="sm_90")).compile("cubin")
"""
_OPENCL_APP = """\
import pyopencl
device = next(each for each in pyopencl.get_platforms() if "Intel" in each.name).get_devices()[0]
source = "kernel void scale(global float *y) { y[get_global_id(0)] *= 2; }"
pyopencl.Program(pyopencl.Context([device]), source).build()
"""
_MISSED, _HIT = "1 build: 0 hits, 1 miss", "1 build: 1 hit, 0 misses"
_ENTRIES = 2
"""Of one program below ``run``: its cubin and its PTX."""
_DEAD = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
_PATIENT = {TIMEOUT: TIME_OUT_MS, **PATIENT}
_USER = 1002
_JOBS = manual.verbatims("fleet")
(_CI_JOB,), (_NODES_JOB,) = _JOBS["CONTINUOUS INTEGRATION"], _JOBS["NODES"]
_INIT_CONTAINER, _MAIN_CONTAINER = _JOBS["CONTAINERS"]
*_, _APT_HOOK = _JOBS["UPGRADES OF DRIVERS"]
(_FLEET_CHECK,) = _JOBS["MACHINES THAT WOULD MISS"]
Done = subprocess.CompletedProcess[str]


def _failure(what: str) -> list[str]:
    """The message of a failure on the page whose name contains some words, and the remedy."""
    (found,) = (told for term, told in manual.terms("fleet").items() if what in term)
    return found


class Site:
    """A place with a key, checkouts of a program, and the variables of a clean environment."""

    def __init__(self, place: Path, store: str, **variables: str) -> None:
        self.place, self.store = place, store
        self.path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        self._variables = {"STORE": store, **variables}
        self.public = self.sh("gpucache key fleet.key", place).stdout.strip()
        self.secret = (place / "fleet.key").read_text(encoding="ascii").strip()
        self.key_id = load_signing_key(place / "fleet.key").public.id

    def checkout(self, name: str, factor: int = 2) -> Path:
        """A directory with the program and nothing else."""
        folder = self.place / name
        folder.mkdir()
        (folder / "app.py").write_text(_APP.replace("FACTOR", str(factor)), encoding="ascii")
        return folder

    def sh(self, script: str, folder: Path, **variables: str) -> Done:
        """Run a script in a directory, with a separate home and only these variables, and with patience."""
        home = folder / "home"
        home.mkdir(exist_ok=True)
        clean = {"PATH": self.path, "HOME": str(home), **_PATIENT, **self._variables, **variables}
        return run_text(["bash", "-ec", script], cwd=folder, env=clean)

    def job(self, name: str, factor: int = 2, **variables: str) -> Done:
        """The recipe of a job in a new checkout."""
        return self.sh(_CI_JOB, self.checkout(name, factor), FLEET_PUBLIC_KEY=self.public, **variables)

    def said(self, what: str) -> str:
        """The words of a failure on the page."""
        told = _failure(what)[0].replace("STORE", self.store)
        return told.replace("key KEY", f"key {self.key_id}")


@contextmanager
def _directory(place: Path) -> Iterator[Site]:
    """A store that others may write to, so that only signatures count."""
    need_nvrtc()
    store = place / "store"
    store.mkdir()
    store.chmod(0o775)
    yield Site(place, str(store))


@contextmanager
def _bucket(place: Path) -> Iterator[Site]:
    with moto_url(place) as url:
        keys = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}
        yield Site(place, f"{make_bucket(url, 'fleet')}/caches", AWS_ENDPOINT_URL=url, **keys)


@contextmanager
def _registry(place: Path) -> Iterator[Site]:
    with docker_registry(place) as url:
        yield Site(place, url)


@pytest.fixture(name="site")
def _site(tmp_path: Path) -> Iterator[Site]:
    with _directory(tmp_path) as site:
        yield site


@pytest.mark.parametrize("kind", [_directory, _bucket, _registry])
def test_only_jobs_with_the_key_add_what_others_use(
    tmp_path: Path, kind: Callable[[Path], AbstractContextManager[Site]]
) -> None:
    """A fork pushes nothing; a protected branch does; an entry that a fork pushes anyway is not trusted."""
    need_nvrtc()
    with kind(tmp_path) as site:
        fork = site.job("fork-first")
        assert (fork.returncode, "sent" in fork.stdout) == (0, False) and _MISSED in fork.stderr
        protected = site.job("protected", FLEET_KEY=site.secret)
        assert protected.returncode == 0 and _MISSED in protected.stderr
        assert "2 entries sent" in protected.stdout
        assert not (tmp_path / "protected" / "fleet.key").exists()
        again = site.job("again", FLEET_KEY=site.secret)
        assert _HIT in again.stderr and "nothing sent" in again.stdout
        assert _HIT in site.job("fork-of-the-same").stderr

        assert _MISSED in site.job("fork", factor=3).stderr
        pushed = site.sh('GPUCACHE_DIR="$PWD/cache" gpucache push "$STORE"', tmp_path / "fork")
        made = pushed.returncode == 0
        assert made == (kind is _directory) and "key" in pushed.stderr
        node = site.checkout("node", factor=3)
        pulled = site.sh('gpucache pull "$STORE"', node, GPUCACHE_TRUSTED_KEYS=site.public)
        assert pulled.returncode == (3 if made else 0)
        assert (site.said("without the key") in pulled.stdout) == made
        assert "2 entries pulled" in pulled.stdout
        trusting = {"GPUCACHE_REMOTE": site.store, "GPUCACHE_TRUSTED_KEYS": site.public}
        assert _MISSED in site.sh("gpucache run -- python app.py", node, **trusting).stderr


def test_a_key_that_leaked_is_replaced(site: Site) -> None:
    """With another public key nothing that the old one signed is used, and pull says so."""
    site.job("protected", FLEET_KEY=site.secret)
    other = site.sh("gpucache key other.key", site.place).stdout.strip()
    node = site.checkout("node")
    trusting = {"GPUCACHE_REMOTE": site.store, "GPUCACHE_TRUSTED_KEYS": other}
    pulled = site.sh('gpucache pull "$STORE"', node, **trusting)
    assert pulled.returncode == 3 and site.said("has seen the key") in pulled.stdout
    assert _MISSED in site.sh("gpucache run -- python app.py", node, **trusting).stderr


def test_a_key_that_others_may_read_signs_nothing(site: Site) -> None:
    """The message has the command."""
    site.sh("gpucache run -- python app.py; chmod 644 ../fleet.key; ln ../fleet.key", site.checkout("job"))
    pushed = site.sh('gpucache push "$STORE" --key fleet.key', site.place / "job")
    assert pushed.returncode == 2 and site.said("readable") in pushed.stderr


def test_a_bucket_that_is_down_stops_no_program(site: Site) -> None:
    """A pull ends with 5, or with 0 if it may fail, and a program compiles after one sentence."""
    site = Site(site.checkout("down"), "s3://fleet/caches", **_DEAD)
    said = site.said("down").replace(site.store, f"{site.store} at {_DEAD['AWS_ENDPOINT_URL']}")
    keys = {"GPUCACHE_TRUSTED_KEYS": site.public}
    for more, code in (("", 5), (" --best-effort", 0)):
        pulled = site.sh(f'gpucache pull "$STORE"{more}', site.place, **keys)
        assert (pulled.returncode, pulled.stderr) == (code, f"gpucache: {said}\n")
    ran = site.sh("gpucache run -- python app.py", site.place, GPUCACHE_REMOTE=site.store, **keys)
    assert ran.stderr.startswith(f"gpucache: GPUCACHE_REMOTE is not used: {said}\n") and _MISSED in ran.stderr


def test_a_store_that_is_too_slow_is_left(site: Site) -> None:
    """The process compiles, and says which variable raises the limit."""
    with Silent() as silent:
        store = f"http://{silent.address}"
        site = Site(site.checkout("slow"), store, GPUCACHE_REMOTE_TIMEOUT_MS="300")
        trusting = {"GPUCACHE_REMOTE": site.store, "GPUCACHE_TRUSTED_KEYS": site.public}
        ran = site.sh("gpucache run -- python app.py", site.place, **trusting)
    assert site.said("slow") in ran.stderr and _MISSED in ran.stderr


def test_an_entry_with_paths_is_missed_in_another_directory(site: Site) -> None:
    """The check before a deployment gives the reason."""
    for name in ("there", "here"):
        (site.checkout(name) / "n.h").write_text(
            "static __device__ __noinline__ float twice(float x) { return x * 2; }\n"
        )
        (site.place / name / "scale.cu").write_text(
            '#include "n.h"\nextern "C" __global__ void scale(float *y) { *y = twice(*y); }\n'
        )
    warm = "gpucache warm scale.cu --target cuda:sm_90 --option=-lineinfo"
    trusting = {"GPUCACHE_TRUSTED_KEYS": site.public}
    site.sh(f'{warm}; gpucache push "$STORE" --key ../fleet.key', site.place / "there")
    checked = site.sh(f'gpucache pull "$STORE"; {warm} --check', site.place / "here", **trusting)
    assert checked.returncode == 3 and site.said("source is in another directory") in checked.stdout


def test_an_entry_for_another_cpu_is_left_in_the_store(
    site: Site, opencl_environment: Mapping[str, str]
) -> None:
    """Pull names the fact, and the check with a profile the reason."""
    runtime = {"OCL_ICD_VENDORS": opencl_environment["OCL_ICD_VENDORS"]}
    trusting = {"GPUCACHE_TRUSTED_KEYS": site.public, **runtime}
    kernel = site.checkout("kernel") / "scale.cl"
    kernel.write_text("kernel void scale(global float *y) { y[get_global_id(0)] *= 2; }\n")
    made = site.sh(
        'gpucache warm scale.cl --target opencl:intel; gpucache push "$STORE" --key ../fleet.key;'
        "gpucache devices --save node.json",
        kernel.parent,
        **runtime,
    )
    assert made.returncode == 0, made.stderr
    profile = kernel.with_name("node.json").read_text(encoding="utf-8")
    assert "sse4_2 " in profile
    kernel.with_name("node.json").write_text(profile.replace("sse4_2 ", ""), encoding="utf-8")
    pulled = site.sh(
        'GPUCACHE_DIR="$PWD/new" gpucache pull "$STORE" --device-profile node.json', kernel.parent, **trusting
    )
    assert pulled.returncode == 0
    assert "1 for other machines" in pulled.stdout and "CPU features" in pulled.stdout
    check = "gpucache warm --check scale.cl --target opencl:intel --device-profile node.json"
    checked = site.sh(check, kernel.parent, **runtime)
    assert checked.returncode == 3 and site.said("CPU") in checked.stdout


def test_the_check_of_a_fleet_prints_the_commands_that_end_its_misses(
    site: Site, opencl_environment: Mapping[str, str]
) -> None:
    """A program recorded once is missed by the profile of its machine until the commands have run."""
    runtime = {"OCL_ICD_VENDORS": opencl_environment["OCL_ICD_VENDORS"]}
    site.job("protected", FLEET_KEY=site.secret)
    folder = site.checkout("check")
    (folder / "scale.py").write_text(_OPENCL_APP, encoding="ascii")
    made = site.sh(
        "gpucache record -o app -- python scale.py; mkdir fleet; gpucache devices --save fleet/node.json",
        folder,
        **runtime,
    )
    assert made.returncode == 0, made.stderr
    trusting = {"GPUCACHE_TRUSTED_KEYS": site.public, **runtime}
    before = site.sh(_FLEET_CHECK, folder, **trusting)
    assert before.returncode == 3 and "gpucache warm --recording app" in before.stdout
    built = site.sh(
        'gpucache warm --recording app; gpucache push "$STORE" --key ../fleet.key', folder, **runtime
    )
    assert built.returncode == 0, built.stderr
    after = site.sh(_FLEET_CHECK, folder, **trusting)
    assert after.returncode == 0, after.stdout


@pytest.mark.skipif(not shutil.which("apt-config"), reason="apt is not installed")
def test_after_an_installation_apt_builds_what_misses(site: Site) -> None:
    """As apt reads its line; where gpucache fails, apt does not."""
    folder = site.checkout("upgraded")
    (folder / "hook").write_text(_APT_HOOK, encoding="ascii")
    read = site.sh("apt-config -c hook dump --format '%v%n' DPkg::Post-Invoke", folder)
    hook = f"""su() {{ [ "$1 $2 $3" = "- app -c" ] && sh -c "$4"; }}; {read.stdout.splitlines()[-1]}"""
    assert site.sh(hook, folder).returncode == 0  # there is no recording
    site.sh("gpucache record -o app -- python app.py; gpucache evict --all --yes", folder)
    check = "gpucache warm --check --recording app"
    codes = [site.sh(script, folder).returncode for script in (check, hook, check)]
    assert codes == [3, 0, 0]


class Pod:
    """A volume, and containers in it: a read-only root, no network, and a user who owns nothing else.

    The store is a directory that is mounted read-only, as there is no network.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._app = site.checkout("app")
        self.volume = site.place / "volume"
        self.volume.mkdir()

    def run(self, script: str, user: int = _USER, *, writes: bool = False, **variables: str) -> Done:
        shown = dict.fromkeys((CHECKOUT, Path(sys.prefix), Path(sys.base_prefix)))
        parents = dict.fromkeys(one for place in shown for one in reversed(place.parents[:-1]))
        keys = {"GPUCACHE_TRUSTED_KEYS": self._site.public, "STORE": "/store", "PATH": self._site.path}
        command = [
            "bwrap", "--perms", "1777", "--tmpfs", "/tmp",
            *(word for one in parents for word in ("--perms", "0755", "--dir", one)),
            "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
            "--symlink", "usr/lib64", "/lib64",
            *(word for one in shown for word in ("--ro-bind", one, one)),
            "--proc", "/proc", "--dev", "/dev",
            "--bind" if writes else "--ro-bind", self.volume, "/caches",
            "--ro-bind", self._site.store, "/store", "--ro-bind", self._app, "/app", "--chdir", "/app",
            "--remount-ro", "/", "--unshare-net", "--unshare-ipc", "--unshare-pid", "--clearenv",
            *(word for pair in (keys | _PATIENT | variables).items() for word in ("--setenv", *pair)),
            "setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "sh", "-ec", script,
        ]  # fmt: skip
        return run_text(command)


@pytest.fixture(name="pod")
def _pod(site: Site) -> Pod:
    need = (
        "bwrap",
        "--ro-bind",
        "/",
        "/",
        "--unshare-net",
        "--unshare-pid",
        "--perms",
        "0755",
        "--tmpfs",
        "/tmp",
    )
    if not (shutil.which("bwrap") and shutil.which("setpriv")) or run_text([*need, "true"]).returncode:
        pytest.skip("bubblewrap and setpriv do not work here")
    protected = site.job("protected", FLEET_KEY=site.secret)
    assert "2 entries sent" in protected.stdout
    return Pod(site)


@needs_root
def test_a_container_starts_with_hits_alone(pod: Pod) -> None:
    """The init container fills the volume, which the program reads; without it the program would fail."""
    os.chown(pod.volume, _USER, _USER)
    assert pod.run("touch /x", 0).returncode != 0
    filled = pod.run(_INIT_CONTAINER, writes=True)
    assert (filled.returncode, filled.stdout) == (0, "2 entries pulled (6.3 KiB)\n"), filled
    started = pod.run(_MAIN_CONTAINER, GPUCACHE_REQUIRE="1")
    assert started.returncode == 0 and _HIT in started.stderr
    shutil.rmtree(pod.volume / "gpucache")
    assert pod.run(_MAIN_CONTAINER, GPUCACHE_REQUIRE="1").returncode != 0
    assert pod.run(_MAIN_CONTAINER).returncode == 0


@needs_root
def test_what_root_pulls_is_for_root_or_for_one_user(pod: Pod, site: Site) -> None:
    """The remedy on the page works, also with a volume mounted read-only."""
    assert pod.run(_INIT_CONTAINER, 0, writes=True).returncode == 0
    started = pod.run(_MAIN_CONTAINER, GPUCACHE_REQUIRE="1")
    assert started.returncode != 0 and site.said("program does not") in started.stderr
    assert "GPUCACHE_OWNER_UID" in _failure("program does not")[1]
    shutil.rmtree(pod.volume / "gpucache")
    filled = pod.run(_INIT_CONTAINER, 0, writes=True, GPUCACHE_OWNER_UID=str(_USER))
    assert filled.returncode == 0
    assert _HIT in pod.run(_MAIN_CONTAINER, GPUCACHE_REQUIRE="1").stderr


@needs_root
def test_a_volume_of_root_cannot_be_filled_by_others(pod: Pod, site: Site) -> None:
    """The init container says so, and does not keep the program from starting."""
    filled = pod.run(_INIT_CONTAINER, writes=True)
    assert filled.returncode == 0 and site.said("The volume") in filled.stderr


def test_nodes_that_start_at_once_compile_nothing(site: Site) -> None:
    """Each sends the web server two requests for an entry, and no more; ``srun`` starts processes here."""
    site.job("protected", FLEET_KEY=site.secret)
    tools = site.place / "tools"
    tools.mkdir()
    (tools / "srun").write_text(
        f"#!/bin/sh\nfor node in $(seq {NODES}); do\n mkdir -p $node/home $node/tmp\n"
        ' HOME=$PWD/$node/home TMPDIR=$PWD/$node/tmp "$@" > $node/out 2>&1 &\ndone\nwait\n'
    )
    (tools / "srun").chmod(0o755)
    site.path = f"{tools}:{site.path}"
    job = site.checkout("job")
    with nginx(Path(site.store), site.place) as url:
        for _ in range(2):
            done = site.sh(_NODES_JOB, job, STORE=url, FLEET_PUBLIC_KEY=site.public)
            assert done.returncode == 0, done.stderr
            told = [(job / str(node + 1) / "out").read_text() for node in range(NODES)]
            assert [one for one in told if _HIT not in one] == []
    replies = [line.split()[1] for line in (site.place / "access.log").read_text().splitlines()]
    assert (replies.count("200"), len(replies)) == (_ENTRIES * NODES, 2 * _ENTRIES * NODES)
    assert len([*job.glob("*/tmp/gpucache/v1/entries/*/*.gpc")]) == _ENTRIES * NODES
