import dataclasses
import json
import math
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.crypto.suites import SUITES
from common.errors import TaskError
from common.task.dummy_spec import DummySpec
from common.task.specs import MechanismSpec
from common.task.task import Task
from tests.support.protocol_tasks import protocol_task
from tests.support.tasks import published

_SPEC = published().task.item_mechanism


def test_a_task_is_read_back_from_its_bytes_exactly() -> None:
    """Bytes, task and bytes again are the same, so digests never differ."""
    task = published().task

    assert task == Task.from_bytes(task.to_bytes())
    assert task.to_bytes() == Task.from_bytes(task.to_bytes()).to_bytes()


def test_a_task_has_one_byte_form_only() -> None:
    """Spaces, another key order or an unknown key make it another document, which is refused."""
    raw = published().task.to_bytes()
    fields = json.loads(raw)

    for other in (
        json.dumps(fields).encode(),
        json.dumps(dict(reversed(fields.items())), separators=(",", ":")).encode(),
        raw.replace(b'{"', b'{"a":1,"', 1),
        raw + b"\n",
    ):
        with pytest.raises(TaskError):
            Task.from_bytes(other)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"domain_size": 1}, "domain_size is 1; it must lie between 2"),
        ({"delta": 0.0}, "delta is 0.0"),
        ({"delta": 1.0}, "delta is 1.0"),
        ({"delta": math.nan}, "delta is nan"),
        ({"local_epsilon": 0.0}, "local_epsilon is 0.0; it must be above 0.0"),
        ({"local_epsilon": -1.0}, "local_epsilon is -1.0"),
        ({"local_epsilon": math.nan}, "local_epsilon is nan"),
        ({"local_epsilon": 20.5}, "local_epsilon is 20.5; it must be above 0.0 and at most 20.0"),
        ({"central_epsilon": 2.5}, "central_epsilon is 2.5"),
        ({"local_epsilon": -math.inf}, "local_epsilon is -inf"),
        ({"local_epsilon": math.inf}, "one is infinite exactly where the other is 0"),
        ({"central_epsilon": math.nan}, "central_epsilon is nan"),
        ({"central_epsilon": math.inf}, "the task would promise nothing"),
        ({"central_epsilon": -0.5}, "central_epsilon is -0.5; it must lie between 0"),
        ({"n_min": 0}, "n_min is 0"),
        ({"target_size": 5}, "target_size is 5; it must lie between 10"),
        ({"deadline": 0}, "deadline is 0"),
        ({"assumed_honest_fraction": True}, "must be a number"),
        ({"local_epsilon": 2}, "must be a number"),
        ({"assumed_honest_fraction": 0.0}, "assumed_honest_fraction is 0.0"),
        ({"assumed_honest_fraction": 1.5}, "assumed_honest_fraction is 1.5"),
        ({"assumed_honest_fraction": math.nan}, "assumed_honest_fraction is nan"),
        ({"protocol": "no-such"}, "the known ones are ldp-warner"),
        ({"suite": "rot13"}, "the suite must be one of"),
        ({"nonce": b"short"}, "nonce has 5 bytes"),
        ({"analyzer_key": b""}, "analyzer_key has 0 bytes"),
        ({"labels": ("a", "b")}, "there are 2 labels for a domain_size of 100"),
        ({"labels": ("a",) * 100}, "two items have the same label"),
        ({"labels": (*map(str, range(99)), "a\ud800")}, "the label of item 99 holds half"),
        ({"labels": ("\ude00", *map(str, range(99)))}, "the label of item 0 holds half"),
        ({"population": " staff"}, "population begins or ends with a blank"),
        ({"population": "Müller"}, "population must be printable ASCII"),
        ({"population": "a\n"}, "population must be printable ASCII"),
        ({"population": 1}, "population must be printable ASCII"),
        ({"population": "x" * 65}, "population has 65 characters; it may have at most 64"),
        ({"budget_epsilon": 0.0}, "budget_epsilon is 0.0; it must be above 0 and finite"),
        ({"budget_epsilon": math.inf}, "budget_epsilon is inf"),
        ({"budget_epsilon": math.nan}, "budget_epsilon is nan"),
        ({"budget_epsilon": 0.5}, "budget_epsilon is 0.5; this task alone claims"),
        ({"budget_delta": 1e-7}, "budget_delta is 1e-07; it must be at least delta, 1e-06"),
        ({"budget_delta": 1.0}, "budget_delta is 1.0"),
        ({"budget_delta": math.nan}, "budget_delta is nan"),
        ({"dummies": DummySpec(law="fixed", per_user=20_000)}, "a submission would have"),
        (
            {"mechanism": dataclasses.replace(_SPEC, digits=1)},
            "1 digits in base 13 cannot tell 100 items",
        ),
        (
            {"mechanism": dataclasses.replace(_SPEC, true_weight=1, other_weight=0)},
            "local_epsilon is 2.0 and other_weight is 0",
        ),
    ],
)
def test_a_task_that_breaks_a_rule_cannot_exist(change: dict[str, Any], message: str) -> None:
    """The message names the rule and the number that broke it."""
    with pytest.raises(TaskError) as caught:
        dataclasses.replace(published().task, **change)

    assert message in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"true_weight": 2**63, "other_weight": 1},
        {"true_weight": 1, "other_weight": 2},
        {"other_weight": 0},
        {"other_weight": 0, "true_weight": 2},
        {"other_weight": -1, "true_weight": 1},
        {"buckets": 1},
        {"digits": 0},
        {"report_bytes": 0},
        {"buckets": 2**24, "other_weight": 2**40, "true_weight": 2**41},
    ],
)
def test_integer_weights_stay_within_exact_arithmetic(change: dict[str, Any]) -> None:
    """Weights are ordered and their sum stays below 2^63."""
    spec = published().task.mechanism

    with pytest.raises(TaskError):
        dataclasses.replace(spec, **change)


