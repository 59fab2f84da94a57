"""
Designs for tables of attributes: dummies of every table, from users or from shufflers. Pure.

A user changes two cells of every table. With Gaussian noise of variance 2/μ² in all cells of each
table, its own μ, the losses of the tables compose to the root of the sum of the μ² [DRS22]. So all
tables of two attributes get the same μ, and those of one a share of μ² together; the noise that
meets the target is then found with the exact accountant.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.tables import Tables
from shuffledp.common.mechanisms.views import View
from shuffledp.common.protocols import PROTOCOLS
from shuffledp.common.task.draft import RelayDraft
from shuffledp.common.task.named_dummies import ViewDummies
from shuffledp.common.task.shuffler_spec import ItemNoise
from shuffledp.common.task.uniform_dummies import averaging
from shuffledp.common.task.view_specs import TableSpec
from shuffledp.lab.planning.calibration import gaussian_mu, least_noisy, log_excess
from shuffledp.lab.planning.design import check_plain, within_caps
from shuffledp.lab.planning.requirements import Requirements
from shuffledp.lab.planning.shuffler_noise import (
    CLAIM_ROOM,
    MARGIN,
    RELAY_KEY,
    design_excess,
    geometric_spec,
)
from shuffledp.lab.planning.value_design import ValueDesign

_SLACK: Final = 2e-3
"""The search ends when μ is within this share below its target."""
_CUT: Final = 0.1
"""Share of δ for tables where shufflers may add no dummy at all of an item, or the most."""
_RATIOS: Final = (1.0, 2.0)
"""Ratios of the second shuffler's ε of a table to the first one's, of which the better is taken."""


@dataclass(frozen=True, kw_only=True)
class TableDesign(ValueDesign):
    """A design for tables; its error is that of a cell after least squares."""

    messages_by = (
        ": one for each table (--pairs lists fewer), and users' dummies (none with --trust "
        "shuffler-dummies)"
    )

    @cached_property
    def tables(self) -> Tables:
        """The mechanism."""
        return Tables.of(self.unclaimed)

    @property
    def ratio_to_central_gaussian(self) -> float:
        """The mean squared error divided by that of `gaussian_tables_mse`."""
        target = self.target
        goal = (target.n_users, target.central_epsilon, target.delta)
        return self.mse / (target.rounds * gaussian_tables_mse(_spec(target), *goal))

    @property
    def figures(self) -> dict[str, float]:
        """
        Number of tables, and standard errors in users: root mean squares over cells and values.

        Those of cells are of the tables of two attributes if there are any. A value's raw error is
        that of the table that measures it best.
        """
        tables, n_users = self.tables, self.target.n_users
        raw = [view.item_variance(n_users) * (1 - 1 / view.size) for view in tables.views]
        cells, margins = tables.variances(n_users)
        most = max(map(len, tables.tables))
        sizes = [math.prod(shape) * (len(shape) == most) for shape in tables.shapes]
        alone = [
            min(
                view.item_variance(n_users) * view.size / size * (1 - 1 / size)
                for names, view in zip(tables.tables, tables.views, strict=True)
                if attribute in names
            )
            for attribute, size in enumerate(tables.attribute_sizes)
        ]
        values = tables.attribute_sizes
        return {
            "tables": len(tables.tables),
            "sd_cell_raw": _root_mean(raw, sizes),
            "sd_cell": _root_mean(cells, sizes),
            "sd_margin_raw": _root_mean(alone, values),
            "sd_margin": _root_mean(margins, values),
        }

    @property
    def sentence(self) -> str:
        return (
            "Standard errors in users: a cell of a table {sd_cell_raw:.4g}, after least squares "
            "{sd_cell:.4g}; a value of one attribute {sd_margin_raw:.4g} by one table, after least "
            "squares {sd_margin:.4g}."
        ).format(**self.figures)


def gaussian_tables_mse(spec: TableSpec, n_users: int, epsilon: float, delta: float) -> float:
    """
    Return the squared error of a share with central Gaussian noise, the same in all V tables.

    A user changes all tables together by √(2·V) in the Euclidean norm. Least squares follow, as
    they do in a task for the tables.
    """
    sizes = spec.view_sizes()
    values = tuple(each.size for each in spec.attributes)
    even = Tables(views=View.averaging(1.0, sizes), attribute_sizes=values, tables=spec.views)
    cells, _ = even.variances(sum(sizes))  # of counts with the variance 1
    square = 2 * len(sizes) / (gaussian_mu(epsilon, delta) * n_users) ** 2
    return square * float(np.average(cells, weights=sizes))


def _root_mean(squares: Sequence[float], weights: Sequence[int]) -> float:
    return math.sqrt(np.average(squares, weights=weights))


def table_design(protocol: str, target: Requirements) -> TableDesign:
    """
    Return a protocol's design with nearly the least noise that meets the target exactly.

    Raises PlanError if there is none within the caps, TaskError or AccountingError if the target
    needs too many dummies. Cost: some three compositions, each of tenths of a second for every
    distinct table; for two shufflers, six or more.
    """
    check_plain(protocol, target)
    ways: list[_Fields] = [_by_shufflers(1.0, ratio) for ratio in _RATIOS]
    if target.shufflers == 1:
        by_users = PROTOCOLS[protocol].shuffler_distribution == "none"
        ways = [_dummies if by_users else _by_shufflers(1.0)]
    found = [_least(protocol, target, fields) for fields in ways]
    return within_caps(min(found, key=lambda design: design.mse))


_Fields = Callable[[Requirements, Vector], dict[str, Any]]
"""Returns the fields of a draft with noise that is about as private as Gaussian noise of each
table's μ, shape (tables,)."""


