"""Several tests and facts that form one finding."""

import math

import numpy as np
import pytest

from shuffledp.audit.finding import Checks, Finding
from shuffledp.audit.statistics import TEST_LEVEL
from tests.support.audit_reports import finding


def _row(checks: Checks) -> Finding:
    return checks.finding(heading="correctness", sentence="All is well.", advice="Mend it.")


def test_a_finding_that_holds_has_no_advice_and_counts_its_tests() -> None:
    """A test without enough draws is not counted."""
    checks = Checks()
    checks.require("a fact", True)  # noqa: FBT003  # the checked fact
    for name, p_value in (("a test", 0.5), ("a test", 0.01), ("another test", None)):
        checks.test(name, p_value)
    row = _row(checks)

    assert (row.passed, row.sentence, row.advice, row.tests) == (True, "All is well.", "", 2)
    assert "0.01" in row.statistic


def test_a_failed_finding_names_the_failed_checks() -> None:
    """A false fact stays false, the smallest p-value of a test counts, and NaN fails."""
    checks = Checks()
    for holds in (False, True):
        checks.require("a fact", holds)
    for p_value in (TEST_LEVEL / 2, 0.9):
        checks.test("a test", p_value)
    checks.test("another test", TEST_LEVEL * 2)
    checks.test("a third test", math.nan)
    checks.cells("cells", np.array([0, 2]), np.ones(2))
    row = _row(checks)

    failed = "a fact; cells: within the range; a test; a third test"
    assert (row.verdict, row.sentence) == ("broken", f"Failed: {failed}.")
    assert row.advice == "Mend it."


@pytest.mark.parametrize(
    ("field", "nothing"),
    [("delta", None), ("theorem", ""), ("neighbouring", ""), ("assumptions", ())],
)
def test_no_claim_is_a_bare_number(field: str, nothing: object) -> None:
    """A claim needs δ, a neighbouring relation, a theorem and assumptions."""
    with pytest.raises(ValueError, match="needs its delta, neighbouring, theorem"):
        finding(claim_epsilon=1.0, **{field: nothing})
