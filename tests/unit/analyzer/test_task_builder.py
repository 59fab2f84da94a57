import dataclasses
import math
from typing import Any

import pytest

from shuffledp.analyzer.task_builder import complete
from shuffledp.common.accounting.epsilon_search import MAX_EPSILON
from shuffledp.common.crypto.hpke import HpkePrivateKey
from shuffledp.common.errors import TaskError, WireError
from shuffledp.common.mechanisms.registry import randomizer_of
from shuffledp.common.protocols import protocol_named
from shuffledp.common.task.draft import NumberDraft, PairDraft, RelayDraft, TextDraft
from shuffledp.common.task.shuffler_spec import BinomialNoise, ShufflerSpec
from shuffledp.common.task.spec_forms import spec_as
from shuffledp.common.task.specs import NumberSpec, RapporSpec
from shuffledp.common.task.task import Task
from tests.support.chains import FLANKS
from tests.support.kind_tasks import OF_OTHER_KINDS, kind_draft_fields, kind_task, lasting_task
from tests.support.protocol_tasks import ITEM_PROTOCOLS, unclaimed_task
from tests.support.tables import table
from tests.support.tasks import SHUFFLER_NOISE, draft, published


@table("protocol", OF_OTHER_KINDS)
def test_a_task_of_every_kind_round_trips(protocol: str) -> None:
    """
    The mechanism satisfies the claimed local ε; reports are as many as views, and with local noise
    as many are delivered.
    """
    task = kind_task(protocol)
    raw = task.to_bytes()
    kind = f'"kind":"{protocol_named(protocol).kind}"'.encode()

    assert task == Task.from_bytes(raw)
    assert kind in raw
    with pytest.raises(TaskError):
        Task.from_bytes(raw.replace(kind, b'"kind":"categorical"'))
    assert randomizer_of(task).keeps_promise(task.local_epsilon)
    assert 0 < task.central_epsilon < task.local_epsilon
    assert len(task.views) == task.own_reports <= task.lengths[0]
    if not protocol_named(protocol).noiseless:
        assert (1,) == task.lengths
        assert task.shuffler.only_permutes
        assert (50, 50) == task.shuffler.batch_reports(50)


def test_the_local_epsilon_of_texts_follows_from_their_probabilities() -> None:
    """The draft may claim more, not less."""
    found = kind_task("rappor").local_epsilon
    assert 1.0216 < found < 1.0217
    assert 2.0 == kind_task("rappor", local_epsilon=2.0).local_epsilon
    with pytest.raises(TaskError, match=r"one report with these probabilities costs 1\.02"):
        kind_task("rappor", local_epsilon=1.0)


def test_labels_make_basic_rappor() -> None:
    """There is one bit per label, one cohort and one hash."""
    labels = ("yes", "no", "maybe")
    for texts in (None, TextDraft(unset=0.0, set=1.0), TextDraft(cohorts=1)):
        task = kind_task("rappor", labels=labels, domain_size=1, texts=texts)
        spec = spec_as(task.mechanism, RapporSpec)

        assert ("labels", 3, 1, 1) == (spec.encoding, spec.bits, spec.hashes, spec.cohorts)
        assert 3 == task.domain_size


def test_a_lasting_question_gets_no_amplification() -> None:
    """Its permanent responses link tasks, so only the local claim composes."""
    alone, asked = kind_task("rappor"), lasting_task()

    assert alone.central_epsilon < alone.local_epsilon
    assert asked.central_epsilon == asked.local_epsilon == alone.local_epsilon
    with pytest.raises(TaskError, match="rappor for a lasting question relies on no shuffler"):
        dataclasses.replace(asked, central_epsilon=0.5)
    once = kind_task("rappor", population="staff")
    assert once.central_epsilon < once.local_epsilon
    with pytest.raises(TaskError, match="population must not be empty"):
        lasting_task(population="")


