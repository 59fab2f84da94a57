import dataclasses
import math
from dataclasses import replace
from typing import Any

import pytest

from shuffledp.audit.harness.tasks import FAR_FUTURE
from shuffledp.common.crypto.signing import PublicIdentity, SignedTask, SigningIdentity
from shuffledp.common.errors import BudgetError, PolicyError, ProofError
from shuffledp.common.task.draft import TextDraft
from shuffledp.user_agent.policy import (
    Claim,
    Policy,
    check,
    check_totals,
    composed_total,
    local_total,
)
from tests.support.chains import RELAY, chain
from tests.support.changed_tasks import changed
from tests.support.keys import SHUFFLER, signed_key
from tests.support.kind_tasks import kind_draft_fields
from tests.support.policies import generous
from tests.support.tasks import PublishedTask, published

_NOW = 1_000_000_000.0


def _pinning(identity: PublicIdentity, **caps: Any) -> Policy:
    pinned = SHUFFLER.public_identity()
    given = {name: cap for name, cap in caps.items() if "local" in name}  # as large, if not given
    coalition = {name.replace("local", "coalition"): cap for name, cap in given.items()}
    caps = {"allow_tasks_without_tokens": True} | coalition | caps
    return Policy(analyzer_identity=identity, shuffler_identity=pinned, **caps)


def _policy(case: PublishedTask, cap: float = 4.0) -> Policy:
    return _pinning(case.identity.public_identity(), local_epsilon_cap=cap)


def test_a_task_of_another_signer_is_refused() -> None:
    """Its claims do not matter."""
    stranger, case = SigningIdentity.generate().public_identity(), published()
    with pytest.raises(ProofError, match="not signed by the pinned analyzer identity"):
        check(case.signed, case.signed.digest(), _pinning(stranger, local_epsilon_cap=4.0), 1)


@pytest.mark.parametrize("own", [True, False])
def test_a_key_that_the_pinned_shuffler_did_not_sign_is_refused(*, own: bool) -> None:
    """An analyzer may sign a key of its own, or publish a task with an unsigned key."""
    case = published()
    task = case.task
    impostor = signed_key(case.shuffler_key.public_key(), case.identity)[-72:] if own else b""
    signed = case.identity.sign(changed(task, shuffler_key_proof=impostor).to_bytes())
    with pytest.raises(ProofError, match="not signed by the shuffler identity"):
        check(signed, signed.digest(), _policy(case), _NOW)


def test_a_local_epsilon_over_the_cap_is_refused() -> None:
    """A task without local noise needs an infinite cap."""
    case = published(local_epsilon=2.0)
    with pytest.raises(PolicyError, match=r"2\.0; local_epsilon_cap is 1\.5"):
        check(case.signed, case.signed.digest(), _policy(case, cap=1.5), _NOW)
    case = published(local_epsilon=math.inf, dummies_per_user=100)
    digest = case.signed.digest()

    assert case.task == check(case.signed, digest, _policy(case, cap=math.inf), _NOW)
    with pytest.raises(PolicyError, match="is inf; local_epsilon_cap is 20"):
        check(case.signed, digest, _policy(case, cap=20.0), _NOW)


def test_a_task_with_two_shufflers_needs_the_pins_of_both() -> None:
    """Its local ε is infinite, which the local cap allows; the coalition cap is its own."""
    case = published(**chain())
    digest, pinned = case.signed.digest(), RELAY.public_identity()
    assert math.isinf(case.task.local_epsilon)
    with pytest.raises(
        PolicyError, match=r"the analyzer calls second\.example; .* set relay_identity"
    ):
        check(case.signed, digest, _policy(case), _NOW)
    with pytest.raises(ProofError, match="relay_key is not signed by the relay identity"):
        check(
            case.signed,
            digest,
            replace(_policy(case), relay_identity=SHUFFLER.public_identity()),
            _NOW,
        )
    policy = replace(_policy(case), relay_identity=pinned)

    assert case.task == check(case.signed, digest, policy, _NOW)
    with pytest.raises(
        PolicyError, match=r"coalition epsilon is .*; coalition_epsilon_cap is 0\.5"
    ):
        check(case.signed, digest, replace(policy, coalition_epsilon_cap=0.5), _NOW)


