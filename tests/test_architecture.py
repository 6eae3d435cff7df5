"""The house: which room may import which, and which imports only one room may have.

cli                   the command line, a file per verb
opencl, cuda, hip     the modules that programs import           library    their common part
serve                 requests of unmodified commands to their compilers, answered over a socket
assembly              puts concrete parts together, each on demand
bench                 measured starts
remote                stores elsewhere, records and trust, push, pull
engine                the verbs: lookup and explain, inspect, verify, evict
  engine/warm           its plan, its run, the rounds of its workers, a worker's work; a command that warms
  engine/workers        processes that may crash: the pool, their start, their share of the machine
store                 our own cache             caches     other caches
backends              compilers                 probe      devices and compilers, queried in a child
recording             programs' compiles, to be repeated elsewhere
sources, manifest, settings                     inputs that are read first
native                libraries in C that commands load, their build, their location
leaves                modules that all may import: model, errors, units, keys, payload, directories;
                      answers (values of verbs, their JSON and text); checks (of kernels);
                      host (interrupts, process groups, temporary directories, errors of the system)
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import gpucache
from gpucache.backends.interface import backend_names
from gpucache.caches.registry import SYSTEMS, load_system, module_of

_ROOT = Path(gpucache.__file__).parent
_MAX_LINES = 800
_LEAVES = frozenset(
    {
        "model",
        "errors",
        "units",
        "answers",
        "keys",
        "framing",
        "json_keys",
        "checks",
        "payload",
        "folders",
        "host",
    }
)

_CLI = frozenset(
    {
        "leaves",
        "settings",
        "sources",
        "manifest",
        "recording",
        "kernels",
        "probe",
        "engine",
        "bench",
        "assembly",
        "caches.exports",
        "caches.known_caches",
        "serve",
        "native",
        "remote",
        "examples",
        "backends.options",
        "backends.interface",
        "caches.interface",
        "caches.registry",
        "store.directory",
        "store.interface",
        "store.root_file",
    }
)

_ENGINE = frozenset(
    {
        "leaves",
        "sources",
        "manifest",
        "settings",
        "recording",
        "kernels",
        "probe",
        "backends.installation",  # which libraries this process has loaded
        "backends.interface",
        "caches.interface",
        "caches.places",
        "store.interface",
        "store.directory",
        "store.memory",
    }
)

# The imports that each room may have: whole rooms, or single modules of a room.
_SERVE = frozenset(
    {"leaves", "sources", "recording", "probe", "backends", "engine", "native", "store.interface"}
    | {"store.records"}
)
ALLOWED: Mapping[str, frozenset[str]] = {
    "leaves": frozenset(),
    "examples": frozenset(),
    "native": frozenset({"leaves"}),
    "settings": frozenset({"leaves"}),
    "sources": frozenset({"leaves"}),
    "store": frozenset({"leaves", "native"}),
    "kernels": frozenset(),
    "recording": frozenset({"leaves", "sources"}),
    "manifest": frozenset({"leaves", "sources"}),
    "backends": frozenset({"leaves", "sources"}),
    "caches": frozenset({"leaves"}),
    "caches.interface": frozenset({"leaves", "store.directory"}),
    "caches.own": frozenset({"leaves", "settings", "store"}),
    "caches.portable": frozenset({"leaves", "store.layout"}),
    "probe": frozenset({"leaves", "backends.interface"}),
    "engine": _ENGINE,
    # The builds of workers elsewhere come back as the files of entries.
    "engine.warm.elsewhere": _ENGINE | {"store.format"},
    # A mega-cache is in a file of any name, so that no system finds it.
    "engine.shipped": _ENGINE | {"caches.mega_cache"},
    # The processes of starts put their parts together from plain values.
    "bench": frozenset(
        {"leaves", "settings", "sources", "assembly", "engine", "backends", "caches.known_caches"}
    ),
    "remote": frozenset(
        {"leaves", "settings", "store", "caches.interface", "caches.portable", "caches.registry"}
    ),
    "assembly": frozenset({"leaves", "settings", "probe", "backends", "store", "caches", "engine", "remote"}),
    "library": frozenset(
        {"leaves", "native", "settings", "assembly", "engine", "store.interface", "backends.installation"}
    ),
    # A bundle has the form of a root in a file.
    "library.bundle": frozenset({"leaves", "library", "store"}),
    "serve": _SERVE,
    # A layer is a root that is written wherever a command names it.
    "serve.exported_layer": _SERVE | {"store"},
    # To push and pull rows are entries.
    "serve.row_cache": _SERVE | {"caches.interface", "caches.portable"},
    "opencl": frozenset(
        {"leaves", "library", "native", "serve", "assembly", "engine", "backends", "store.interface"}
    ),
    "cuda": frozenset(
        {"leaves", "library", "native", "serve", "assembly", "engine", "backends", "store.interface"}
    ),
    "hip": frozenset({"leaves", "library", "engine", "backends"}),
    "triton": frozenset({"leaves", "library", "backends.installation"}),
    "cupy": frozenset({"leaves", "library"}),
    "cli": _CLI,
    # A key press waits for completion, so it opens the store without all that assembly brings.
    "cli.parameters": _CLI | {"store"},
    # C gets constants of the store.
    "cli.generate": _CLI | {"store", "library"},
    "__main__": frozenset({"cli"}),
}
_ROOMS = frozenset(name for name in ALLOWED if "." not in name)


@cache
def _modules() -> Mapping[str, Path]:
    """Every module below the package by its name without ``gpucache.``; the package itself is empty."""
    found = {}
    for path in sorted(_ROOT.rglob("*.py")):
        parts = path.relative_to(_ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def _tree(module: str) -> ast.Module:
    path = _modules()[module]
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def _package(module: str, level: int) -> str:
    """The package that the dots of a relative import mean; empty for an absolute one."""
    if not level:
        return ""
    own = ["gpucache", *module.split(".")] if module else ["gpucache"]
    leaving = level - 1 if _modules()[module].name == "__init__.py" else level
    return ".".join(own[: len(own) - leaving])


@cache
def _imports(module: str) -> tuple[str, ...]:
    """The full names of all imports anywhere in a module."""
    found: list[str] = []
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(filter(None, [_package(module, node.level), node.module]))
            found += [f"{base}.{alias.name}" for alias in node.names]
    return tuple(found)


def _ours(module: str) -> Iterator[str]:
    """Our own modules that a module imports, except the package itself, which has the version."""
    for name in _imports(module):
        if name.startswith("gpucache."):
            wanted = name.removeprefix("gpucache.")
            if wanted not in _modules():
                wanted = wanted.rpartition(".")[0]
            if wanted:
                yield wanted


def _room(module: str) -> str:
    name = module.partition(".")[0]
    return "leaves" if name in _LEAVES else name


def _allowed(module: str) -> frozenset[str]:
    return ALLOWED.get(module, ALLOWED.get(_room(module), frozenset()))


def _may_import(module: str, wanted: str) -> bool:
    if _room(wanted) == _room(module):
        return True
    own_names = {wanted[:end] for end, char in enumerate(wanted + ".") if char == "."}
    return bool({_room(wanted), *own_names} & _allowed(module))


def test_imports_point_one_way() -> None:
    """A module imports only from its own room and from the rooms that its room may use."""
    wrong = [
        f"{module} imports {wanted}"
        for module in _modules()
        if module
        for wanted in _ours(module)
        if not _may_import(module, wanted)
    ]
    assert wrong == []


def test_every_room_is_in_the_table() -> None:
    """A new directory or module is added to the table before anything imports from it."""
    assert {_room(module) for module in _modules() if module} <= _ROOMS


def test_the_table_has_no_way_back() -> None:
    """No room can reach itself through the rooms it may import."""
    ways: dict[str, set[str]] = {}
    for name, wanted in ALLOWED.items():
        ways.setdefault(_room(name), set()).update({_room(one) for one in wanted} - {_room(name)})
    assert list(TopologicalSorter(ways).static_order())


def _needed(module: str) -> Iterator[str]:
    """The modules that one imports to run, in functions too: not those that only a type checker reads."""
    typing = {
        child
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for part in node.body
        for child in ast.walk(part)
    }
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ImportFrom) and node not in typing and node.module:
            for name in (f"{node.module}.{alias.name}" for alias in node.names):
                wanted = name if name.removeprefix("gpucache.") in _modules() else node.module
                yield wanted.removeprefix("gpucache.")


def test_no_module_needs_itself() -> None:
    """No imports make a circle, late ones in functions included; a place of a cache loads its format."""
    ways = {
        module: {one for one in _needed(module) if one in _modules()} - {module}
        for module in _modules()
        if module.partition(".")[0] != "caches"
    }
    assert list(TopologicalSorter(ways).static_order())


def test_shared_values_know_no_verb() -> None:
    """The modules that every room imports do not import the answers of the command line's verbs."""
    values = ("model", "keys", "framing", "units", "errors", "json_keys")
    assert [one for module in values for one in _ours(module) if one.partition(".")[0] == "answers"] == []


