"""OpenVINO's compiled models for tests, by its own rules."""

import struct
from pathlib import Path

_LINE = b'<?xml version="1.0"?><compiled_blob ie_version="2026.4.1-22982" file_info="1" runtime_info="{}"/>\n'


def content(number: int = 0) -> bytes:
    """A model for the CPU: custom data, constants and the model itself."""
    text, parts = b"meta=1.0;ov=2026.4.1", [b"<?xml?>", bytes([number]) * 40, b"model"]
    offsets = [48, 48 + len(parts[0]), 48 + len(parts[0]) + len(parts[1])]
    table = (value for pair in zip(offsets, map(len, parts), strict=True) for value in pair)
    head = b"RR_UPCVO" + struct.pack("<IQ", 1, len(text)) + text + struct.pack("<6Q", *table)
    return _LINE + head + b"".join(parts)


def older_content() -> bytes:
    """A model for the CPU as OpenVINO wrote it until 2025."""
    parts, line = [b"<?xml?>", bytes(40), b"model"], _LINE.replace(b"2026.4.1", b"2024.6.0")
    offsets = [len(line) + 48 + sum(map(len, parts[:number])) for number in range(len(parts))]
    table = (value for pair in zip(offsets, map(len, parts), strict=True) for value in pair)
    return line + struct.pack("<6Q", *table) + b"".join(parts)


def put(root: Path, number: int = 0, data: bytes | None = None) -> Path:
    """Lay one model; its file."""
    root.mkdir(parents=True, exist_ok=True)
    path = root / f"{12004999860696081650 + number}.blob"
    path.write_bytes(content(number) if data is None else data)
    path.chmod(0o600)
    return path
