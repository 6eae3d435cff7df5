"""What devices answers beside the devices themselves."""

from typing import NamedTuple


class DevicesSummary(NamedTuple):
    """How many targets there are."""

    targets: int
    """Targets that can be built for."""
    devices: int
    """Those of them whose devices are here."""
    errors: int
    """Drivers and compilers that are broken."""


class Compared(NamedTuple):
    """How much two machines differ."""

    differences: int
    """How many there are."""
