"""The readable fields of a key: what a device string says, and texts out of raw bytes.

Source: libsycl, ``persistent_device_code_cache.cpp`` (``getDeviceIDString``). Pure.
"""

import hashlib

DEVICE_LABELS = ("platform name", "device name", "device version", "driver version")
IDENTITY_LABELS = DEVICE_LABELS[:2]
SHOWN_BYTES = 4096
"""How much of a text is read and shown."""
_HEX_SHOWN = 16


def text(raw: bytes) -> str:
    """Bytes as text that is safe on a terminal, cut at 4 KiB."""
    decoded = raw[:SHOWN_BYTES].decode("utf-8", "replace")
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


def wanted_pairs(device: bytes) -> tuple[tuple[str, str], ...]:
    """The parts that people give of a device, by label: without a slash its name, empty parts left out."""
    pairs, shown = device_pairs(device), text(device)
    if len(pairs) == 1:
        labels = DEVICE_LABELS if "/" in shown else DEVICE_LABELS[1:]
        pairs = tuple(zip(labels, shown.split("/"), strict=False))
    return tuple(pair for pair in pairs if pair[1])


def target(device: bytes) -> str:
    """Platform and name of a device, as they are shown."""
    return "/".join(value for label, value in device_pairs(device) if label in (*IDENTITY_LABELS, "device"))


def blob(raw: bytes, size_bytes: int | None = None) -> str:
    """Size and first bytes of a blob, of which ``raw`` may be the first bytes alone."""
    size = len(raw) if size_bytes is None else size_bytes
    if not size:
        return "none"
    more = "..." if size > _HEX_SHOWN else ""
    return f"{size} bytes {raw[:_HEX_SHOWN].hex()}{more}"


def sha256(raw: bytes) -> str:
    """SHA-256 as lower-case hex."""
    return hashlib.sha256(raw).hexdigest()
