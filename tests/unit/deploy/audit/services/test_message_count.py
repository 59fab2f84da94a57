"""Numbers of dummies: their laws, worked out beside the code that draws them."""

import numpy as np
import pytest

from common.task.dummy_spec import DummySpec
from common.task.shuffler_spec import ShufflerSpec
from deploy.audit.fit import of_cells
from deploy.audit.laws.dummy_laws import law_of_extra
from deploy.audit.services.message_count import of_added
from deploy.audit.significance import TEST_LEVEL
from shuffler.dummies import draw_item_dummies
from user_agent.contribution import draw_dummy_counts

_LAWS = [
    DummySpec(law="fractional", per_user=1, trials=1, extra_weight=2**30, most=1),
    DummySpec(law="binomial", per_user=2, trials=6, extra_weight=2**30, most=6),
    DummySpec(law="negative-binomial", per_user=1, trials=4, extra_weight=2**30, most=9),
]
_BINOMIAL = ShufflerSpec(law="binomial", trials=30, most=30)
_GEOMETRIC = ShufflerSpec(law="geometric", peak=5, left_weight=2**29, right_weight=2**29, most=60)


@pytest.mark.parametrize("law", _LAWS, ids=lambda law: law.law)
def test_what_devices_draw_has_the_law(law: DummySpec) -> None:
    """Of 20000 users; seed 1; fails by chance with TEST_LEVEL. Another chance is seen."""
    drawn = draw_dummy_counts(law, 20_000, np.random.default_rng(1)) - law.per_user
    seen = np.bincount(drawn, minlength=law.most + 1)
    right = law_of_extra(law)

    assert right.sum() == pytest.approx(1)
    fits, other = of_cells(seen, right), of_cells(seen, right[::-1])
    assert fits is not None
    assert other is not None
    assert other < TEST_LEVEL < fits


def test_a_fixed_number_has_nothing_more() -> None:
    """There is one place, and all of it."""
    assert [1.0] == law_of_extra(DummySpec(law="fixed", per_user=3)).tolist()


@pytest.mark.parametrize("law", [_BINOMIAL, _GEOMETRIC], ids=lambda law: law.law)
@pytest.mark.parametrize("items", [2, 30])
def test_what_a_shuffler_adds_is_seldom_suspected(law: ShufflerSpec, items: int) -> None:
    """
    Of 600 batches no more than 18 have a p-value below .01, and none a very small one.

    Seed 2; fails by chance with probability below 1e-3 over seeds. One that adds nothing is seen,
    and more than the law allows.
    """
    rng = np.random.default_rng(2)
    found = [
        of_added(int(draw_item_dummies(law, items, rng).sum()), law, items) for _ in range(600)
    ]

    assert np.mean(np.array(found) < 0.01) <= 0.03
    assert TEST_LEVEL < min(found)
    assert TEST_LEVEL > of_added(0, law, 30)
    assert 0 == of_added(items * law.most + 1, law, items)