def _noiseless() -> Task:
    return published(local_epsilon=math.inf, dummies_per_user=100).task


_NOISELESS = {
    "local_epsilon": math.inf,
    "dummies_per_user": 100,
    "buckets": 0,
    "n_min": 100,
    "target_size": 100,
}


def test_a_task_without_local_noise_is_read_back_exactly() -> None:
    """Its local ε is infinite, in the bytes the text "inf"; its central ε is finite."""
    task = _noiseless()
    raw = task.to_bytes()

    assert b'"local_epsilon":"inf"' in raw
    assert task == Task.from_bytes(raw)
    assert raw == Task.from_bytes(raw).to_bytes()
    assert math.inf == task.local_epsilon
    assert math.isfinite(task.central_epsilon)


def test_the_law_of_the_dummies_is_in_the_bytes() -> None:
    """The chance of one more is an integer, so that it is the same for everybody."""
    task = published(dummies_per_user=1.3).task
    raw = task.to_bytes()

    assert b'"extra_weight":1288490189,"law":"fractional","most":1,"per_user":1,"trials":1}' in raw
    assert task == Task.from_bytes(raw)
    assert 3 == task.reports_per_user
    for other in (b"0", b"1288490189.0", b"4294967296", b"-1", b'"1"', b"true"):
        with pytest.raises(TaskError):
            Task.from_bytes(raw.replace(b":1288490189", b":" + other))


@pytest.mark.parametrize(
    "other",
    ['"-inf"', '"Inf"', '"infinity"', '"nan"', "NaN", "Infinity", "-Infinity", "1e999", "null"],
)
def test_infinity_has_one_form_only(other: str) -> None:
    """Anything else that Python would take for it is refused."""
    raw = _noiseless().to_bytes()
    changed = raw.replace(b'"local_epsilon":"inf"', b'"local_epsilon":' + other.encode())
    assert raw != changed

    with pytest.raises(TaskError):
        Task.from_bytes(changed)


@pytest.mark.parametrize("name", ["central_epsilon", "delta", "assumed_honest_fraction"])
def test_no_other_number_may_be_infinite(name: str) -> None:
    """Not as text, and not as a number too large for a float."""
    fields = json.loads(_noiseless().to_bytes())
    for infinite in ("inf", math.inf):
        raw = json.dumps(fields | {name: infinite}, sort_keys=True, separators=(",", ":"))
        with pytest.raises(TaskError):
            Task.from_bytes(raw.replace("Infinity", "1e999").encode())


@pytest.mark.parametrize(
    ("protocol", "changes", "message"),
    [
        ("sh", {}, "the protocol sh reports by grr; the task says local-hashing, with 13 buckets"),
        ("mixdump", {}, "the protocol mixdump reports by grr; the task says local-hashing"),
        ("murs", {}, "the protocol murs has no dummies; the task has up to 1 for each user"),
        ("murs", {"dummies_per_user": 2.5}, "the task has up to 3 for each user"),
        ("sh", {"buckets": 0}, "the protocol sh has no dummies"),
        (
            "puredump",
            {"buckets": 0},
            (
                "the protocol puredump has no local noise; other_weight is 4294967296, "
                "and local_epsilon, 2.0, must be infinite"
            ),
        ),
        ("mixdump", _NOISELESS, "the protocol mixdump needs local noise; other_weight is 0"),
        ("sh", _NOISELESS, "the protocol sh needs local noise"),
    ],
)
def test_a_task_keeps_its_protocols_row(
    protocol: str, changes: dict[str, Any], message: str
) -> None:
    """A task of od-hp that calls itself something else: the rule and the number that broke it."""
    task = published(**changes).task
    with pytest.raises(TaskError, match=message):
        dataclasses.replace(task, protocol=protocol)


@pytest.mark.parametrize(
    ("fraction", "users", "honest"), [(0.9, 10, 9), (1.0, 7, 7), (0.7, 10, 7), (0.1, 9, 0)]
)
def test_the_honest_fraction_is_the_decimal_that_is_shown(
    fraction: float, users: int, honest: int
) -> None:
    """.7 of 10 is 7, not the 6 of binary arithmetic, and never more than the decimal's."""
    task = dataclasses.replace(published().task, assumed_honest_fraction=fraction)

    assert honest == task.honest_users(users)


