"""Tasks with two shufflers: their rules, lengths, layers and keys."""

from dataclasses import replace
from typing import Any

import pytest

from shuffledp.analyzer.task_builder import complete
from shuffledp.common.crypto.hpke import (
    DEFAULT_SUITE,
    HpkePrivateKey,
    layer_context,
    report_context,
)
from shuffledp.common.crypto.signing import KeyUse, check_key
from shuffledp.common.errors import ProofError, TaskError
from shuffledp.common.task.sealing import report_sealer
from shuffledp.common.task.shuffler_spec import (
    KEEP_SUM,
    NO_NOISE,
    BinomialNoise,
    ShufflerSpec,
    SummedNoise,
)
from shuffledp.common.task.task import Task, envelope_bytes
from shuffledp.common.task.task_parts import TaskShuffler
from tests.support.chains import COINS, FLANKS, RELAY, chain
from tests.support.keys import SHUFFLER
from tests.support.protocol_tasks import protocol_task
from tests.support.tasks import draft, published

_RELAY_KEY = HpkePrivateKey.generate()
_CASE = published(**chain(relay_key=_RELAY_KEY))
_FIRST, _SECOND = _CASE.task.shufflers


def test_each_shuffler_has_noise_of_its_own_and_together_the_sum() -> None:
    """Coins add up to coins."""
    coins = published(**chain(COINS, BinomialNoise(trials=300))).task

    assert ShufflerSpec(noise=SummedNoise((FLANKS, FLANKS))) == _CASE.task.shuffler.by_view[0]
    assert ShufflerSpec(noise=BinomialNoise(trials=500)) == coins.shuffler.by_view[0]
    assert [200, 300] == [coins.hop(hop).noises[0].most for hop in (0, 1)]
    assert _SECOND == _CASE.task.relay
    assert None is protocol_task("sageo").relay
    assert _CASE.task == Task.from_bytes(_CASE.task.to_bytes())


def test_a_report_has_one_layer_more_until_the_relay_has_opened_it() -> None:
    """Devices send what the first shuffler and the relay receive."""
    task = _CASE.task
    sealed = task.mechanism.report_bytes + 48

    assert [sealed + 48, sealed + 48, sealed] == [task.report_bytes_at(hop) for hop in range(3)]
    assert (sealed, sealed + 48) == (task.sealed_report_bytes, task.sent_report_bytes)
    assert (envelope_bytes(task.mechanism.report_bytes + 48, 1),) == task.envelope_sizes
    alone = protocol_task("sageo")
    assert {alone.sealed_report_bytes} == {alone.report_bytes_at(0), alone.report_bytes_at(1)}


def test_a_layer_opens_under_the_relays_key_and_hop_alone() -> None:
    """Inside is a report that only the analyzer opens; the relay's own dummies have no layer."""
    task, digest = _CASE.task, _CASE.signed.digest()
    layer = report_sealer(task, digest)(b"item")
    inner = _RELAY_KEY.open(layer, layer_context(digest, 1))

    assert task.sent_report_bytes - task.mechanism.report_bytes + 4 == len(layer)
    assert b"item" == _CASE.analyzer_key.open(inner, report_context(digest))
    own = report_sealer(task, digest, hop=2)(b"item")
    assert b"item" == _CASE.analyzer_key.open(own, report_context(digest))
    opener = _RELAY_KEY.opener
    for context in (layer_context(digest, 2), layer_context(digest, 0), report_context(digest)):
        assert None is opener(context)(layer)


def test_a_relays_key_is_signed_for_layers_alone() -> None:
    """Neither its envelope key nor the first shuffler's signature passes."""
    suite = _CASE.task.suite
    check_key(RELAY.public_identity(), KeyUse.LAYERS, suite, _SECOND.key, _SECOND.proof)

    for identity, use in ((RELAY, KeyUse.ENVELOPES), (SHUFFLER, KeyUse.LAYERS)):
        with pytest.raises(ProofError, match="_key is not signed by the"):
            check_key(identity.public_identity(), use, suite, _SECOND.key, _SECOND.proof)


