"""Run a batch's checks; an operator's decision to release the batch waives them."""

from collections.abc import Callable
from typing import ParamSpec

from common.errors import SuspectBatchError
from common.messages.batch import BatchManifest
from common.messages.ledger_entry import DecisionEntry
from common.messages.waived import Check, Waived

P = ParamSpec("P")


class Waiver:
    """The checks that a batch fails and its operator waives: all of them, or none."""

    def __init__(self, decision: DecisionEntry | None) -> None:
        """`decision` is the operator's last one; only one to release the batch waives checks."""
        self._decision = decision if decision and decision.decision == "release" else None
        self._failed = [self._decision.reason] if self._decision else []
        self._checks: tuple[Check, ...] = ()

    def run(self, name: Check, check: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Run a check; raise its SuspectBatchError unless it is waived."""
        try:
            check(*args, **kwargs)
        except SuspectBatchError as error:
            if self._decision is None:
                raise
            self._failed.append(str(error))
            self._checks += (name,)

    def waived(self, batch: BatchManifest) -> Waived:
        """Return the checks that a batch failed so far, and what its guarantees need instead."""
        return Waived(self._checks, batch.by_length if "lengths" in self._checks else ())

    def warnings(self) -> tuple[str, ...]:
        """Return the warning of a batch that is released in spite of failed checks."""
        if self._decision is None:
            return ()
        failed = "; ".join(dict.fromkeys(self._failed))
        warning = f"the operator released this batch although it failed a check: {failed}"
        return (f"{warning}; the operator's note: {self._decision.note}",)