def _has_source(path: Path) -> bool:
    """Whether there is more than compiled bytecode, which may be left of a removed room."""
    return path.is_file() or any(one.is_file() and one.suffix != ".pyc" for one in path.rglob("*"))


def _mapped() -> list[str]:
    """The rooms in the order of the map."""
    rows = re.findall(r"^\| ((?:`[\w./]+`(?:, )?)+) \|", (_ROOT / "README.md").read_text(), re.MULTILINE)
    return [re.sub(r"/$|\.py$", "", name) for row in rows for name in re.findall("`([^`]+)`", row)]


def test_the_map_has_every_room_above_those_that_it_imports() -> None:
    """The page that newcomers read lists the directories and modules that exist, from the top down."""
    found = {
        path.stem
        for path in _ROOT.iterdir()
        if path.name[0].islower() and path.suffix in ("", ".py") and _has_source(path)
    }
    assert sorted(_mapped()) == sorted(found)
    at = {name: row for row, name in enumerate(_mapped())}
    ways = {(_room(module), _room(wanted)) for module in _modules() if module for wanted in _ours(module)}
    upward = [
        (above, below) for above, below in ways if {above, below} <= at.keys() and at[above] > at[below]
    ]
    assert upward == []


def test_the_map_names_files_that_exist() -> None:
    """Every path on the page of the package exists."""
    places = re.findall(r"`([\w/]+(?:/|\.py|\.md|\.txt))`", (_ROOT / "README.md").read_text())
    assert [
        place for place in places if not any((base / place).exists() for base in (_ROOT, _ROOT.parent))
    ] == []


