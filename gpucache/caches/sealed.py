"""Caches whose files show by themselves that they are whole, a class for each owner: by a digest, a size, a
header, or the form of their lines."""

import re
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from hashlib import new
from pathlib import Path
from typing import ClassVar

from xxhash import xxh3_128_digest

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches import files
from gpucache.caches.files import Files, Frame, Parts, Rule
from gpucache.caches.format import Format
from gpucache.caches.layout import Layout, Left, Whose, hashed
from gpucache.errors import FormatError
from gpucache.folders import Folder

_START_BYTES = 16


class SealedFormat(Format):
    """A cache with entries of one file each."""

    kind: ClassVar[str]
    begins: ClassVar[bytes] = b""
    """The pattern of the first bytes of each file, by which it shows its owner."""
    trusts_variables = True

    def look(self, item: Files) -> CacheEntry:
        start = item.part(item.names[0], 0, _START_BYTES)
        begins = re.match(self.begins, start)
        detail = f"it does not begin as {self.owner}'s do: {self.frames[0].effect}"
        return self.entry(item)._replace(
            program="/".join((*item.parts, item.names[0])),
            artifact_kind=self.kind,
            damage=Problem(FindingKind.MISLABELLED, detail) if start and not begins else None,
        )


def _frame(names: str, words: str, effect: str, wrong: Callable[[Parts], str]) -> Frame:
    return Frame(names, words, effect, [Rule(FindingKind.CORRUPT, wrong, "{}")])


_WORD, _FX, _RUSTC = (1 << 64) - 1, 0x517CC1B727220A95, 0xF1357AEA2E62A9C5
_MIXED = 0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0
_MESA, _MESA_HEAD = 0x875F, struct.Struct("<I20sII")
_PAIR = struct.Struct("<2Q")


def _mesa(binary: bytes, form: int) -> str:
    """The fault of a driver's binary, if it is Mesa's: its size or its CRC-32."""
    if form != _MESA:
        return ""
    _, _, size, crc = _MESA_HEAD.unpack(binary[: _MESA_HEAD.size].ljust(_MESA_HEAD.size, b"\0"))
    code = binary[_MESA_HEAD.size :]
    whole = len(code) == size and zlib.crc32(code) ^ 0xFFFFFFFF == crc
    return "" if whole else "has a binary of Mesa's with another size or CRC-32 than it says"


