import math

import pytest

from common.accounting.anonymity_set import AnonymitySet
from common.accounting.reference.other_bounds import COMPARED, compare
from common.accounting.reference.randomizers import piecewise
from common.errors import AccountingError
from common.mechanisms.reduction import MatchCountReduction


def test_every_bound_gives_a_figure_or_its_reason() -> None:
    """Local hashing without dummies: bounds for one histogram give a reason."""
    reduction = MatchCountReduction.for_epsilon(answers=56, local_epsilon=4.0, hashed=True)
    answers = compare(reduction, AnonymitySet(users=602_325), 1e-6)

    assert [name for name, _ in COMPARED] == [name for name, _ in answers]
    figures = [answer for _, answer in answers if isinstance(answer, float)]
    expected = [0.1922, 0.1978, 0.0674, 0.0450, 0.0648, 0.0309, 0.0622]
    assert figures == pytest.approx(expected, rel=2e-3)
    reasons = [answer for _, answer in answers if isinstance(answer, str)]
    assert len(reasons) == 4
    assert "reports without noise" in reasons.pop()
    assert all("a report supports several values" in reason for reason in reasons)


def test_a_randomizer_with_a_real_l_has_no_published_closed_form() -> None:
    """Numeric bounds apply."""
    answers = compare(piecewise(2.0), AnonymitySet(users=100_000), 1e-6)

    assert all("no number of answers" in str(answer) for _, answer in answers[:6])
    assert all(isinstance(answer, float) for _, answer in answers[6:])


def test_an_invalid_delta_is_an_error() -> None:
    """Not a reason in the table."""
    with pytest.raises(AccountingError, match="delta is"):
        compare(piecewise(2.0), AnonymitySet(users=100), math.nan)