def test_the_package_imports_nothing_at_once() -> None:
    """Importing gpucache alone loads none of its rooms."""
    top = [node for node in _tree("").body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in top]
    assert [name for name in names if name and name.startswith("gpucache")] == []


# Whom a library of others may be imported by.
_ONLY: Mapping[str, frozenset[str]] = {
    "pyopencl": frozenset({"backends", "opencl", "bench.opencl"}),
    "cuda": frozenset({"backends", "cuda", "bench.cuda"}),
    "cupy": frozenset({"cupy"}),
    "triton": frozenset({"triton", "kernels"}),
    "click": frozenset({"cli"}),
    # It takes three times as long to import as JSON, so no hit may need it.
    "msgspec": frozenset({"recording", "sources.scan_memos", "remote", "engine.warm.elsewhere"}),
    "distributed": frozenset({"engine.workers.clusters"}),
    "mpi4py": frozenset({"engine.workers.clusters"}),
    "obstore": frozenset({"remote.cloud"}),
    "oras": frozenset({"remote.registry_client"}),
    "rich": frozenset({"answers", "cli"}),
    "matplotlib": frozenset({"answers"}),
}


@pytest.mark.parametrize("library", _ONLY)
def test_libraries_stay_in_their_rooms(library: str) -> None:
    """GPU stacks are imported by backends and the two library modules, terminals' libraries above."""
    users = {
        module for module in _modules() for name in _imports(module) if name.partition(".")[0] == library
    }
    assert users, f"nobody imports {library}, so this holds nothing"
    rooms = {module if module in _ONLY[library] else module.partition(".")[0] for module in users}
    assert rooms <= _ONLY[library]


