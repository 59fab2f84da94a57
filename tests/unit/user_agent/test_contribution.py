import numpy as np
import pytest
from numpy.typing import NDArray

from common.crypto.hpke import envelope_context, report_context
from common.mechanisms.base import Reports, is_null
from common.mechanisms.registry import mechanism_of
from common.mechanisms.support import SupportCounting
from common.messages.submission import unpack
from common.task.dummy_spec import DummySpec
from common.task.task import SUBMISSION_ID_BYTES
from common.task_digest import TaskDigest
from tests.support.protocol_tasks import protocol_task
from tests.support.tasks import PublishedTask, published
from user_agent.contribution import Contributor, draw_dummies, draw_dummy_counts, pad

_RNG = np.random.default_rng(1)


def _opened(case: PublishedTask, envelope: bytes) -> Reports:
    """Return the reports that shuffler and analyzer together would see."""
    digest, task = case.signed.digest(), case.task
    content = unpack(case.shuffler_key.open(envelope, envelope_context(digest)), task)
    size = task.sealed_report_bytes
    plaintexts = [
        case.analyzer_key.open(content.sealed_reports[start : start + size], report_context(digest))
        for start in range(0, len(content.sealed_reports), size)
    ]
    return np.frombuffer(b"".join(plaintexts), dtype=mechanism_of(task).report_dtype)


def test_a_fractional_number_of_dummies_is_padded_to_its_maximum() -> None:
    """One or two dummies; a null report replaces the second. A fixed number needs no padding."""
    fixed = published(dummies_per_user=3)
    reports = _opened(fixed, Contributor(fixed.task, fixed.signed.digest()).prepare(7, _RNG))
    assert 4 == len(np.unique(reports["seed"]))
    assert mechanism_of(fixed.task).valid(reports).all()
    case = published(dummies_per_user=1.5)
    contributor, mechanism = Contributor(case.task, case.signed.digest()), mechanism_of(case.task)
    seen = set()
    for _ in range(40):
        reports = _opened(case, contributor.prepare(7, _RNG))
        assert len(reports) == 3
        assert (mechanism.valid(reports) != is_null(reports)).all()
        seen.add(int(mechanism.valid(reports).sum()))

    assert {2, 3} == seen


def test_the_extra_dummy_follows_its_weight_exactly() -> None:
    """Below the weight it comes, from the weight on it does not."""

    class Draws:
        def integers(self, low: int, high: int, *, size: int, dtype: type) -> NDArray[np.int64]:
            assert (0, 2**32) == (low, high)
            assert (4, np.int64) == (size, dtype)
            return np.array([0, 6, 7, 2**32 - 1])

    law = DummySpec(law="fractional", per_user=2, trials=1, extra_weight=7, most=1)

    assert [3, 3, 2, 2] == draw_dummy_counts(law, 4, Draws()).tolist()  # type: ignore[arg-type]


def test_the_own_report_has_no_place_of_its_own() -> None:
    """
    It stands at each of four places equally often.

    Local ε 12 makes it recognisable: it supports item 0 almost surely, a dummy with chance 1/13.
    Seed 3; fails by chance with probability below 1e-8 (800 draws, six standard deviations).
    """
    case = published(dummies_per_user=3, local_epsilon=12.0)
    contributor = Contributor(case.task, case.signed.digest())
    mechanism, rng = mechanism_of(case.task), np.random.default_rng(3)
    assert isinstance(mechanism, SupportCounting)
    supports = np.zeros(4)
    for _ in range(800):
        reports = _opened(case, contributor.prepare(0, rng))
        supports += [mechanism.support_counts(mechanism.tally(r[None]))[0] for r in reports]
    chance = (1 + 3 / 13) / 4

    assert (np.abs(supports - 800 * chance) < 6 * np.sqrt(800 * chance * (1 - chance))).all()


def test_ids_and_ciphertexts_are_never_repeated() -> None:
    """Even in two submissions of one value."""
    case = published()
    contributor = Contributor(case.task, case.signed.digest())
    context = envelope_context(case.signed.digest())
    envelopes = [contributor.prepare(1, _RNG) for _ in range(2)]
    one, other = (unpack(case.shuffler_key.open(e, context), case.task) for e in envelopes)

    assert envelopes[0] != envelopes[1]
    assert one.submission_id != other.submission_id
    assert one.sealed_reports[:60] != other.sealed_reports[:60]


@pytest.mark.parametrize("name", ["murs", "mixdump", "od-hp", "aue", "fe1"])
def test_an_answer_stands_as_its_generator_says(name: str) -> None:
    """
    Own report, dummies, padding, order and id follow from the draws, for every value alike.

    So no order or id depends on the value, and nothing is sealed twice to choose a ciphertext.
    """
    task, digest = protocol_task(name), TaskDigest(bytes(32))
    contributor, mechanism, sealed = Contributor(task, digest), mechanism_of(task), list[bytes]()

    def unsealed(plaintext: bytes) -> bytes:
        sealed.append(plaintext)
        return plaintext

    contributor._seal_report = contributor._seal_envelope = unsealed
    for value in range(task.domain_size):
        sealed.clear()
        drawn = np.random.default_rng(value)
        reports = mechanism.randomize(np.array([value]), drawn)
        reports = np.concatenate([reports, draw_dummies(mechanism, task.dummies, drawn)])
        reports = pad(reports, task.reports_per_user)[drawn.permutation(task.reports_per_user)]
        expected = drawn.bytes(SUBMISSION_ID_BYTES) + reports.tobytes()

        assert expected == contributor.prepare(value, np.random.default_rng(value))
        assert [*(report.tobytes() for report in reports), expected] == sealed