@pytest.mark.parametrize(
    ("shufflers", "message"),
    [
        ((_FIRST, _SECOND, _SECOND), "the task lists 3 shufflers; this version supports only"),
        ((_FIRST, replace(_SECOND, name="first.example")), "must have a name each"),
        ((_FIRST, replace(_SECOND, name="")), "must have a name each, and not the same"),
        ((_FIRST, replace(_SECOND, key=_FIRST.key)), "must have a key each, and not the same"),
        ((_FIRST, replace(_SECOND, key=b"short")), "the relay's key has 5 bytes; it must have 32"),
        ((_FIRST, replace(_SECOND, proof=b"short")), "the proof of the relay's key has 5 bytes"),
        ((_FIRST, replace(_SECOND, proof=bytes(72))), "the relay signed its key until 1970-01-01"),
        ((_FIRST, replace(_SECOND, noises=(NO_NOISE,))), "the relay too must add dummies of the"),
        ((_FIRST, replace(_SECOND, noises=(COINS,))), "dummies of the distribution geometric and"),
        (
            (_FIRST, replace(_SECOND, noises=2 * (FLANKS,))),
            "the relay has 2 distributions of noise",
        ),
        (
            (_FIRST, replace(_SECOND, keep_weight=KEEP_SUM - 1)),
            "keep every report (keep_weight 4294967296)",
        ),
        ((replace(_FIRST, keep_weight=1), _SECOND), "the shuffler too must add dummies"),
    ],
)
def test_a_chain_that_breaks_a_rule_cannot_exist(
    shufflers: tuple[TaskShuffler, ...], message: str
) -> None:
    """The message names the shuffler and the rule."""
    with pytest.raises(TaskError) as caught:
        replace(_CASE.task, shufflers=shufflers)

    assert message in str(caught.value)


@pytest.mark.parametrize("protocol", ["hybrid", "puredump", "signed", "sh"])
def test_permuting_twice_is_refused_with_the_reason(protocol: str) -> None:
    """Also where the shuffler's noise hides a user only together with others."""
    task = protocol_task(protocol)
    [first] = task.shufflers
    two = (replace(first, name="first"), replace(first, name="second", key=_SECOND.key))

    with pytest.raises(TaskError, match=r"whom one shuffler can drop .* need .*: sbin or sageo"):
        replace(task, shufflers=two)


@pytest.mark.parametrize("claim", [0.0, 0.1, float("inf"), float("nan")])
def test_a_coalition_claim_is_finite_and_not_below_the_central_one(claim: float) -> None:
    """With one shuffler it equals the local ε, which the rules of all tasks check."""
    assert 0.1 < _CASE.task.central_epsilon < _CASE.task.coalition_epsilon
    with pytest.raises(TaskError, match="with two shufflers it must be finite, above 0"):
        replace(_CASE.task, coalition_epsilon=claim)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"relay_key": HpkePrivateKey.generate()}, True),
        ({"second": replace(FLANKS, most=51)}, False),
        ({"first": replace(FLANKS, most=51), "second": FLANKS}, False),
    ],
)
def test_chains_ask_alike_if_each_shuffler_adds_the_same(
    change: dict[str, Any], *, expected: bool
) -> None:
    """Keys may differ, and the claims, which are computed; neither shuffler's noise may."""
    key = HpkePrivateKey.generate(DEFAULT_SUITE).public_key().raw
    other = complete(draft(**chain(**change)), analyzer_key=key, nonce=bytes(32))

    assert expected == _CASE.task.asks_like(other)
    renamed = (_FIRST, replace(_SECOND, name="third.example"))
    assert not _CASE.task.asks_like(replace(_CASE.task, shufflers=renamed))
