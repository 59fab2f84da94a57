"""Rows of a simulation, made by hand."""

from typing import Final

from deploy.simulate.baselines.central_error import Reference
from deploy.simulate.errors import Errors
from deploy.simulate.row import Accounting, Repeat, Row, Setting
from tests.support.tasks import published

TASK: Final = published().task
"""Whose claims the rows have."""
_TASK_BYTES: Final = TASK.to_bytes()


def _errors(mse: float, refined: float | None = None) -> Errors:
    return Errors(
        mse=mse,
        mse_refined=mse if refined is None else refined,
        mse_top50=mse,
        mse_top50_refined=mse,
        max_error=mse,
        relative_error=mse,
        regret=mse,
    )


def row(  # noqa: PLR0917
    protocol: str,
    epsilon: float,
    mses: tuple[float, ...],
    accounting: Accounting = "tight",
    note: str = "",
    refined: float | None = None,
    reference: Reference | None = None,
) -> Row:
    """Give the row of a protocol with these errors of its repeats."""
    setting = Setting(
        protocol=protocol,
        target_epsilon=epsilon,
        accounting=accounting,
        task_bytes=_TASK_BYTES,
        note=note,
    )
    repeats = [Repeat(errors=_errors(mse, refined), mse_theory=2e-6, seconds=0.5) for mse in mses]
    return Row.of(
        setting,
        repeats,
        n_users=1000,
        domain_size=100,
        dataset="made",
        reference=reference,
    )


def refused_row(protocol: str) -> Row:
    """Give the row of a protocol that was refused at its target."""
    setting = Setting(
        protocol=protocol, target_epsilon=0.1, accounting="published", refusal="it is too much"
    )
    return Row.of(setting, [], n_users=1000, domain_size=100, dataset="made")
