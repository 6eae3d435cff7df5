"""The readable fields of a key: what a device string says, and texts out of raw bytes.

Source: libsycl, ``persistent_device_code_cache.cpp`` (``getDeviceIDString``). Pure.
"""

import hashlib

DEVICE_LABELS = ("platform name", "device name", "device version", "driver version")
IDENTITY_LABELS = DEVICE_LABELS[:2]
_SHOWN_BYTES = 4096
_HEX_SHOWN = 16


def text(raw: bytes) -> str:
    """Bytes as text that is safe on a terminal, cut at 4 KiB."""
    decoded = raw[:_SHOWN_BYTES].decode("utf-8", "replace")
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in decoded)


def device_pairs(device: bytes) -> tuple[tuple[str, str], ...]:
    """The four parts of a device string, by label; one pair ``device`` for a string of another form.

    Only the name of the device is taken to hold slashes of its own.
    """
    platform, slash, rest = text(device).partition("/")
    parts = rest.rsplit("/", 2)
    if not slash or len(parts) != 3:
        return (("device", text(device)),)
    return tuple(zip(DEVICE_LABELS, (platform, *parts), strict=True))


def target(device: bytes) -> str:
    """Platform and name of a device, as they are shown."""
    return "/".join(value for label, value in device_pairs(device) if label in (*IDENTITY_LABELS, "device"))


def blob(raw: bytes) -> str:
    """Size and first bytes of a blob."""
    if not raw:
        return "none"
    more = "..." if len(raw) > _HEX_SHOWN else ""
    return f"{len(raw)} bytes {raw[:_HEX_SHOWN].hex()}{more}"


def sha256(raw: bytes) -> str:
    """SHA-256 as lower-case hex."""
    return hashlib.sha256(raw).hexdigest()
