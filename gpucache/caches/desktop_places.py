"""The places of the shader caches of the desktop's programs and drivers: rows of ``systems``."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpucache.answers.entries import Location
from gpucache.caches import places
from gpucache.caches.places import (
    ANY_BINARY,
    WINDOWS,
    Home,
    Place,
    Places,
    Temporary,
    Var,
    cached,
    matching,
    on,
    row,
)

_SHOWING = ("GPUCache", "Default/GPUCache", "DawnCache", "ShaderCache", "GPUPersistentCache")
_CHROME = on(
    (Home(".config/google-chrome", expanded=True),),
    macos=(Home("Library/Application Support/Google/Chrome", expanded=True),),
    windows=(Var("LOCALAPPDATA", "Google/Chrome/User Data"),),
)
_PROFILES = on(
    tuple(
        Home(below)
        for below in (
            ".config/*",
            ".config/BraveSoftware/*",
            ".var/app/*/config/*",
            ".var/app/*/config/BraveSoftware/*",
            "snap/*/current/.config/*",
            "snap/*/current/.config/BraveSoftware/*",
            "snap/*/common/*",
        )
    ),
    macos=(Home("Library/Application Support/*"), Home("Library/Application Support/*/*")),
    windows=(Var("LOCALAPPDATA", "*/*/User Data"), Var("APPDATA", "*")),
)
"""The directories of profiles of programs that are built on Chromium, of Flatpak's and of snap's as well."""
_GLIB_ON_WINDOWS = "Microsoft/Windows/INetCache"
_MESA_FOLDER = "mesa_shader_cache"
_MESA_FORMS = ("", "_db", "_sf")
_MESA_SHIFTS = {"": 30, "K": 10, "M": 20, "G": 30}


class MesaPlaces(Places):
    name = "mesa"
    title = "Mesa shader cache"
    owner = "Mesa"
    driver = True
    place = Place(
        (Var("MESA_SHADER_CACHE_DIR", _MESA_FOLDER), *cached(_MESA_FOLDER, recorded=True)),
        remedy="set MESA_SHADER_CACHE_DIR to an existing directory",
        off={"MESA_SHADER_CACHE_DISABLE": ("1", "true")},
    )
    tracing = {"MESA_SHADER_CACHE_SHOW_STATS": "true"}
    unseen = "an entry that was exchanged with another, as it does not contain its key"

    @classmethod
    def found(cls, environ: Mapping[str, str]) -> Iterator[Location]:
        for location in super().found(environ):
            named = [location.root + form for form in _MESA_FORMS]
            found = [place for place in named if places.is_folder(Path(place))]
            for place in found or named[:1]:
                at = location if place == location.root else location._replace(problems=())
                yield at._replace(root=place, enabled=bool(found) and location.enabled)

    @classmethod
    def limit_bytes(cls, environ: Mapping[str, str]) -> int | None:
        """The size above which Mesa evicts, 1 GiB unless it is set; a number without a unit is of GiB."""
        text = environ.get("MESA_SHADER_CACHE_MAX_SIZE", "1")
        match = re.fullmatch(r"(\d{1,9})([KMG]?)", text, re.IGNORECASE)
        return int(match[1]) << _MESA_SHIFTS[match[2].upper()] if match else 1 << 30


_GL_PATH, _GL_SIZE = "__GL_SHADER_DISK_CACHE_PATH", "__GL_SHADER_DISK_CACHE_SIZE"
_GL_UNLIMITED = "__GL_SHADER_DISK_CACHE_SKIP_CLEANUP"
_GL_DEFAULT_BYTES, _GL_OLDER_BYTES = 1 << 30, 128 << 20
_GL_OLDER = ".nv/GLCache"


class NvidiaGlPlaces(Places):
    """The shaders that the driver compiled for OpenGL and Vulkan.

    Source of the places, sizes and variables: README of the Linux driver, "OpenGL Environment Variable
    Settings", and its release notes from 460 on; source of the names: published listings. No cache of an
    NVIDIA GPU was available. A directory for driver and GPU and one for the program contain pairs of a
    ``.toc`` and a ``.bin``, whose format NVIDIA does not document. The driver uses an older place as long as
    it exists.
    """

    name = "nvidia-gl"
    title = "shader cache of NVIDIA's driver"
    owner = "NVIDIA's driver"
    driver = True
    place = Place(
        (
            Var(_GL_PATH, "GLCache"),
            *on(cached("nvidia/GLCache"), windows=(Var("LOCALAPPDATA", "NVIDIA/GLCache"),)),
        ),
        remedy=f"set {_GL_PATH} to an existing directory",
        off={"__GL_SHADER_DISK_CACHE": ("0",)},
    )
    signs = (r"[0-9a-f]{32}/[0-9a-f]{16}/[0-9a-f]{16}\.toc",)

    @classmethod
    def found(cls, environ: Mapping[str, str]) -> Iterator[Location]:
        for location in super().found(environ):
            limited = location._replace(limit_bytes=_gl_limit(environ, _GL_DEFAULT_BYTES))
            base = environ.get(location.decided_by)
            older = Path(base or "", _GL_OLDER)
            if location.decided_by == _GL_PATH or not older.is_absolute() or not places.is_folder(older):
                yield limited
                continue
            at = location._replace(root=str(older), limit_bytes=_gl_limit(environ, _GL_OLDER_BYTES))
            off = location.problems[:1] if cls.place.why_off(environ) else ()
            yield at._replace(enabled=not off, problems=(*off, *cls.at_place(older)))
            if places.is_folder(Path(location.root)):
                why = f"the driver does not use this place as long as {older} exists, which may be removed"
                yield limited._replace(enabled=False, problems=(why,))

    @classmethod
    def variables(cls, environ: Mapping[str, str]) -> Iterator[str]:
        if (named := environ.get(_GL_PATH)) and not places.is_folder(Path(named)):
            yield (
                f"{_GL_PATH} names a directory that does not exist, so nothing is kept; "
                f"run 'mkdir -p {named}'"
            )
        if (size := environ.get(_GL_SIZE)) and not (size.isascii() and size.isdecimal()):
            yield (
                f"{_GL_SIZE}={size} is not a number of bytes; write the digits alone, such as "
                f"{_GL_SIZE}=10737418240"
            )


def _gl_limit(environ: Mapping[str, str], default_bytes: int) -> int | None:
    """The size above which the driver evicts old entries; None if it does not."""
    if environ.get(_GL_UNLIMITED, "") not in ("", "0"):
        return None
    size = environ.get(_GL_SIZE, "")
    return int(size) if size.isascii() and size.isdecimal() and len(size) < 20 else default_bytes


_GTK = "gtk-4.0/vulkan-pipeline-cache"


class VulkanPlaces(Places):
    name = "vulkan"
    title = "Vulkan pipeline caches"
    owner = "a Vulkan program"
    place = Place(
        on(cached(_GTK), windows=(Var("LOCALAPPDATA", f"{_GLIB_ON_WINDOWS}/{_GTK}"),)),
        lacking="XDG_CACHE_HOME moves every cache that follows it; programs keep pipelines where they like",
    )

    @classmethod
    def found(cls, environ: Mapping[str, str]) -> Iterator[Location]:
        for location in super().found(environ):
            yield location
            blender = Path(location.root).parents[1] / "blender" / "vk-pipeline-cache"
            if places.is_folder(blender):
                found = tuple(cls.at_place(blender))
                yield location._replace(root=str(blender), enabled=True, problems=found)


class ChromiumPlaces(Places):
    name = "chromium"
    title = "shader caches of Chromium and Electron"
    owner = "Chromium"
    unseen = "a changed byte in a shader"
    place = Place(
        _CHROME,
        remedy="start the program with --user-data-dir",
        also=(Var("CHROME_USER_DATA_DIR"),),
        lacking=(
            "Chromium keeps its caches in its profile, which --user-data-dir moves; so do other browsers and "
            "Electron programs, each in a folder next to Chrome's"
        ),
    )

    @classmethod
    def found(cls, environ: Mapping[str, str]) -> Iterator[Location]:
        """Chrome's profile, and every other directory of profiles that has shaders."""
        told = list(super().found(environ))
        yield from told
        seen = {Path(location.root) for location in told}
        for way in _PROFILES:
            pattern, decided_by = way.find(environ) or (Path(), "")
            for folder in matching(pattern) if decided_by else ():
                if folder not in seen and any(places.is_folder(folder / one) for one in _SHOWING):
                    seen.add(folder)
                    found = tuple(cls.at_place(folder))
                    yield Location(cls.name, str(folder), decided_by, enabled=True, problems=found)


