"""Warp's kernel cache: a directory for each module, with its source, its binaries and its launch data.

Source: ``context.py`` and ``build.py`` of Warp 1.0 to 1.19; checked against files of 1.0.2, 1.5.1 and 1.19.
Each version of Warp has a directory, except below WARP_CACHE_PATH before 1.13. Since 1.2 a module has
``wp_MODULE_HASH/`` in it, with 7 hex digits of a hash over kernels, functions, structures and options, and
there files of that name: ``.cpp`` or ``.cu``, ``.meta`` (a JSON object of each kernel's shared memory) and a
binary per device (``.sm80.cubin``, ``.sm80.ptx``, ``.cpu0eee9287.o``, ``.o``). Before 1.6 they were called
``module_codegen``, and before 1.5 there was no ``.meta``. Such a directory is written under a temporary name
and renamed; a hit requires only the files, and nothing is ever removed. ``lto/`` has code for matrix
functions. Warp 1.0 and 1.1 kept one build of a module: binaries, each with a ``.hash`` of 32 bytes, in
``bin/``, and sources in ``gen/``. There is no checksum: changed code in a binary shows only if it breaks its
tables, and a binary of another module only by the names of kernels in ``.meta``, or by the name of the source
in an object file.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches.binary_format import broken
from gpucache.caches.files import Files
from gpucache.caches.format import Format, architecture
from gpucache.caches.layout import VERSION, Layout, Left, hashed
from gpucache.caches.portable import Fact, Moving, PortableFile
from gpucache.errors import FormatError
from gpucache.payload import PayloadKind

_MODULE = r"wp_(?P<module>[\w.<>-]+)_(?P<digits>[0-9a-f]{7})"
_FILE = "(?:wp_(?P=module)_(?P=digits)|module_codegen)"
_OLDER = r"wp_([\w.<>-]+)"
_TOPS = (f"({VERSION})/", "")
_META_BYTES = 16 << 20
_DEVICE = re.compile(r"\.(cpu|sm\d+[a-z]?)?(?:[0-9a-f]{8})?\.?(?:o|cubin|ptx)")
_BUILT = re.compile(r"\.(?:cpu([0-9a-f]{8})|sm(\d+[a-z]?))\.(o|cubin|ptx)")
_SOURCE = re.compile(rb"\0(wp_[\w.<>-]+)\.cpp\0")
"""The name of the source in an object file of a CPU; all are called alike in 1.2 to 1.5."""
_ENDING = re.compile(r"(?:\.(?:cpu|sm\d+))?\.\w+$")
_SHARED = re.compile(r"(.+)_cuda_kernel_(?:for|back)ward_smem_bytes")
_BINARIES = {".cubin": PayloadKind.CUBIN, ".ptx": PayloadKind.PTX, ".o": PayloadKind.ELF}
_FAILS = "Warp takes it for a hit, so the program fails at every start"


class Warp(Format, of="warp"):
    """The modules that Warp compiled, for CPUs and GPUs."""

    layout = Layout(
        [
            f"{top}{one}"
            for one in (
                rf"{_MODULE}/{_FILE}(?:\.\w+)?\.(?:cubin|ptx|o)",
                rf"{_MODULE}/{_FILE}(?:\.\w+)?\.meta",
                rf"{_MODULE}/{_FILE}\.(?:cu|cpp)",
                rf"(bin)/{_OLDER}(?:\.sm\d+\.(?:cubin|ptx)|\.o)()",
                rf"(bin)/{_OLDER}\.(?:cpu|sm\d+)\.hash()",
                rf"(gen)/{_OLDER}\.(?:cpp|cu)()",
            )
            for top in _TOPS
        ],
        left=[Left(rf"{top}{_MODULE}_p(?P<pid>\d+)(?:_t\d+)?/{_FILE}[\w.]+") for top in _TOPS],
        signs=[f"{top}{one}" for one in (_MODULE, "bin/wp_.+", "gen/wp_.+") for top in _TOPS],
        own=[f"{top}lto/" for top in (f"{VERSION}/", "")],
        key=lambda groups: groups[-1] + hashed(groups[:-1])[: 40 - len(groups[-1])],
    )
    wanted = {"key": "the 7 hex digits that Warp prints when it loads a module, or of an entry"}
    opaque = (
        "an entry keeps the source that Warp generated and nothing else of its hash; compare the sources of "
        "two entries of a module"
    )
    folders_removed = 1
    distribution = "warp-lang"
    moving = Moving(
        tells="source text",
        sources=True,
        note="Code for a CPU stays if its file's name has no digits of the CPU, as in older versions.",
    )

    def look(self, item: Files) -> CacheEntry:
        folder, kinds = item.parts[-1], [_BINARIES.get(Path(name).suffix) for name in item.names]
        older = folder in ("bin", "gen")
        module = _ENDING.sub("", item.names[0]) if older else folder[: -len("_0123456")]
        devices = [match[1] or "cpu" for name in item.names if (match := _DEVICE.search(name))]
        problem = None
        if not any(kinds) and folder != "gen":
            detail = "its directory has no binary, so Warp compiles the module again"
            problem = Problem(FindingKind.ORPHAN, detail)
        elif lacking := _lacking(item, folder):
            detail = f"its {lacking} file is gone, so Warp compiles the module again"
            problem = Problem(FindingKind.TRUNCATED, detail)
        return self.entry(item)._replace(
            program=module.removeprefix("wp_"),
            target=" ".join(sorted({"cpu" if one == "cpu" else f"cuda:sm_{one[2:]}" for one in devices})),
            artifact_kind=next((kind.value for kind in kinds if kind), "source"),
            damage=problem,
            toolchain=(("Warp", next(iter(item.parts[:-1]), "")),),
        )

    def check(self, item: Files) -> Iterator[Problem]:
        if problem := self.look(item).damage:
            yield problem
        kernels: set[str] = set()
        for name in sorted(item.names, key=lambda name: not name.endswith(".meta")):
            kind = _BINARIES.get(Path(name).suffix)
            if name.endswith(".meta"):
                try:
                    told = json.loads(item.read(name, _META_BYTES))
                    kernels = {found[1] for key in {**told} if (found := _SHARED.fullmatch(key))}
                except (ValueError, TypeError, RecursionError) as error:
                    yield Problem(FindingKind.CORRUPT, f"{name} cannot be parsed ({error}); {_FAILS}")
            elif kind is not None:
                data = item.read(name)
                sound = yield from broken(name, data, kind, _FAILS)
                absent = sorted(one for one in kernels if one.encode() not in data)
                source = _SOURCE.search(data) if kind is PayloadKind.ELF else None
                module = item.parts[-1] if item.parts[-1] != "bin" else name.removesuffix(".o")
                if sound and (absent or (source and source[1].decode() != module)):
                    why = f"no kernel {absent[0]}" if absent else f"another source than {module}"
                    detail = f"{name} has {why}, so it is of another module; {_FAILS}"
                    yield Problem(FindingKind.MISLABELLED, detail)

    def facts(self, item: Files, look: CacheEntry) -> Iterator[tuple[str, str]]:
        """The version, and for each binary the device in its name, of which one suffices."""
        yield from super().facts(item, look._replace(target=""))
        for name in item.names:
            if found := _BUILT.search(name):
                cpu, arch, ending = found.groups()
                form = "compute" if ending == "ptx" else "sm"
                yield (Fact.CPU, cpu) if cpu else architecture(f"{form}_{arch}")

    def files_to_move(self, item: Files) -> Sequence[PortableFile]:
        """Its files, unless the name of one does not say for which CPU it is, as in older versions."""
        if any(name.endswith(".o") and not _BUILT.search(name) for name in item.names):
            raise FormatError("its code for a CPU does not say for which; compile it there with a newer Warp")
        return super().files_to_move(item)

    def removal_order(self, names: Sequence[str]) -> Sequence[str]:
        """The binaries first; the launch data, without which Warp uses none of them, at the end."""
        return sorted(names, key=lambda name: (name.endswith(".meta"), Path(name).suffix not in _BINARIES))

    def payload(self, item: Files) -> bytes:
        if Path(item.names[0]).suffix not in _BINARIES:
            raise FormatError(f"{item.folder} has no binary")
        return item.read(item.names[0])


def _lacking(item: Files, folder: str) -> str:
    """The ending of a file without which Warp does not use the binaries; empty if it exists."""
    if folder in ("bin", "gen"):
        return "" if folder == "gen" or any(name.endswith(".hash") for name in item.names) else ".hash"
    before_meta = any(name.startswith("module_codegen.") for name in item.names)
    return "" if before_meta or any(name.endswith(".meta") for name in item.names) else ".meta"
