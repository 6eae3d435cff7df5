"""A probe's result is reused by the next process only if nothing changed on which it depends."""

from pathlib import Path

import pytest

from gpucache.model import Device, Target, Toolchain
from gpucache.probe.remembered import recalled, remember
from tests.patience import tick


class Kept(dict[str, bytes]):
    """A memory."""

    def recall(self, name: str) -> bytes | None:
        return self.get(name)

    def remember(self, name: str, data: bytes) -> None:
        self[name] = data


@pytest.fixture
def row(tmp_path: Path) -> Device:
    library = tmp_path / "driver" / "driver.so"
    library.parent.mkdir()
    library.write_bytes(b"one")
    toolchain = Toolchain("nvrtc", (("architecture", "sm_90"),), ("architecture",))
    return Device(
        Target("cuda", "sm_90"), "cuda", "sm 90", "", available=True, detail="", toolchain=toolchain,
        files=(str(library),),
    )  # fmt: skip


def test_rows_come_back_as_they_were(row: Device) -> None:
    """Only rows whose files are known are kept, and only for their backend."""
    kept = Kept()
    remember(kept, "cuda", [row, row._replace(files=())])
    assert (recalled(kept, "cuda"), recalled(kept, "opencl")) == ([row], [])


@pytest.mark.parametrize("change", ["the file", "its folder", "the environment", "the memory"])
def test_a_change_makes_the_memory_worthless(
    change: str, row: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another file, another file next to it, another search path or a damaged memory needs a new probe."""
    kept = Kept()
    remember(kept, "cuda", [row])
    library = Path(row.files[0])
    tick(library.parent)
    if change == "the file":
        library.write_bytes(b"other")
    elif change == "its folder":
        (library.parent / "driver.so.2").touch()
    elif change == "the environment":
        monkeypatch.setenv("LD_LIBRARY_PATH", "/elsewhere")
    else:
        [name] = kept
        kept[name] = kept[name][:-9]
    assert recalled(kept, "cuda") == []
