"""Several tests and facts that make one row."""

import math

import pytest

from deploy.audit.finding import Checks, Finding
from deploy.audit.statistics import TEST_LEVEL
from tests.support.audit_reports import finding


def _row(checks: Checks) -> Finding:
    return checks.finding(
        scenario="s", title="t", heading="correctness", sentence="All is well.", advice="Mend it."
    )


def test_what_holds_is_said_and_needs_no_advice() -> None:
    """A row of one fact and two tests of one name."""
    checks = Checks()
    checks.must("a fact", True)  # noqa: FBT003  # what is noted
    checks.test("a test", 0.5)
    checks.test("a test", 0.01)
    row = _row(checks)

    assert row.passed
    assert row.sentence == "All is well."
    assert row.advice == ""
    assert row.tests == 2
    assert "0.01" in row.statistic


def test_what_does_not_hold_is_named() -> None:
    """A fact once false stays false; of tests of one name the least p counts."""
    checks = Checks()
    checks.must("a fact", False)  # noqa: FBT003  # what is noted
    checks.must("a fact", True)  # noqa: FBT003  # what is noted
    checks.test("a test", TEST_LEVEL / 2)
    checks.test("a test", 0.9)
    checks.test("another test", TEST_LEVEL * 2)
    row = _row(checks)

    assert row.verdict == "broken"
    assert row.sentence == "Failed: a fact; a test."
    assert row.advice == "Mend it."


@pytest.mark.parametrize(
    ("field", "nothing"),
    [("delta", None), ("theorem", ""), ("neighbouring", ""), ("assumptions", ())],
)
def test_no_claim_is_a_bare_number(field: str, nothing: object) -> None:
    """It is told with its δ, its neighbours, its theorem and what it assumes."""
    with pytest.raises(ValueError, match="needs its delta, neighbouring, theorem"):
        finding(claim_epsilon=1.0, **{field: nothing})


def test_what_is_no_number_is_broken_and_hides_nothing() -> None:
    """An estimator that gives NaN has not passed; nor is an earlier failure forgotten."""
    checks = Checks()
    checks.test("a test", 1e-30)
    checks.test("a test", math.nan)
    checks.test("another test", math.nan)

    assert checks.broken == ["a test", "another test"]


def test_what_could_not_be_tested_is_not_counted() -> None:
    """A row says how many decisions it made."""
    checks = Checks()
    checks.test("a test", None)
    checks.must("a fact", True)  # noqa: FBT003  # what is noted

    assert _row(checks).tests == 0
