"""The include closure of a program: every header the compiler could read for it.

Owns the walk from the source to all its headers. It goes breadth first over a list of files, and hashes every
edge: the number of the including file, the spelling, and the number and digest of the file it resolves to. No
path enters the hash, so it stays the same if a tree moves or ``-I`` is spelled differently. It changes when a
file appears earlier in the search, or when equal files are found in another way.
"""

# Paths are bytes, as names in sources are, and pathlib accepts only text.
# ruff: noqa: PTH117, PTH118, PTH119

import functools
import hashlib
import operator
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from gpucache.errors import SourceError
from gpucache.keys import Closure, Include, digest
from gpucache.sources.closure_memos import Memos
from gpucache.sources.disk import Disk
from gpucache.sources.headers import File, Headers, UncacheableError, matching_files
from gpucache.sources.macro_names import (
    ASSEMBLY,
    CLOCKS_AND_FILES,
    DEPENDENCY,
    FILES,
    PROBES_CLOCKS_AND_FILES,
    Pattern,
    macros_of,
    which_names,
)
from gpucache.sources.path_constants import PathConstants, prints_anew
from gpucache.sources.rules import Place, Wanted
from gpucache.sources.scan import (
    Hint,
    Mention,
    Scan,
    can_paste,
    hints,
    path_macros,
    printing_macros,
    probing_macros,
    unknown_probe,
    uses_macro,
)
from gpucache.sources.scan_memos import Scans

_OF_PROCESS = (
    "a header is looked for through /proc, where each process finds other files; name it by another path"
)
_OF_SOURCE = PathConstants.MAIN | PathConstants.LAST | PathConstants.CALLER | PathConstants.TYPES
_QUOTING = tuple(re.compile(rf"\\(.)|{sign}") for sign in ('"', "'"))


def walk_closure(wanted: Wanted, disk: Disk, memos: Memos | None) -> Closure:
    """The closure found by a walk; ``memos`` store the scans of texts."""
    scans = Scans(memos)
    walk = _Walk(disk, scans, wanted)
    named = bool(wanted.named_headers)
    try:
        walk.configure()
        walk.force(wanted.forced)
        walk.cover_named(wanted.named_headers)
        walk.follow()
        while not named and walk.cover_candidates():
            walk.follow()
        walk.judge_paths()
        walk.refuse_pastes(named=named)
        walk.refuse_dependency()
        if not named:
            walk.refuse_assembly()
    except UncacheableError as error:
        walk.uncacheable = walk.uncacheable or str(error)
    if disk.of_process:
        walk.uncacheable = walk.uncacheable or _OF_PROCESS
    scans.keep()
    return walk.closure()