_STEAM = "Steam/steamapps/shadercache"
_FIREFOX = ".mozilla/firefox/*/shader-cache"
_OF_PROGRAMS = ("", "*/", "*/*/")


ROWS = (
    row(
        ("darktable", "darktable kernel cache", "darktable"),
        *on(
            cached("darktable", expanded=True),
            windows=(Var("LOCALAPPDATA", f"{_GLIB_ON_WINDOWS}/darktable"),),
        ),
        unseen=ANY_BINARY,
        remedy="set XDG_CACHE_HOME, or start darktable with --cachedir",
        also=(Home(".var/app/org.darktable.Darktable/cache/darktable"),),  # as Flatpak sets XDG_CACHE_HOME
        lacking="XDG_CACHE_HOME moves every cache that follows it; --cachedir moves darktable's alone",
    ),
    row(
        ("cycles", "Cycles kernel cache", "Cycles"),
        *(() if WINDOWS else cached("cycles/kernels", expanded=True)),
        nowhere="Blender has made none in its directory of settings; name that directory",
        also=(Var("APPDATA", "Blender Foundation/Blender/*/cache/kernels"),) if WINDOWS else (),
        unseen=ANY_BINARY,
    ),
    row(
        ("dxvk", "DXVK shader cache", "DXVK"),
        Var("DXVK_SHADER_CACHE_PATH"),
        Var("LOCALAPPDATA" if WINDOWS else "XDG_CACHE_HOME", "dxvk"),
        Home(".cache/dxvk"),
        tracing={"DXVK_LOG_LEVEL": "debug"},
        off={"DXVK_SHADER_CACHE": ("0",)},
    ),
    # The pipelines of games, before and after the driver compiled them. Source: Fossilize of 2026,
    # ``fossilize_db.cpp``, and published listings of such directories; no cache that Steam wrote was
    # available. ``APPID/fozpipelinesv6/`` has Fossilize's archives (``*.foz``), which Steam downloads and
    # into which games write the pipelines that they create; ``nvidiav1`` and ``mesa_shader_cache_sf`` are the
    # drivers' own caches for that game.
    row(
        ("steam", "Steam shader pre-caches", "Steam"),
        *on(
            (Home(f".local/share/{_STEAM}"),),
            macos=(Home(f"Library/Application Support/{_STEAM}"),),
            windows=(Temporary(_STEAM, user=False, folder="C:/Program Files (x86)"),),
        ),
        signs=(r"\d+/(?:fozpipelinesv\d+|mesa_shader_cache_sf|nvidiav\d+)",),
        remedy="move the game to another Steam library",
        also=(
            Home(".steam/debian-installation/steamapps/shadercache"),
            Home(f".var/app/com.valvesoftware.Steam/.local/share/{_STEAM}"),
            Home(f"snap/steam/common/.local/share/{_STEAM}"),
        ),
        lacking="Steam keeps shaders in each of its libraries, which no variable moves",
    ),
    row(
        ("firefox", "shader caches of Firefox and Thunderbird", "Firefox"),
        nowhere="Firefox keeps shaders in each of its profiles, and none was found; name that directory",
        remedy="start it with --profile",
        also=on(
            (
                Home(_FIREFOX),
                Home(".config/mozilla/firefox/*/shader-cache"),
                Home(".thunderbird/*/shader-cache"),
                Home(f"snap/firefox/common/{_FIREFOX}"),
                Home(f".var/app/org.mozilla.firefox/{_FIREFOX}"),
            ),
            macos=(Home("Library/Application Support/Firefox/Profiles/*/shader-cache"),),
            windows=(Var("APPDATA", "Mozilla/Firefox/Profiles/*/shader-cache"),),
        ),
        lacking="Firefox keeps shaders in its profile, which --profile moves",
    ),
    row(
        ("mpv", "mpv shader cache", "mpv"),
        *on(cached("mpv"), macos=(Home("Library/Caches/io.mpv"),), windows=(Var("LOCALAPPDATA", "mpv"),)),
        unseen="a changed byte inside a shader",
        remedy="set --gpu-shader-cache-dir",
        also=(Home(".var/app/io.mpv.Mpv/cache/mpv"),),
    ),
    row(
        ("qt", "Qt shader cache", "Qt"),
        unseen="a changed byte inside a program",
        nowhere="no program of this user has made qtshadercache; name that directory",
        remedy="set XDG_CACHE_HOME",
        also=on(
            tuple(way for above in _OF_PROGRAMS for way in cached(f"{above}qtshadercache*")),
            macos=tuple(Home(f"Library/Caches/{above}qtshadercache*") for above in _OF_PROGRAMS),
            windows=tuple(Var("LOCALAPPDATA", f"{above}cache/qtshadercache*") for above in _OF_PROGRAMS),
        ),
        lacking="XDG_CACHE_HOME moves every cache that follows it, as Qt has no separate variable",
    ),
)