@table(
    ("protocol", "changes", "rule"),
    [
        ("duchi", {"texts": TextDraft()}, r"has a table \[texts\]; the protocol duchi is for mean"),
        ("od-hp", {"numbers": NumberDraft(), "domain_size": 9}, "is for categorical data"),
        ("duchi", {"buckets": 7}, "buckets is 7, and must be 0"),
        ("duchi", {"dummies_per_user": 1.0}, "the protocol duchi has no dummies"),
        ("duchi", {"domain_size": 2}, "domain_size is 2; it must be 1$"),
        ("harmony", {"domain_size": 1}, "domain_size is 1; it must lie between 2 and 8192"),
        ("rappor", {"domain_size": 3}, "a domain_size of 1; the task has 0 and 3"),
        ("duchi", {"local_epsilon": math.inf}, "mean data always needs noise"),
        ("duchi", {"local_epsilon": 0.0}, "local_epsilon is 0 or left out; the protocol duchi"),
        ("duchi", {"numbers": NumberDraft(low=2.0, high=2.0)}, "low must be below high"),
        ("duchi", {"numbers": NumberDraft(low=math.nan)}, "low is nan"),
        ("rappor", {"texts": TextDraft(permanent=math.nan)}, "permanent is nan"),
        ("rappor", {"texts": TextDraft(question="é")}, "question must be printable ASCII"),
        ("duchi", {"local_epsilon": 1e-9}, "must be from 1e-06 to 20.0"),
        ("duchi", {"numbers": NumberDraft(low=0.0, high=5e-324)}, "far enough apart|must be at"),
        ("duchi", {"numbers": NumberDraft(low=-0.0)}, "low is -0.0; write 0.0"),
        ("multi-rphm", {"domain_size": 8192}, "their product may be at most 2097152"),
        ("rappor", {"texts": TextDraft(cohorts=3)}, "cohorts is 3; it must be a power of two"),
        (
            "rappor",
            {"labels": ("a", "é" * 33), "texts": None},
            "label of item 1 has 66 bytes in UTF-8; most_bytes is 64, and nobody could answer it",
        ),
        (
            "od-hp",
            {"labels": ("a", "b ", "c", "d"), "domain_size": 4},
            "label of item 1 begins or ends with wh",
        ),
        ("od-hp", {"labels": ("e\u0301", *"bcd"), "domain_size": 4}, "label of item 0 .* form C"),
        ("rappor", {"labels": ("a", "b"), "texts": TextDraft(cohorts=8)}, "with labels it must"),
        ("rappor", {"texts": TextDraft(bits=33)}, "bits is 33; above 32 it must be divisible"),
        ("rappor", {"texts": TextDraft(unset=0.8)}, "p must be below q"),
        ("rappor", {"texts": TextDraft(permanent=0.0, unset=0.0, set=1.0)}, "would reveal bits"),
        ("priv-kv", {"pairs": PairDraft(fakes=(0.5,))}, "1 fake values and 6 keys"),
        ("priv-kv", {"pairs": PairDraft(low=0.0, fakes=(-0.5,) * 6)}, "a fake value is -0.5"),
        ("priv-kv", {"pairs": PairDraft(key_share=1.0)}, "key_share is 1.0"),
        (
            "geo-digits",
            {"noises": (FLANKS, FLANKS), "shuffler": ShufflerSpec(noise=FLANKS)},
            r"the table \[shuffler\] has keys of noise beside views; state one or the other",
        ),
        (
            "geo-digits",
            {"relay": RelayDraft(name="b", key=b"", noise=FLANKS, noises=(FLANKS, FLANKS))},
            r"the table \[relay\] has keys of noise beside views",
        ),
        ("geo-digits", {"local_epsilon": 2.0}, "must be infinite if and only if they have none"),
        ("tables", {"local_epsilon": 2.0}, "must be infinite if and only if they have none"),
    ],
)
def test_an_invalid_draft_is_refused_with_the_rule(
    protocol: str, changes: dict[str, Any], rule: str
) -> None:
    """The message names the rule and the public number that broke it."""
    fields = kind_draft_fields(protocol) if protocol != "od-hp" else {"buckets": 0}
    with pytest.raises(TaskError, match=rule):
        complete(draft(**fields | changes), analyzer_key=bytes(31) + b"\x09", nonce=bytes(32))


@table("protocol", ITEM_PROTOCOLS)
def test_a_draft_may_leave_out_the_local_epsilon_of_true_reports(protocol: str) -> None:
    """Without local noise it is infinite; other protocols need it."""
    if protocol_named(protocol).noiseless:
        assert math.inf == unclaimed_task(protocol, local_epsilon=0.0).local_epsilon
    else:
        with pytest.raises(TaskError, match="local_epsilon is 0 or left out"):
            unclaimed_task(protocol, local_epsilon=0.0)


def test_a_task_for_numbers_has_no_item_mechanism() -> None:
    """It has no refinement either."""
    task = kind_task("duchi")
    assert "duchi" == spec_as(task.mechanism, NumberSpec).name
    with pytest.raises(TaskError, match="the mechanism duchi is not for items"):
        _ = task.item_mechanism
    with pytest.raises(TaskError, match="estimates no distribution of items"):
        _ = task.refinement


def test_labels_are_normalized_as_texts_are() -> None:
    """The limit applies to the normalized label."""
    task = kind_task("rappor", labels=("e\u0301" * 32, "no"), texts=None)

    assert ("é" * 32, "no") == task.labels
    with pytest.raises(TaskError, match="label of item 1 is not in Unicode's normal form C"):
        dataclasses.replace(task, labels=("no", "e\u0301"))


def test_a_population_without_local_noise_needs_a_stated_budget() -> None:
    """A task alone gets the largest certified ε."""
    noise = ShufflerSpec(noise=BinomialNoise(trials=2000))
    asked: dict[str, Any] = SHUFFLER_NOISE | {"shuffler": noise}

    assert MAX_EPSILON == published(**asked).task.budget_epsilon
    with pytest.raises(TaskError, match="must state budget_epsilon"):
        published(**asked, population="staff")
    assert 3.0 == published(**asked, population="staff", budget_epsilon=3.0).task.budget_epsilon


@pytest.mark.parametrize(
    ("protocol", "asked", "buckets"),
    [("ldp-blh", 0, 2), ("ldp-blh", 2, 2), ("ldp-olh", 0, 7), ("ldp-olh", 5, 5)],
)
def test_a_protocol_chooses_the_buckets_by_default(protocol: str, asked: int, buckets: int) -> None:
    """Two for binary local hashing; about e^2 + 1 for the optimal one at a local ε of 2."""
    task = published(protocol=protocol, buckets=asked, dummies_per_user=0).task

    assert buckets == task.item_mechanism.buckets
    with pytest.raises(TaskError, match="hashes into 2 buckets; buckets is 13"):
        published(protocol="ldp-blh", dummies_per_user=0)


def test_an_invalid_shuffler_key_is_refused() -> None:
    """Devices could not seal to it."""
    suite = "mlkem768x25519-hkdf-sha256-chacha20poly1305"
    with pytest.raises(WireError, match="public key is not valid in the suite"):
        complete(
            draft(b"\xff" * 1216, suite=suite),
            analyzer_key=HpkePrivateKey.generate(suite).public_key().raw,
            nonce=bytes(32),
        )