def _turned(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _WORD


def _fx_hash(data: bytes) -> int:
    """The hash of the Rust library fxhash for bytes: of their number and of words of eight, four and one."""
    eights, rest = divmod(len(data), 8)
    value = 0
    for word in (len(data), *struct.unpack(f"<{eights}Q{'I' * (rest > 3)}{rest % 4}B", data)):
        value = (_turned(value, 5) ^ word) * _FX & _WORD
    return value


def _rustc_hash(data: bytes) -> int:
    """The hash of the Rust library rustc-hash 2 for more than sixteen bytes."""

    def mixed(left: int, right: int) -> int:
        return left * right & _WORD ^ left * right >> 64

    first, second, third = _MIXED
    for left, right in _PAIR.iter_unpack(data[: (len(data) - 1) // 16 * 16]):
        first, second = second, mixed(first ^ left, third ^ right)
    left, right = _PAIR.unpack(data[-16:])
    value = len(data) * _RUSTC + (mixed(first ^ left, second ^ right) ^ len(data))
    return _turned(value * _RUSTC & _WORD, 26)


def _firefox(one: Parts) -> str:
    data = one.read("rest")
    if int.from_bytes(data[:8], "little") != len(data) - 20 or data[:-9:-1].hex() != one.name:
        return "has another size or digest than it says"
    wrong = Firefox.is_known(one.item) and one.numbers["hash"] not in (_rustc_hash(data), _fx_hash(data))
    return (
        "has another hash than it says" if wrong else _mesa(data[8:-12], one.number(one.size_bytes - 12, 4))
    )


class Firefox(SealedFormat, of="firefox"):
    """The programs of WebRender in each profile.

    Source: Firefox, ``gfx/webrender_bindings/src/program_cache.rs``; checked against files of Firefox 153 on
    Mesa's llvmpipe. A file is named by the digest of a shader's source: u32 a magic number and version, a
    hash of the rest (fxhash's, later that of rustc-hash 2), u64 size of the driver's binary, that, u32 its
    form and the digest. ``startup_shaders`` lists those that every start loads, for 400 ms at most. Files are
    written in place.
    """

    layout = Layout(["([0-9a-f]{16})"], own=["startup_shaders"], signs=["startup_shaders"])
    frames = (
        _frame(
            "[0-9a-f]{16}",
            "magic:u32 hash:u64 rest:rest",
            "Firefox compiles the shader and writes it again",
            _firefox,
        ),
    )
    checksums = True
    kind, begins = "gl-program", rb"[\x30-\x3f]\xad\x54\xb1"  # the last digit is a version

    def has_checksum(self, item: Files) -> bool:
        return self.is_known(item)

    @classmethod
    def is_known(cls, item: Files) -> bool:
        """Whether the hash of the file's version is known, so that it can be checked."""
        return item.part(item.names[0], 0, 4) == b"\x32\xad\x54\xb1"


def _begins(folder: Folder, name: str, start: bytes) -> bool:
    with suppress(OSError, FormatError):
        return re.match(start, files.read_part(folder, name, 0, _START_BYTES)) is not None
    return False


def _qt(one: Parts) -> str:
    binary = one.read("binary")
    more = len(binary) != one.numbers["size"]
    return "goes on behind its end" if more else _mesa(binary, one.numbers["kind"])


class Qt(SealedFormat, of="qt"):
    """The programs of Qt Quick and of QOpenGLShaderProgram.

    Source: Qt, ``src/gui/opengl/qopenglprogrambinarycache.cpp``; checked against files of PySide6 6.12 on
    Mesa's llvmpipe. Older versions of Qt have one directory for all programs of a user, 6.12 has one for
    each, below its organisation and name. A file has Qt's version, the size of a pointer, the driver's names,
    and its binary with form and size, and is renamed into place; one where they differ, or that is broken, is
    written again.
    """

    layout = Layout(["([0-9a-f]{40})"], left=[Left(r"[0-9a-f]{40}\.\w{6}")])
    frames = (
        _frame(
            "[0-9a-f]{40}",
            "magic:u32 form:u32 qt:u32 pointer:u32 vendor:u32 :1*vendor gpu:u32 :1*gpu driver:u32 :1*driver "
            "kind:u32 size:u32 /4 binary:rest",
            "Qt compiles the program and writes it again",
            _qt,
        ),
    )
    kind, begins = "gl-program", b"\x74\x51\0\0"

    @classmethod
    def whose(cls, path: Path) -> Whose:
        """The owner by the directory's name, or by how a file begins: other programs use such names."""
        found = super().whose(path)
        with files.open_folder(path) as folder:
            begins = any(_begins(folder, one.name, cls.begins) for one in folder.entries())
        known = begins or path.name.startswith("qtshadercache")
        return found if known or found is not Whose.OWN else Whose.FOREIGN


def _rows(one: Parts) -> str:
    """The fault of the rows of libplacebo's file: a u64 key, a u64 size and bytes."""
    data, at = one.read("rows"), 0
    for _ in range(one.numbers["count"]):
        at += 16 + int.from_bytes(data[at + 8 : at + 16], "little")
        if at > len(data):
            break
    return "" if at == len(data) and one.number(0, 4) == 0x50444C50 else "has other rows than it says"


def _mpv(one: Parts) -> str:
    begins = one.item.part(one.name, 0, 20) == b"mpv shader cache v1\n"
    return _mesa(one.read("binary"), one.numbers["form"]) if begins else ""


class Mpv(SealedFormat, of="mpv"):
    """The shaders of mpv's two renderers.

    Source: mpv, ``video/out/gpu/shader_cache.c``, and libplacebo; checked against files of mpv 0.35 on Mesa's
    llvmpipe. A file is named by the SHA-256 of a shader: a line with the version, u32 the form of the
    driver's binary, and that. A table of colours has such a name as well, and no header. libplacebo's are one
    file of rows, later ``shader_`` and a hash. All are written in place, and a broken one is written again.
    """

    layout = Layout(
        ["([0-9A-F]{64})", "shader_([0-9a-f]{16})", r"libplacebo\.cache"],
        own=["icc_[0-9a-f]{16}"],
        key=hashed,
    )
    frames = (
        _frame(
            "[0-9A-F]{64}", ":20 form:u32 binary:rest", "mpv compiles the shader and writes it again", _mpv
        ),
        Frame("shader_.*", "form:u32 binary:u8", "mpv compiles the shader and writes it again"),
        _frame(".*cache", ":8 count:u32 rows:rest", "mpv compiles all shaders and writes them again", _rows),
    )
    kind = "gl-program"


def _unlike_name(one: Parts) -> str:
    """The fault of a file whose name is its SHA-256, plain or as git computes it with the size."""
    hasher = new("sha256" if len(one.name) == 64 else "sha1", usedforsecurity=False)
    if len(one.name) == 40:
        hasher.update(b"blob %d\0" % one.size_bytes)
    hasher.update(one.read("whole"))
    return "" if hasher.hexdigest() == one.name else "does not have the content by which it is named"


class HubKernels(SealedFormat, of="hub-kernels"):
    """Compiled kernels from the hub of Hugging Face: downloads, in the directory of all of its downloads.

    Source: kernels 0.17, ``kernels/hf_hub.py`` and ``kernels/resolver.py``, and huggingface_hub,
    ``file_download.py`` (PyPI); checked against files that it downloaded from a server of this machine. A
    directory for each repository has its files by digest in ``blobs/``, by SHA-256 or as git has them, and a
    directory for each version with links to them. A file that is there is loaded as it is, and one that is
    gone is downloaded again.
    """

    layout = Layout(
        [rf"(kernels--[\w.-]+)/blobs/({digits})" for digits in ("[0-9a-f]{64}", "[0-9a-f]{40}")],
        left=[Left(r"kernels--[\w.-]+/blobs/[0-9a-f]+\.incomplete", sure=True)],
        own=["(?!kernels--).+", "(?!kernels--).+/", r"kernels--[\w.-]+/(?:refs|snapshots|trees|\.no_exist)/"],
        signs=[r"kernels--[\w.-]+"],
        key=lambda groups: groups[1] + hashed(groups[:1])[:8],
    )
    frames = (
        _frame(
            "[0-9a-f]+",
            "whole:rest",
            "a program that loads it fails, or runs other code, at every start",
            _unlike_name,
        ),
    )
    checksums = True
    kind = "download"


def _unlike_end(one: Parts) -> str:
    data = one.read("whole")
    return "" if xxh3_128_digest(data[:-16]) == data[:-17:-1] else "does not end in its own digest"


_FOLDER = r"/([a-z\d+-]{1,19}|[a-z\d+-]*\.[a-z\d.+-]+)"
_FOLDERS = [r"\.(mojo|max|mogg)_cache" + _FOLDER * depth for depth in (2, 3, 4)]


class Modular(SealedFormat, of="modular"):
    """The compiled code of Mojo and MAX.

    Source: files of mojo 1.2 and max 26.7 (PyPI) on a CPU, under each of the variables, and their behaviour
    with broken ones. Below ``.mojo_cache``, ``.max_cache`` and ``.mogg_cache`` a directory for each version,
    which the next one that starts removes, has files that are named by a hash in Base64: MLIR, objects,
    graphs or names of others, and behind that the XXH3 of 128 bits. They are written under a temporary name
    and renamed.
    """

    layout = Layout(
        [rf"{folder}/([\w-]{{43}})" for folder in _FOLDERS],
        left=[Left(rf"{folder}/[\w-]{{43}}\.temp-stream-\w+", sure=True) for folder in _FOLDERS],
        own=[rf"{folder}\.lock(?:-\w+)?" for folder in _FOLDERS],
        signs=[r"\.(?:mojo|max|mogg)_cache"],
        key=hashed,
    )
    frames = (_frame(".+", "whole:rest", "Mojo or MAX ends with an error at every start", _unlike_end),)
    checksums = True
    kind = "modular"


def _lines(one: Parts) -> str:
    rows = one.item.read(one.name).split(b"\n")
    whole = not rows.pop() and all(row.count(b",") > 1 for row in rows)
    return "" if whole else "has a line without its end"


class TunableOp(SealedFormat, of="tunableop"):
    """The fastest implementation of each matrix product that PyTorch measured: no code, but slow to make.

    Source: PyTorch, ``aten/src/ATen/cuda/tunable/Tunable.cpp`` and ``README.md``; PyTorch 2.15 (PyPI) read
    lines of this form without a GPU, but writes them only with one. ``tunableop_results0.csv`` and so on, one
    for each GPU, begin with the versions of the libraries, and are not used with others.
    """

    layout = Layout(
        [r"tunableop_results(\d*)\.csv"],
        own=[r"(?!tunableop_results\d*\.csv$).+", r"(?!tunableop_results\d*\.csv$).+/"],
        key=hashed,
    )
    frames = (
        _frame(
            ".+", "first:u8 rows:rest", "PyTorch leaves out what it cannot read, and measures again", _lines
        ),
    )
    kind, begins = "tuning-results", b"Validator,"

    def look(self, item: Files) -> CacheEntry:
        rows = (
            row.split(",")
            for row in item.part(item.names[0], 0, 4096).decode("utf-8", "replace").splitlines()
        )
        versions = tuple((row[1], row[2]) for row in rows if row[0] == "Validator" and len(row) > 2)
        return super().look(item)._replace(program=item.names[0], toolchain=versions)