@pytest.mark.parametrize("setting", ["shuffler_name", "relay_name"])
def test_pinned_names_of_two_shufflers_must_be_those_of_the_task(setting: str) -> None:
    """The analyzer chooses the task's. A task with one shuffler may call it anything."""
    case, one = published(**chain()), published()
    names: dict[str, Any] = {"shuffler_name": "first.example", "relay_name": "second.example"}
    policy = replace(_policy(case), relay_identity=RELAY.public_identity())
    given = replace(policy, **names)
    assert case.task == check(case.signed, case.signed.digest(), given, _NOW)
    wrong: dict[str, Any] = {setting: "third.example"}
    other = replace(policy, **wrong)
    match = rf"calls a shuffler of the task {names[setting]}; {setting} in .* is third\.example"
    with pytest.raises(PolicyError, match=match):
        check(case.signed, case.signed.digest(), other, _NOW)
    other = replace(other, analyzer_identity=one.identity.public_identity())
    assert one.task == check(one.signed, one.signed.digest(), other, _NOW)


def test_with_one_shuffler_the_coalition_cap_is_of_the_local_epsilon() -> None:
    """Both caps hold."""
    case = published(local_epsilon=2.0)
    with pytest.raises(PolicyError, match=r"coalition epsilon is 2\.0; coalition_epsilon_cap is 1"):
        check(
            case.signed,
            case.signed.digest(),
            replace(_policy(case), coalition_epsilon_cap=1.0),
            _NOW,
        )


def test_a_claim_that_the_weights_do_not_keep_is_refused() -> None:
    """The device compares the integers; one unit is noticed."""
    case = published()
    spec = case.task.item_mechanism
    cheating = dataclasses.replace(
        case.task, mechanism=dataclasses.replace(spec, true_weight=spec.true_weight + 1)
    )
    signed = case.identity.sign(cheating.to_bytes())
    with pytest.raises(PolicyError, match="do not satisfy its claim"):
        check(signed, signed.digest(), _policy(case), _NOW)


def _resigned(case: PublishedTask, **changes: Any) -> SignedTask:
    """Sign a changed task, as a cheating analyzer would."""
    return case.identity.sign(dataclasses.replace(case.task, **changes).to_bytes())


def test_a_false_central_claim_is_refused() -> None:
    """The claim is two per cent too low, or holds only for ten times as many users."""
    case = published(n_min=500, target_size=500)
    low = 0.98 * case.task.central_epsilon
    signed = _resigned(case, central_epsilon=low)
    with pytest.raises(PolicyError, match=rf"central epsilon {low} at delta 1e-06.*1\.\d+e-06"):
        check(signed, signed.digest(), _policy(case), _NOW)
    many = published(n_min=5000, target_size=5000)
    signed = _resigned(many, n_min=500)
    with pytest.raises(PolicyError, match="for 500 users"):
        check(signed, signed.digest(), _policy(many), _NOW)


def test_a_task_past_its_deadline_is_refused() -> None:
    """Its claim may have been confirmed before, and so is not computed again."""
    case = published(n_min=500, target_size=500)
    signed = _resigned(case, central_epsilon=0.01)

    task = check(signed, signed.digest(), _policy(case), _NOW, claim_confirmed=True)
    assert 0.01 == task.central_epsilon
    with pytest.raises(PolicyError, match="deadline"):
        check(signed, signed.digest(), _policy(case), float(FAR_FUTURE), claim_confirmed=True)


def _totals(**caps: Any) -> Policy:
    identity = SigningIdentity.generate().public_identity()
    return _pinning(identity, local_epsilon_cap=4.0, **caps)


def _claim(local: float = 1.0, central: float = 0.1, delta: float = 1e-6) -> Claim:
    return Claim(local_epsilon=local, central_epsilon=central, delta=delta, coalition_epsilon=local)


def test_local_epsilons_add_up_to_their_cap() -> None:
    """Exactly the cap is allowed, so splitting a question into tasks gains nothing."""
    policy = _totals(total_local_epsilon_cap=3.0)
    check_totals(policy, [_claim(), _claim()], _claim())
    with pytest.raises(BudgetError) as caught:
        check_totals(policy, [_claim(), _claim()], _claim(local=1.25))

    assert "RESOURCE_EXHAUSTED" == caught.value.status
    message = "total_local_epsilon_cap is 3.0; 2 is spent on 2 tasks, and this one would add 1.25"
    assert f"{message}. To answer, raise total_local" in str(caught.value)


_CHAINED = Claim(
    local_epsilon=math.inf, central_epsilon=0.125, delta=1e-6, coalition_epsilon=0.5, chained=True
)


