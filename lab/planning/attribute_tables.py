"""
Designs for tables of attributes: dummies of every table, from users or from shufflers. Pure.

A user changes two cells of every table. With Gaussian noise of variance 2/μ² in all cells of each
table, its own μ, the losses of the tables compose to the root of the sum of the μ² [DRS22]. So all
tables of two attributes get the same μ, and those of one a share of μ² together; the noise that
meets the target is then found with the exact accountant.
"""

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.tables import Tables
from shuffledp.common.protocols import PROTOCOLS
from shuffledp.common.task.named_dummies import ViewDummies
from shuffledp.common.task.uniform_dummies import averaging
from shuffledp.common.task.view_specs import TableSpec
from shuffledp.lab.planning.calibration import CLAIM_ROOM, MARGIN, gaussian_mu, log_excess
from shuffledp.lab.planning.design import Design, excess_of, least_noisy
from shuffledp.lab.planning.item_dummies import least_geometric
from shuffledp.lab.planning.protocol_family import ProtocolFamily
from shuffledp.lab.planning.requirements import Noises, Requirements, noise_fields

_SLACK: Final = 2e-3
"""The search ends when μ is within this share below its target."""
_CUT: Final = 0.1
"""Share of δ for tables where shufflers may add no dummy at all of an item, or the most."""
_RATIOS: Final = (1.0, 2.0)
"""Ratios of the second shuffler's ε of a table to the first one's, of which the better is taken."""


class AttributeTables(ProtocolFamily):
    """Tables of one or two attributes, hidden by users' dummies or by shufflers' noise."""

    def design(self, protocol: str, target: Requirements) -> Design:
        """
        Return the design with nearly the least noise that meets the target exactly.

        Raises TaskError or AccountingError if the target needs too many dummies. Cost: some three
        compositions, each of tenths of a second for every distinct table; for two shufflers, six or
        more.
        """
        ways: list[_Fields] = [_by_shufflers(1.0, ratio) for ratio in _RATIOS]
        if target.shufflers == 1:
            by_users = PROTOCOLS[protocol].shuffler_distribution == "none"
            ways = [_dummies if by_users else _by_shufflers(1.0)]
        found = [_least(protocol, target, fields) for fields in ways]
        return min(found, key=lambda design: design.mse)


_Fields = Callable[[Requirements, Vector], dict[str, Any]]
"""Returns the fields of a draft with noise that is about as private as Gaussian noise of each
table's μ, shape (tables,)."""


def _least(protocol: str, target: Requirements, fields: _Fields) -> Design:
    """Return the design with nearly the least noise; raise PlanError without one."""
    own = _mu_by_table(target)
    coalition = target.coalition_epsilon / CLAIM_ROOM, MARGIN * target.delta  # of one round

    def design_at(level: float) -> Design:
        return Design.of(protocol, target, **fields(target, own * math.exp(level)))

    def excess(design: Design) -> float:
        releases = map(design.parameters.release_by, range(len(design.parameters.hops)))
        alone = [(release.epsilon(coalition[1]), coalition[1]) for release in releases]
        return max([excess_of(design), *(log_excess(found, coalition) for found in alone)])

    return least_noisy(target, protocol, design_at, excess, start=-_SLACK, slack=_SLACK)


def _mu_by_table(target: Requirements) -> Vector:
    """Return the μ of each table, in the task's order."""
    single = np.array([len(table) == 1 for table in _spec(target).tables])
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
        return noise_fields(*(_geometric(target, ratio * both * mu) for ratio in ratios))

    return fields


def _geometric(target: Requirements, mu: Vector) -> Noises:
    """
    Return two-sided geometric noise of each table.

    With ratios e^(-ε/2), a changed cell loses about as much as with Gaussian noise of μ² = ε²/4,
    the noise's Fisher information [DRS22]; a user changes two.
    """
    delta = _CUT * target.delta / (len(mu) * target.rounds)
    noises = {each: least_geometric(math.sqrt(2) * each, delta) for each in {*mu.tolist()}}
    return tuple(noises[each] for each in mu.tolist())
