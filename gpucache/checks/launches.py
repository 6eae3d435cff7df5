"""What was launched beside one failure record: kernels by number, and whether one of them may have failed.

The same for every backend. Must not know how anything is launched.
"""

from dataclasses import dataclass

from gpucache.checks.messages import told
from gpucache.checks.record import Failure, state
from gpucache.errors import KernelCheckError
from gpucache.model import Check, Checks


@dataclass(frozen=True, slots=True)
class Checked:
    """A program that was compiled with checks."""

    program: str
    """Its name for people."""
    mode: Checks
    table: tuple[Check, ...]


class Launches:
    """Gives kernels their numbers, and remembers whether something that can fail ran since the last look."""

    def __init__(self) -> None:
        self.pending = False
        self._kernels: list[tuple[Checked, str]] = []
        self._numbers: dict[tuple[int, str], int] = {}

    def state(self, checked: Checked, kernel: str) -> int:
        """What a kernel is given beside the record when it is launched next."""
        name = id(checked), kernel  # it is held below, and so is its identity
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self._kernels)
            self._kernels.append((checked, kernel))
        return state(number, may_have_failed=self.pending)

    def error(self, failure: Failure) -> KernelCheckError:
        """The error of a failure in a kernel that was launched."""
        if not 0 <= failure.kernel < len(self._kernels):
            return KernelCheckError(
                "a kernel wrote over the failure record, so nothing is known of its failure"
            )
        checked, kernel = self._kernels[failure.kernel]
        return told(failure, checked.table, checked.program, kernel)