class _Walk:
    """One walk: the files still to scan, those already scanned, and the edges hashed so far."""

    def __init__(self, disk: Disk, scans: Scans, wanted: Wanted) -> None:
        self._name_them, self._rule, self._limits = wanted.name_them, wanted.rule, wanted.limits
        self._disk = disk
        self._scans = scans
        self._headers = Headers(disk, wanted.limits)
        self._cwd = (disk.real(os.fsencode(wanted.cwd)),) if wanted.cwd is not None else ()
        self._listed = tuple(place for name in wanted.include_dirs for place in self._placed(name))
        self._dirs = tuple(dict.fromkeys(self._listed))
        for folder in self._dirs:
            disk.watch(folder)
        self._system = tuple(place for name in self._rule.system for place in self._placed(name))
        # Of unknown order, and perhaps not searched: it matters in which of them a file is.
        self._told = tuple(
            f"{one}/".encode() for one in self._rule.system if self._rule.every and one[0] == "/"
        )
        options = [f"#define {each}\n" for each in chain.from_iterable(map(_readings, wanted.definitions))]
        data = os.fsencode("".join(options))
        self._pending = [File("a build option", 0, data, digest=digest(data))]
        self._held: dict[File, bytes] = {}
        for place, text in ((self._rule.home, wanted.source), *wanted.held):
            name = "a header in memory" if self._held else "the source"
            home = os.path.join(os.fsencode(place), b"") if place is not None else b""
            self._pending.append(file := File(name, 0, text, home, digest=digest(text)))
            self._held[file] = text
        self._main = next(iter(self._held))
        self._scanned: list[File] = []
        self._candidates: tuple[Sequence[bytes], set[Pattern]] | None = None
        self._edges = hashlib.sha256()
        self._includes: set[tuple[str, str]] = set()
        self._tells_places = self._tells_name = False
        self.uncacheable: str | None = None

    def closure(self) -> Closure:
        includes = tuple(Include(name, found or None) for name, found in sorted(self._includes))
        files, stamps = tuple(self._headers.paths()), tuple(self._disk.stamps)
        resolution = self._edges.hexdigest()
        asked = None if self._disk.failed else tuple(self._disk.asked)
        return Closure(
            includes,
            resolution,
            self.uncacheable,
            files,
            stamps,
            asked,
            self._tells_places,
            self._tells_name,
            any(file.text.renames for file in self._scanned if file.text),
        )

    def configure(self) -> None:
        """Cover the configuration file of the compiler; it includes nothing."""
        if self._rule.configuration is not None:
            name = os.fsencode(self._rule.configuration)
            found = (self._headers.at(place, name) for place in self._cwd)
            self._edge(self._main, Mention(name, angled=False, followed=False), next(found, None))

    def force(self, names: Sequence[str]) -> None:
        """Cover ``-include`` options, searched in the current directory, then the include directories."""
        for name in map(os.fsencode, names):
            found = (
                file
                for place in (*self._cwd, *self._dirs)
                for each in self._names(name)
                if (file := self._headers.at(place, each))
            )
            self._edge(self._main, Mention(name, angled=False), next(found, None))

    def cover_named(self, names: Sequence[str]) -> None:
        """Cover headers named by hand, under names that do not depend on where the tree is."""
        for name in names:
            file = next((self._headers.at(b"", path) for path in self._placed(name)), None)
            if file is None:
                raise UncacheableError(
                    f"the named header {name!r} cannot be read; correct its path in headers = [...]"
                )
            self._edge(self._main, Mention(self._relative(file.path), angled=False), file)

    def follow(self) -> None:
        """Scan all pending files and all headers that they include."""
        # The list grows during the loop.
        for file in self._pending:
            if file.data is None:
                continue
            text = file.text = self._scans.of(file.digest, file.data)
            if self._rule.assembles or self._rule.heeds_dependency:
                file.hints = hints(file.data)
            file.data = None
            self._scanned.append(file)
            if text.clock and self.uncacheable is None:
                remedy = self._name_them if self._candidates else "pass such a value with a -D option instead"
                self.uncacheable = f"{file.name} uses {text.clock}, so no two builds are alike; {remedy}"
            for mention in text.mentions:
                self._resolve(file, mention)
        self._pending.clear()

    def judge_paths(self) -> None:
        """Find out whether a constant may be made of a header's path or of the source's file name.

        Some compilers give the source a different file name in each build. NVRTC does not, and names no
        types after files; but a macro may use ``#`` to make a constant of a path that the source prints.
        """
        named = self._rule.names_sources
        prints = PathConstants.PRINTED | PathConstants.ASSERTS if named else PathConstants.PRINTED
        types = not named or self._rule.makes_up_folders
        from_source = _OF_SOURCE if types else _OF_SOURCE & ~PathConstants.TYPES
        texts = [(file, file.text) for file in self._scanned if file.text]
        macros = path_macros([text for _, text in texts])
        headers = any(file.number for file, _ in texts)
        printed = any(text.path_constants & prints for _, text in texts)
        printing = printing_macros([text for _, text in texts]) if named and printed else frozenset()
        computed = printed and any(
            text.path_constants & PathConstants.PRINTS or prints_anew(text.definitions) for _, text in texts
        )
        for file, text in texts:
            told = text.path_constants
            if computed and told & prints:
                told |= PathConstants.HERE | PathConstants.CALLER
            if not file.number and (
                (named and told & prints) or (printing and uses_macro(self._content(file), printing))
            ):
                told |= PathConstants.MAIN
            if macros and not told & PathConstants.HERE and uses_macro(self._content(file), macros):
                told |= PathConstants.HERE
            tells = PathConstants.HERE if file.number else PathConstants.CALLER
            self._tells_places = self._tells_places or bool(headers and told & tells)
            of_source = from_source | PathConstants.HERE if file is self._main else from_source
            if told & of_source and named:
                self._tells_name = True
            elif told & of_source and self.uncacheable is None:
                self.uncacheable = (
                    f"{file.name} may make a constant of the source's file name, which this compiler makes "
                    "up for each build; pass a name with a -D option instead"
                )

    def refuse_pastes(self, *, named: bool) -> None:
        """Refuse texts that may paste the name of a probe, a clock or a file macro together with ``##``.

        Probes are not a reason if headers were ``named`` by hand, as these cover everything a probe can find;
        nor are file macros if the source has the same name in every build.
        """
        texts = [file.text for file in self._scanned if file.text]
        paste = can_paste(texts, CLOCKS_AND_FILES if named else PROBES_CLOCKS_AND_FILES)
        if paste is not None and paste.name in FILES and self._rule.names_sources:
            self._tells_name = self._tells_places = True
            names = CLOCKS_AND_FILES if named else PROBES_CLOCKS_AND_FILES
            paste = can_paste(texts, [name for name in names if name not in FILES])
        if paste is None or self.uncacheable is not None:
            return
        place = next(file.name for file in self._scanned if file.text and paste.chain in file.text.chains)
        macro, name = (each.decode(errors="replace") for each in (paste.chain.macro, paste.name))
        remedy = self._name_them if paste.probe else "build it without gpucache"
        self.uncacheable = (
            f"the macro {macro} in {place} may put {name} together with ##, where it cannot be followed; "
            f"rename its parts, or {remedy}"
        )

    def refuse_assembly(self) -> None:
        """Refuse programs that may make an assembler read a file, as pieces can hide its directive."""
        strings = Hint.STRINGS in self._hints()
        read = Hint.READS | Hint.DOTS if strings else Hint.READS
        macros = {*macros_of(text.definitions for text in self._scans_found())} if strings else ()
        reading = next(
            (
                file.name
                for file in self._scanned
                if file.hints.found & read
                or any(word in macros or word[:1] == b"_" for word in file.hints.dotted)
            ),
            None,
        )
        if self.uncacheable is not None or reading is None or not self._rule.assembles:
            return
        if self._hints() & Hint.ASSEMBLY or can_paste(self._scans_found(), ASSEMBLY):
            self.uncacheable = (
                f"{reading} may have an assembler read a file, as with .incbin, which cannot be followed; "
                f"{self._name_them}"
            )

    def refuse_dependency(self) -> None:
        """Refuse programs that may make the compiler compare the age of a file with a header's."""
        told = self._hints()
        if self.uncacheable is not None or Hint.PRAGMA | Hint.VENDOR not in told:
            return
        pasted = Hint.DEPENDENCY in told or can_paste(self._scans_found(), DEPENDENCY)
        if pasted and self._rule.heeds_dependency:
            self.uncacheable = (
                "a #pragma GCC dependency makes the compiler compare the age of a file; leave it out"
            )

    def _hints(self) -> Hint:
        return functools.reduce(operator.or_, (file.hints.found for file in self._scanned), Hint.NOTHING)

    def _scans_found(self) -> list[Scan]:
        return [file.text for file in self._scanned if file.text]

    def cover_candidates(self) -> bool:
        """Cover the files that includes through macros may resolve to; False if nothing is left to cover."""
        texts = [(file, file.text) for file in self._scanned if file.text]
        self._refuse_unknown(texts)
        asking = [(file, text.asked) for file, text in texts if text.asked]
        if not asking:
            return False
        defined = macros_of(text.definitions for _, text in texts)
        wanted = set[Pattern]()
        for operand in dict.fromkeys(chain.from_iterable(operands for _, operands in asking)):
            names = which_names(operand, defined)
            if names is None:
                raise UncacheableError(
                    "a header is included through a macro that only the compiler can expand; "
                    + self._name_them
                )
            wanted |= names
        roots = self._roots([file for file, _ in asking])
        if self._candidates == (list(roots), wanted):
            return False
        self._candidates = (list(roots), wanted)
        self._headers.remedy = self._name_them
        from_root = {pattern[1:] for pattern in wanted if pattern[0] == b""}
        below = {pattern for pattern in wanted if pattern[0] != b""}
        swept = [(root, b"", place, below) for root, place in roots.items()]
        for root, spelled, place, patterns in (*swept, (b"/", b"/", b"root", from_root)):
            if not patterns:
                continue
            try:
                entries = self._limits.folder_entries
                found = {*matching_files(self._disk, root, patterns, entries=entries)}
                # A directory without such files, such as an empty current one, counts as if it were missing.
                # For the others their kind counts, as not every form of include is searched in each.
                self._frame(*([b"sweep", place] if found else []))
                for name in sorted(found):
                    mention = Mention(spelled + name, angled=True)
                    self._edge(self._main, mention, self._headers.at(root, name))
            except SourceError as error:
                raise UncacheableError(
                    f"a header is included through a macro, and {os.fsdecode(root)!r} {error}; "
                    f"{self._name_them}"
                ) from None
        return True

    def _refuse_unknown(self, texts: Sequence[tuple[File, Scan]]) -> None:
        """Refuse texts with a directive or a probe that is not understood, as it may read any file."""
        anywhere = Place.INCLUDER not in self._rule.angle
        macros = probing_macros([text for _, text in texts], literal=not anywhere)
        told = next((f"{file.name} has {text.unknown}" for file, text in texts if text.unknown), "")
        if not told and (unknown := unknown_probe([text for _, text in texts], macros)):
            told = f"a macro or condition has {unknown[:40].decode(errors='replace')}"
        if not told and macros:
            used = (uses_macro(self._content(file), macros, compared=False) for file, _ in texts)
            told = "a macro around __has_include is used outside of conditions" if any(used) else ""
        if told:
            raise UncacheableError(f"{told}, so that any file may be read; {self._name_them}")

    def _content(self, file: File) -> bytes:
        return self._held[file] if file in self._held else self._headers.again(file)

    def _roots(self, asking: Sequence[File]) -> dict[bytes, bytes]:
        """The directories in which the includes of some files are searched, each once, with its kind."""
        places = {*self._rule.places}
        found = [(folder, b"dirs") for folder in self._dirs]
        if {Place.CWD, Place.MAIN_CWD} & places:
            found += [(folder, b"cwd") for folder in self._cwd]
        if Place.SYSTEM in places:
            found += [(folder, b"system") for folder in self._system]
        if Place.INCLUDER in places:
            found += [(one.directory, b"of %d" % one.number) for one in asking if one.directory is not None]
        roots: dict[bytes, bytes] = {}
        for folder, place in found:
            roots.setdefault(folder, place)
        return roots

    def _resolve(self, includer: File, mention: Mention) -> None:
        every = mention.every or self._rule.every
        found = (
            file
            for place in self._places(includer, mention, every=every)
            for name in self._names(mention.name)
            if (file := self._headers.at(place, name))
        )
        matches: list[File | None] = [*found] if every else [next(found, None)]
        if not mention.every:  # the place of the includer itself decides which directory is next
            matches = [*dict.fromkeys(matches)]
        for file in matches or [None]:
            self._edge(includer, mention, file)

    def _names(self, name: bytes) -> tuple[bytes, ...]:
        suffix = os.fsencode(self._rule.suffix)
        return (name, name + suffix) if suffix and b"." not in os.path.basename(name) else (name,)

    def _places(self, includer: File, mention: Mention, *, every: bool) -> Iterator[bytes]:
        if os.path.isabs(mention.name):
            yield b""
            return
        ordered = self._rule.angle if mention.angled else self._rule.quote
        for place in self._rule.places if every else ordered:
            if place is Place.DIRS:
                yield from self._listed if mention.every else self._dirs
            elif place is Place.SYSTEM:
                yield from self._system
            elif place is Place.INCLUDER:
                yield from () if includer.directory is None else (includer.directory,)
            elif place is Place.CWD or includer is self._main or every:
                yield from self._cwd

    def _edge(self, includer: File, mention: Mention, file: File | None) -> None:
        found = file.digest if file else ""
        self._includes.add((mention.name.decode("utf-8", "surrogateescape"), found))
        numbers = (includer.number, file.number if file else 0, file.inode if file else 0)
        told = [file.path] if file and file.path.startswith(self._told) else []
        self._frame(
            b"%d %d %d" % numbers, b"<" if mention.angled else b'"', mention.name, found.encode(), *told
        )
        if file and mention.followed:
            self._pending.append(file)

    def _frame(self, *parts: bytes) -> None:
        for part in parts:
            self._edges.update(len(part).to_bytes(8, "little") + part)

    def _placed(self, name: str) -> tuple[bytes, ...]:
        """The absolute path of a directory or header given by path; empty if it leads nowhere."""
        path = os.fsencode(name)
        if not path or not (os.path.isabs(path) or self._cwd):
            return ()
        path = os.path.join(*self._cwd, path)
        return (self._disk.real(path) if b".." in path else os.path.normpath(path),)

    def _relative(self, path: bytes) -> bytes:
        for root in (*self._dirs, *self._cwd):
            if path.startswith(os.path.join(root, b"")):
                return os.path.relpath(path, root)
        return os.path.basename(path)


def _readings(option: str) -> Iterable[str]:
    """The definition of a ``-D`` option as written, and as read by compilers that remove quotes or escapes.

    To define a name in quotes, Intel's runtime needs ``\\"a.h\\"``, and NVRTC ``"a.h"``.
    """
    found = {option: None}
    for text in (pending := [option]):
        new = {sign.sub(r"\1", text) for sign in _QUOTING if sign.search(text)} - found.keys()
        found |= dict.fromkeys(sorted(new))
        pending += sorted(new)
    given = (text.replace("\n", " ").partition("=") for text in found)
    return [f"{name} {value if sign else 1}" for name, sign, value in given]
