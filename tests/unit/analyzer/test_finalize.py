import numpy as np
import pytest

from analyzer.finalize import build_result
from analyzer.intake import Intake
from common.accounting.guarantees import PrivacyParameters, guarantees_under, published_claim
from common.errors import UnusableBatchError
from common.mechanisms.registry import mechanism_of
from common.mechanisms.support import SupportCounting
from common.messages.batch import BatchId, BatchManifest
from common.messages.result import Result
from common.task.task import Task
from tests.support.tasks import PublishedTask, published

_FIXED = published(dummies_per_user=1)
_FRACTIONAL = published(dummies_per_user=1.25)


def _conclude(case: PublishedTask, intake: Intake, *, users: int = 100) -> Result:
    manifest = BatchManifest(
        task_digest=case.signed.digest(),
        batch_id=BatchId(bytes(16)),
        n_users=users,
        n_reports=users * case.task.reports_per_user,
    )
    return build_result(manifest, case.task, mechanism_of(case.task), intake)


def _intake(
    task: Task, *, own: int, dummies: int, null: int = 0, unreadable: int = 0, malformed: int = 0
) -> Intake:
    """Reports of users who all hold item 0, and dummies."""
    mechanism, rng = mechanism_of(task), np.random.default_rng(1)
    reports = np.concatenate(
        [mechanism.randomize(np.zeros(own, np.int64), rng), mechanism.dummies(dummies, rng)]
    )
    return Intake(
        cells=mechanism.tally(reports),
        counted=own + dummies,
        null=null,
        refused={"repeated": 0, "unreadable": unreadable, "malformed": malformed},
    )


def test_the_number_of_dummies_is_exact_without_refusals() -> None:
    """131, not the 125 expected; the estimate subtracts just those."""
    task = _FRACTIONAL.task
    intake = _intake(task, own=100, dummies=131, null=69)
    result = _conclude(_FRACTIONAL, intake)
    mechanism = mechanism_of(task)
    assert isinstance(mechanism, SupportCounting)
    support = mechanism.support_counts(intake.cells)
    expected = (support - (100 + 131) / 13) / (100 * (mechanism.p - 1 / 13))

    assert 131 == result.n_dummies
    assert 0 == sum(result.refused.values())
    np.testing.assert_allclose(result.histogram.frequencies, expected, rtol=1e-12)


@pytest.mark.parametrize(("null", "malformed"), [(0, 0), (75, 0), (100, 0), (101, 1), (180, 80)])
def test_null_reports_beyond_the_padding_are_malformed(null: int, malformed: int) -> None:
    """A hundred users have room for one null report each."""
    intake = _intake(_FRACTIONAL.task, own=100, dummies=200 - null, null=null)

    assert malformed == _conclude(_FRACTIONAL, intake).refused["malformed"]


def test_refusals_are_taken_to_be_proportional() -> None:
    """A fifth of everything was unreadable: a fifth of users' own reports and of dummies."""
    intake = _intake(_FRACTIONAL.task, own=80, dummies=100, null=60, unreadable=60)

    assert 100 == _conclude(_FRACTIONAL, intake).n_dummies
    fixed = _intake(_FIXED.task, own=80, dummies=80, unreadable=40)
    assert 80 == _conclude(_FIXED, fixed).n_dummies


def test_users_who_spoil_all_their_reports_cause_no_bias() -> None:
    """Forty send malformed reports only: sixty users and their 75 dummies are left."""
    intake = _intake(_FRACTIONAL.task, own=60, dummies=75, null=45, malformed=120)

    assert 75 == _conclude(_FRACTIONAL, intake).n_dummies


def test_the_number_of_dummies_is_never_negative() -> None:
    """A single counted report is taken for a user's."""
    intake = _intake(_FRACTIONAL.task, own=1, dummies=0, null=299)
    result = _conclude(_FRACTIONAL, intake)

    assert 0 == result.n_dummies
    assert np.isfinite(result.histogram.frequencies).all()


def test_a_batch_of_null_reports_is_unusable() -> None:
    """There is nothing to estimate from."""
    with pytest.raises(UnusableBatchError, match="none of the batch's 300 reports"):
        _conclude(_FRACTIONAL, _intake(_FRACTIONAL.task, own=0, dummies=0, null=300))


def test_every_refused_report_weakens_every_guarantee() -> None:
    """Whatever the cause, excess padding included; and the papers' claims."""
    task = _FIXED.task
    intake = _intake(task, own=90, dummies=95, null=2, unreadable=5, malformed=8)
    result = _conclude(_FIXED, intake)
    n_refused = 5 + 8 + 2

    assert n_refused == sum(result.refused.values())
    assert guarantees_under(PrivacyParameters.of(task), 100, n_refused) == result.guarantees
    assert published_claim(task, 100, n_refused) == result.published_claim
    assert guarantees_under(PrivacyParameters.of(task), 100, n_refused - 1) != result.guarantees
