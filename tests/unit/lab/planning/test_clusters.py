import math
from typing import Any, Final

import pytest

from shuffledp.common.accounting.guarantees import guarantees_under
from shuffledp.common.errors import PlanError
from shuffledp.common.task.cluster_dummies import ClusterDummies
from shuffledp.lab.planning.clusters import Clusters
from tests.support.requirements import reduction_of, small_requirements

_SIGNED: Final = Clusters("signed")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rounds": 3}, "signed is planned for one round, and there are 3"),
        ({"trust": "none"}, "signed relies on a shuffler that permutes; trust is none"),
        ({"local_cap": 2.0}, "a local cap of 2 leaves 0.18 of the reports true; signed needs at"),
    ],
)
def test_what_signed_is_not_planned_for_is_refused(changes: dict[str, Any], message: str) -> None:
    """The message names the reason."""
    with pytest.raises(PlanError, match=message):
        _SIGNED.design("signed", small_requirements(**changes))


@pytest.mark.parametrize("local_cap", [8.0, pytest.param(5.0, marks=pytest.mark.slow)])
def test_a_design_with_local_noise_meets_its_target(local_cap: float) -> None:
    """Within the caps; influence counts users, so that local noise raises it."""
    target = small_requirements(
        domain_size=20,
        central_epsilon=1.0,
        local_cap=local_cap,
        messages_cap=3.0,
        influence_cap=11.0,
    )
    design = _SIGNED.design("signed", target)
    analyzer, both, *_ = guarantees_under(design.parameters, target.n_min)

    assert 0.98 < analyzer.epsilon <= 1.0
    assert 1e-6 == analyzer.delta
    assert local_cap == both.epsilon
    clusters = design.unclaimed.dummies
    assert isinstance(clusters, ClusterDummies)
    most = max(clusters.influence) / reduction_of(design).signal
    assert math.isclose(max(design.influence), most)
    assert max(design.influence) <= 11
    assert design.messages_per_user <= 3