def test_every_length_on_the_wire_follows_from_the_task() -> None:
    """12 bytes a report, 48 for each seal, 16 for the id."""
    task = published(dummies_per_user=3).task

    assert task.reports_per_user == 4
    assert task.sealed_report_bytes == 12 + 48
    assert task.envelope_bytes == 16 + 4 * 60 + 48


def _replaced(task: Task, change: dict[str, Any]) -> Task:
    return dataclasses.replace(task, **change)


@pytest.mark.parametrize(
    ("suite", "key_bytes", "overhead"),
    list(zip(SUITES, [32, 32, 1216], [48, 48, 1136], strict=True)),
)
def test_lengths_follow_from_the_suite(suite: str, key_bytes: int, overhead: int) -> None:
    """Of keys, sealed reports and envelopes; a key of another suite's length is refused."""
    task = published(dummies_per_user=3, suite=suite).task
    assert 12 + overhead == task.sealed_report_bytes
    assert 16 + 4 * (12 + overhead) + overhead == task.envelope_bytes
    assert task == Task.from_bytes(task.to_bytes())
    for name in ("analyzer_key", "shuffler_key"):
        with pytest.raises(TaskError, match=f"{name} has 33 bytes; it must have {key_bytes}"):
            _replaced(task, {name: bytes(33)})


def test_a_hybrid_submission_that_would_not_fit_is_refused() -> None:
    """At most 1 MiB in one envelope: a kilobyte and more for every report."""
    suite = "mlkem768x25519-hkdf-sha256-chacha20poly1305"
    assert 1 + 900 == published(dummies_per_user=900, suite=suite).task.reports_per_user
    with pytest.raises(TaskError, match="at most 1048576 are carried"):
        published(dummies_per_user=920, suite=suite)


@given(st.binary(max_size=400))
def test_any_bytes_are_a_task_or_a_task_error(raw: bytes) -> None:
    """Nothing else ever comes out of the parser."""
    with pytest.raises(TaskError):
        Task.from_bytes(raw)


@cache
def _written() -> bytes:
    """Give a valid task, as it is read."""
    return published().task.to_bytes()


@given(data=st.data())
def test_a_task_with_any_field_replaced_is_a_task_or_a_task_error(data: st.DataObject) -> None:
    """Whatever JSON stands in a field, the parser gives a valid task or a TaskError."""
    fields = json.loads(_written())
    name = data.draw(st.sampled_from(sorted(fields)))
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=4,
    )
    fields[name] = data.draw(values)
    raw = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()

    try:
        task = Task.from_bytes(raw)
    except TaskError:
        return
    assert raw == task.to_bytes()


def test_a_task_too_long_to_be_read_is_never_written() -> None:
    """What one side signs, the other must be able to take."""
    task = published().task
    labels = tuple(f"{number:0>200}" for number in range(12_000))
    with pytest.raises(TaskError, match="at most 2097152 are read"):
        dataclasses.replace(
            task,
            domain_size=12_000,
            labels=labels,
            mechanism=dataclasses.replace(task.item_mechanism, digits=4),
        ).to_bytes()


def test_a_label_with_half_a_pair_is_not_read() -> None:
    """Its JSON is ASCII and valid; a whole pair is a letter like any other."""
    raw = published(domain_size=2, labels=("\U0001f642", "b")).task.to_bytes()
    assert "\U0001f642" == Task.from_bytes(raw).labels[0]

    with pytest.raises(TaskError, match="the label of item 0 holds half of a surrogate pair"):
        Task.from_bytes(raw.replace(b"\\ud83d\\ude42", b"\\ud83d"))


def test_grr_has_as_many_buckets_as_items() -> None:
    """A GRR task cannot state another alphabet than its domain."""
    task = published(domain_size=5, buckets=13).task
    assert task.mechanism.name == "grr"
    wrong = MechanismSpec(
        name="grr", buckets=6, digits=1, true_weight=4, other_weight=1, report_bytes=4
    )

    with pytest.raises(TaskError, match="GRR over 5 items"):
        dataclasses.replace(task, mechanism=wrong)


@pytest.mark.parametrize(
    ("protocol", "remedy"),
    [
        ("sbin", "it needs a shuffler that adds more dummies of each item"),
        ("od-hp", "it needs local noise, more dummies, or a larger n_min"),
    ],
)
def test_a_task_that_promises_nothing_is_told_what_would_help(protocol: str, remedy: str) -> None:
    """More users hide nobody where only the shuffler's dummies do."""
    task = protocol_task(protocol)

    with pytest.raises(TaskError, match=remedy):
        dataclasses.replace(task, central_epsilon=math.inf)


@pytest.mark.parametrize("protocol", ["sbin", "sageo", "od-hp"])
def test_a_domain_size_of_any_length_is_refused(protocol: str) -> None:
    """No rule multiplies by it before it is known to be in range."""
    fields = json.loads(published().task.to_bytes())
    fields |= {"domain_size": 10**400, "protocol": protocol}
    written = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()

    with pytest.raises(TaskError, match="domain_size is 1000"):
        Task.from_bytes(written)