def _talks(node: ast.AST) -> bool:
    """Whether a node prints, prompts, exits or reads the arguments of the process."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in {"print", "input", "exit", "quit", "SystemExit"}
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "sys":
        return node.attr in {"exit", "argv"}
    return isinstance(node, ast.Name) and node.id == "SystemExit"


# The journal names the process that missed.
_TALKERS = frozenset({"library.process", "library.rows"})


def _begins_a_process(module: str, node: ast.stmt) -> bool:
    if module not in {"__main__", "probe.child", "native.build"}:
        return False
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


def test_nothing_below_the_command_line_talks() -> None:
    """Nothing below cli prints, prompts, exits or reads argv, but where a child process begins."""
    talking = [
        f"{module}, line {node.lineno}"
        for module in _modules()
        if _room(module) != "cli" and module not in _TALKERS
        for part in _tree(module).body
        if not _begins_a_process(module, part)
        for node in ast.walk(part)
        if isinstance(node, ast.expr) and _talks(node)
    ]
    assert talking == []


# The most lines of each room, in its .py, .c, .h and .txt files. Code is a cost: a change that needs more
# writes the number here and says why in its commit; one that removes lines lowers it.
LINES: Mapping[str, int] = {
    "caches": 17_309,
    "engine": 8_916,
    "native": 7_065,
    "answers": 5_447,
    "cli": 6_348,
    "remote": 4_819,
    "serve": 4_534,
    "store": 4_107,
    "backends": 3_785,
    "sources": 2_558,
    "payload": 1_897,
    "bench": 1_551,
    "library": 1_712,
    "host": 1_028,
    "recording": 1_036,
    "kernels": 828,
    "opencl": 1_082,
    "probe": 501,
    "manifest": 364,
    "checks": 444,
    "cuda": 578,
    "hip": 103,
    "settings": 404,
    "model": 350,
    "triton": 350,
    "folders": 360,
    "include": 350,
    "assembly": 321,
    "keys": 300,
    "framing": 50,
    "errors": 250,
    "units": 200,
    "examples": 100,
    "__init__": 100,
    "cupy": 50,
    "json_keys": 50,
    "__main__": 50,
}


def _room_lines() -> Mapping[str, int]:
    """The lines of each directory and module of the package, with the texts of pages."""
    found: dict[str, int] = {}
    for path in sorted(_ROOT.rglob("*")):
        if path.suffix in (".py", ".c", ".h", ".txt"):
            room = path.relative_to(_ROOT).parts[0].removesuffix(".py")
            found[room] = found.get(room, 0) + path.read_bytes().count(b"\n")
    return found


def test_no_room_outgrows_its_lines() -> None:
    """Each room has a number, and no more lines than that."""
    found = _room_lines()
    assert found.keys() == LINES.keys()
    assert {room: lines for room, lines in found.items() if lines > LINES[room]} == {}


_HOLDS: Mapping[str, Callable[[str], bool]] = {
    "has a docstring": lambda module: bool(ast.get_docstring(_tree(module))),
    "is short enough": lambda module: (
        len(_modules()[module].read_text(encoding="utf-8").splitlines()) <= _MAX_LINES
    ),
}


def test_no_type_is_first_decoded_by_threads() -> None:
    """A decoder is made once: if several threads decode a new type at once, msgspec ends the process."""
    by_type = re.compile(r"(?:json|msgpack)\.decode\([^)]*type=(?!dict\[)")
    assert [
        name for name, path in _modules().items() if by_type.search(path.read_text(encoding="utf-8"))
    ] == []


def test_no_remedy_installs_a_package_by_our_name() -> None:
    """The index of packages has another one of that name."""
    installs = re.compile(r"pip install '?gpucache")
    assert [name for name, path in _modules().items() if installs.search(path.read_text("utf-8"))] == []


@pytest.mark.parametrize("rule", _HOLDS)
def test_every_module(rule: str) -> None:
    """Every module opens with a docstring and stays within 800 lines."""
    assert [module for module in _modules() if not _HOLDS[rule](module)] == []


_TOLD_IN_HELP = frozenset({"cli.generate", "cli.parameters", "cli.usage", "manifest", "model"})
"""Compilers and caches are named there for people, in examples and manual pages."""
_ALSO_ELSEWHERE: Mapping[str, frozenset[str]] = {
    # Compilers of backends have the name of their cache.
    "pocl": frozenset({"backends", "payload", *_TOLD_IN_HELP, "caches.pyopencl"}),
    # A command's programs that are made from binaries come out of its cache, which the line of run says.
    # Its classes are in dictionaries of pytools.
    "pyopencl": frozenset(
        {"backends", "bench", "opencl", "serve", "answers.run_lines", "caches.pytools", *_TOLD_IN_HELP}
    ),
    "cuda.core": frozenset({"backends", "bench", "cuda", *_TOLD_IN_HELP}),
    # Variables and files of a compiler that one project makes together with its cache.
    "mesa": frozenset({"backends.opencl", "payload.containers", "caches.opaque", "caches.sealed"}),
    "amd-comgr": frozenset({"backends.hip"}),
    # Names of kinds, such as those of payloads and of kernels.
    "vulkan": frozenset({"payload", "caches.taichi"}),
    "triton": frozenset(
        {
            "caches.inductor",
            "caches.vllm",
            "caches.helion",
            "cli.usage",
            "triton",
            # Kernels of its own are recorded and warmed.
            "kernels",
            "recording.kernels",
            "engine.warm.kernels",
        }
    ),
    "cupy": frozenset({"cupy"}),
    "warp": frozenset({"caches.triton", "kernels"}),
    # Modules that they write are recorded.
    "helion": frozenset({"kernels"}),
    "inductor": frozenset({"caches.vllm", "caches.mega_cache", "kernels"}),
    # One reports the other caches in their places, and a page says when a snapshot is better.
    "vllm": frozenset({"caches.deep_gemm"}),
    "deep-gemm": frozenset({"caches.vllm"}),
    "futhark": frozenset({"cli.usage"}),
    "rocfft": frozenset({"cli.usage"}),
}
_NAMES = ("id", "attr", "name", "module", "arg")
"""Where the parts of a tree keep names."""


@cache
def _words(module: str) -> tuple[tuple[int, str], ...]:
    """Every name and every text in a module but docstrings, with its line."""
    nodes = list(ast.walk(_tree(module)))
    told = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    texts = (node for node in nodes if isinstance(node, ast.Constant) and id(node) not in told)
    named = ((node, getattr(node, field, None)) for node in nodes for field in _NAMES)
    found = (*((node, node.value) for node in texts), *named)
    return tuple((getattr(node, "lineno", 0), word) for node, word in found if isinstance(word, str))


_ALIKE = str.maketrans("_-", "..")


@cache
def _plain(module: str) -> str:
    return _modules()[module].read_text(encoding="utf-8").lower().translate(_ALIKE)


@pytest.mark.parametrize("name", SYSTEMS)
def test_no_other_room_names_a_system(name: str) -> None:
    """The knowledge of one system's cache is in its own file and its row."""
    title = load_system(name).title
    every = (title,) if name in backend_names() else (name, title)
    called = "|".join(re.escape(one).replace(r"\.", "[._]").replace(r"\-", "[_-]") for one in every)
    pattern = re.compile(rf"(?<![a-z0-9])(?:{called})(?![a-z0-9])", re.IGNORECASE)
    own = module_of(name).removeprefix("gpucache.").removesuffix(".format")
    allowed = {
        own,
        "caches.registry",
        "caches.systems",
        "caches.desktop_places",
        "caches.learning_places",
        *_ALSO_ELSEWHERE.get(name, ()),
    }
    naming = [
        f"{module}, line {line}"
        for module in _modules()
        if any(one.lower().translate(_ALIKE) in _plain(module) for one in every)
        and not any(f"{module}.".startswith(f"{one}.") for one in allowed)
        for line, word in _words(module)
        if pattern.search(word)
    ]
    assert naming == []