def _least(protocol: str, target: Requirements, fields: _Fields) -> TableDesign:
    """Return the design with nearly the least noise; raise PlanError without one."""
    own = _mu_by_table(target)
    coalition = target.coalition_epsilon / CLAIM_ROOM, MARGIN * target.delta  # of one round

    def attempt(level: float) -> tuple[TableDesign, float]:
        noise = fields(target, own * math.exp(level))
        draft = target.draft(protocol, local_epsilon=math.inf, **noise)
        design = TableDesign(draft=draft, target=target)
        excesses = [design_excess(design)]
        for hop in range(len(design.parameters.hops)):
            alone = design.parameters.release_by(hop).epsilon(coalition[1])
            excesses.append(log_excess((alone, coalition[1]), coalition))
        return design, max(excesses)

    return least_noisy(protocol, target, attempt, start=-_SLACK, slack=_SLACK)


def _mu_by_table(target: Requirements) -> Vector:
    """Return the μ of each table, in the task's order."""
    single = np.array([len(view) == 1 for view in _spec(target).views])
    share = target.margin_share if 0 < single.sum() < len(single) else float(single.all())
    squares = np.where(single, share / max(1, single.sum()), (1 - share) / max(1, (~single).sum()))
    mu: Vector = np.sqrt(squares / target.rounds)
    return mu * gaussian_mu(target.central_epsilon, target.delta)


def _spec(target: Requirements) -> TableSpec:
    return Tables.specify(target.draft_fields["tables"])


def _dummies(target: Requirements, mu: Vector) -> dict[str, Any]:
    """Return users' dummies: 2/μ² in each cell, from the honest users alone."""
    averages = np.array(_spec(target).view_sizes()) * 2 / mu**2 / target.honest
    return {"dummies": ViewDummies.of_views([*map(averaging, averages.tolist())])}


def _by_shufflers(*ratios: float) -> _Fields:
    """Return the fields of two-sided geometric noise by each shuffler, in ratios of their ε."""
    both = math.sqrt(math.fsum(ratio**-2 for ratio in ratios))  # their variances add up

    def fields(target: Requirements, mu: Vector) -> dict[str, Any]:
        first, *second = (_geometric(target, ratio * both * mu) for ratio in ratios)
        names: dict[str, Any] = {"noises": first}
        for noises in second:
            relay = RelayDraft(name="second", key=RELAY_KEY, noises=noises)
            names |= {"shuffler_name": "first", "relay": relay}
        return names

    return fields


def _geometric(target: Requirements, mu: Vector) -> tuple[ItemNoise, ...]:
    """
    Return two-sided geometric noise of each table.

    With ratios e^(-ε/2), a changed cell loses about as much as with Gaussian noise of μ² = ε²/4,
    the noise's Fisher information [DRS22]; a user changes two.
    """
    delta = _CUT * target.delta / (len(mu) * target.rounds)
    noises = {each: geometric_spec(math.sqrt(2) * each, delta).noise for each in {*mu.tolist()}}
    return tuple(noises[each] for each in mu.tolist())
