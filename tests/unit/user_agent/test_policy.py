import dataclasses
import math

import pytest

from common.errors import PolicyError, SignatureError, TaskError
from common.signing import SignedTask, SigningIdentity
from common.task_digest import TaskDigest
from tests.support.tasks import FAR_FUTURE, PublishedTask, published
from user_agent.policy import Policy, check

_NOW = 1_000_000_000.0


def _policy(case: PublishedTask, cap: float = 4.0) -> Policy:
    return Policy(identity=case.identity.public_identity(), local_epsilon_cap=cap)


def test_a_task_that_keeps_its_claims_is_answered() -> None:
    """Signed by the pinned identity, open, and within the cap."""
    case = published()

    assert case.task == check(case.signed, case.signed.digest(), _policy(case), _NOW)


def test_another_task_than_the_one_asked_for_is_refused() -> None:
    """The shuffler cannot put one task in another's place."""
    case = published()
    with pytest.raises(SignatureError, match="another task"):
        check(case.signed, TaskDigest(bytes(32)), _policy(case), _NOW)


def test_an_unpinned_signer_is_refused() -> None:
    """Whatever else is right."""
    case = published()
    stranger = Policy(identity=SigningIdentity.generate().public_identity(), local_epsilon_cap=4.0)
    with pytest.raises(SignatureError):
        check(case.signed, case.signed.digest(), stranger, _NOW)


def test_a_local_epsilon_over_the_cap_is_refused() -> None:
    """Two against 1.5."""
    case = published(local_epsilon=2.0)
    with pytest.raises(PolicyError, match=r"2\.0; this device answers up to 1\.5"):
        check(case.signed, case.signed.digest(), _policy(case, cap=1.5), _NOW)


def test_a_task_without_local_noise_is_answered_only_by_who_has_no_limit() -> None:
    """An infinite cap; the largest finite one does not do."""
    case = published(local_epsilon=math.inf, dummies_per_user=100)
    digest = case.signed.digest()

    assert case.task == check(case.signed, digest, _policy(case, cap=math.inf), _NOW)
    with pytest.raises(PolicyError, match="is inf; this device answers up to 20"):
        check(case.signed, digest, _policy(case, cap=20.0), _NOW)


def test_a_claim_that_the_weights_do_not_keep_is_refused() -> None:
    """The device compares the integers itself, and one unit too much is noticed."""
    case = published()
    spec = case.task.mechanism
    cheating = dataclasses.replace(
        case.task, mechanism=dataclasses.replace(spec, true_weight=spec.true_weight + 1)
    )
    signed = case.identity.sign(cheating.to_bytes())
    with pytest.raises(PolicyError, match="do not keep its claim"):
        check(signed, signed.digest(), _policy(case), _NOW)


def test_a_task_past_its_deadline_is_refused_before_anything_is_spent() -> None:
    """The answer could not be counted any more."""
    case = published()
    with pytest.raises(PolicyError, match="deadline"):
        check(case.signed, case.signed.digest(), _policy(case), float(FAR_FUTURE))


def test_signed_nonsense_is_refused() -> None:
    """A valid signature does not make a task valid."""
    case = published()
    signed: SignedTask = case.identity.sign(b"{}")
    with pytest.raises(TaskError):
        check(signed, signed.digest(), _policy(case), _NOW)