@pytest.mark.parametrize("local", [0.25, 0.5, 1.0, math.inf])
def test_a_lost_counters_charge_is_the_cap_in_each_column(local: float) -> None:
    """A coalition ε above its local one is of answers with two shufflers, which have no local."""
    lost = Claim(local_epsilon=local, central_epsilon=0.125, delta=1e-6, coalition_epsilon=0.5)
    assert local == local_total([lost])
    assert 0.125 == composed_total([lost], 1e-4)
    assert 0.5 == composed_total([lost], 1e-4, "coalition_epsilon")


def test_coalition_claims_compose_to_their_cap_and_spare_the_local_total() -> None:
    """Five of .5 cost 2.5; with one shuffler the local ε adds up with them."""
    policy = _totals(total_local_epsilon_cap=1.0, total_coalition_epsilon_cap=2.5)
    check_totals(policy, [_CHAINED] * 4, _CHAINED)
    check_totals(policy, [_CHAINED] * 3, _claim())
    assert 0 == local_total([_CHAINED])
    assert 0.25 == pytest.approx(composed_total([_CHAINED] * 2, 1e-5), abs=1e-3)
    costs = r"2\.25 is spent on 4 tasks, and this one would add 0\.5 at delta 1e-06"
    spent = [*[_CHAINED] * 2, _claim(local=0.75), _CHAINED]
    with pytest.raises(
        BudgetError, match=rf"total_coalition_epsilon_cap is 2\.5 at delta 0\.0001; {costs}\."
    ):
        check_totals(policy, spent, _CHAINED)
    lowered = replace(policy, total_local_epsilon_cap=0.5)
    check_totals(lowered, [_claim()], _CHAINED)
    tiny = replace(policy, total_delta_cap=1.5e-6)
    with pytest.raises(BudgetError, match="total_central_epsilon_cap"):
        check_totals(tiny, [_CHAINED], _CHAINED)


def test_central_claims_compose_to_their_cap() -> None:
    """This includes tasks without local noise; the message names the cap and the costs."""
    policy = _totals(total_local_epsilon_cap=math.inf, total_central_epsilon_cap=0.15)
    claim = _claim(local=math.inf, central=0.125)
    check_totals(policy, [], claim)
    costs = r"0\.125 is spent on 1 task, and this one would add 0\.125 at delta 1e-06"
    remedy = "To answer, raise total_central_epsilon_cap in this device's settings$"
    with pytest.raises(
        BudgetError, match=rf"central_epsilon_cap is 0\.15 at delta 0\.0001; {costs}. {remedy}"
    ):
        check_totals(policy, [claim], claim)


def test_deltas_alone_can_exceed_the_cap() -> None:
    """The central epsilons may be small; local ones within the cap still pass."""
    policy = _totals(total_delta_cap=1e-6)
    check_totals(policy, [_claim(local=0.5)], _claim(local=0.5))
    check_totals(policy, [], _claim(central=1e-3, delta=1e-6))
    with pytest.raises(BudgetError, match="total_central_epsilon_cap"):
        check_totals(policy, [_claim(central=1e-3)], _claim(central=1e-3))


@pytest.mark.parametrize("tiny", [0.0, 1e-300, 1e-9])
def test_tiny_claims_cost_little_beside_a_large_one(tiny: float) -> None:
    """The device can compose any claims with bounded memory."""
    policy = _totals(total_delta_cap=1e-5)
    spent = [_claim(central=tiny, delta=1e-9)] * 9
    check_totals(policy, spent, _claim(central=0.99, delta=0.0))
    with pytest.raises(BudgetError, match="total_central_epsilon_cap"):
        check_totals(policy, spent, _claim(central=1.01, delta=0.0))


def test_claims_of_a_local_epsilon_add_up() -> None:
    """Such answers may share permanent noise, so they do not compose as independent."""
    policy = _totals(total_central_epsilon_cap=6.0, total_delta_cap=1e-2)
    claim = _claim(local=0.25, central=0.25)
    check_totals(policy, [claim] * 23, claim)
    with pytest.raises(BudgetError, match="total_central_epsilon_cap"):
        check_totals(policy, [claim] * 24, claim)


def test_a_repeatable_question_is_answered_only_if_the_owner_allows() -> None:
    """A changed answer may show, which no cap covers."""
    case = published(
        **kind_draft_fields("rappor", texts=TextDraft(question="state"), population="staff")
    )
    allowing = generous(case.identity.public_identity())
    refusing = dataclasses.replace(allowing, lasting_responses=False)
    digest = case.signed.digest()

    assert case.task == check(case.signed, digest, allowing, 0.0)
    with pytest.raises(PolicyError, match="set lasting_responses"):
        check(case.signed, digest, refusing, 0.0)
    assert not _pinning(allowing.analyzer_identity, local_epsilon_cap=1.0).lasting_responses
