import dataclasses
import itertools
from collections import Counter
from typing import Final

import numpy as np
import pytest

from shuffledp.common.errors import TaskError, ValueRangeError
from shuffledp.common.mechanisms.base import Randomizer, Reports, is_null, null_reports
from shuffledp.common.mechanisms.rappor import bloom
from shuffledp.common.mechanisms.rappor import permanent_response as permanent
from shuffledp.common.mechanisms.rappor.rappor import Rappor
from shuffledp.common.mechanisms.reduction import MatchCountReduction, PureReduction
from shuffledp.common.task.specs import RapporSpec
from tests.support.mechanisms import Scripted

_FULL: Final = Rappor.specify(bits=16, hashes=2, cohorts=4, f=0.5, p=0.5, q=0.75)
_ONE_TIME: Final = Rappor.specify(bits=40, hashes=2, cohorts=8, f=0.5, p=0, q=1)
_BASIC: Final = Rappor.specify(bits=5, f=0.5, p=0.25, q=0.75, encoding="labels")
_BASIC_ONE_TIME: Final = Rappor.specify(bits=8, f=0.5, p=0, q=1, encoding="labels")
_EVERY: Final = {
    "full": _FULL,
    "one-time": _ONE_TIME,
    "basic": _BASIC,
    "basic one-time": _BASIC_ONE_TIME,
}
_ALL = pytest.mark.parametrize("name", _EVERY)


def _example(name: str) -> Rappor:
    spec = _EVERY[name]
    labels = [f"v{place}" for place in range(spec.bits)]
    return Rappor.of(spec, labels)


def _secrets(count: int) -> list[bytes]:
    return [permanent.scope_secret(number.to_bytes(32, "big"), b"test") for number in range(count)]


def _bits(mechanism: Rappor, reports: Reports) -> list[tuple[int, ...]]:
    bits = np.unpackbits(reports["bits"], axis=1, bitorder="little")
    assert not bits[:, mechanism.spec.bits :].any()
    return [tuple(row) for row in bits[:, : mechanism.spec.bits].tolist()]


@_ALL
def test_each_variant_is_a_randomizer(name: str) -> None:
    """Each variant matches the interface, and its local ε is at most its permanent ε."""
    mechanism: Randomizer = _example(name)
    rappor = _example(name)

    assert mechanism.keeps_promise(mechanism.local_epsilon)
    assert not mechanism.keeps_promise(np.nextafter(mechanism.local_epsilon, 0))
    assert mechanism.keeps_promise(np.inf)
    assert not mechanism.keeps_promise(np.nan)
    assert rappor.local_epsilon <= rappor.permanent_epsilon
    assert rappor.spec.one_time == (rappor.local_epsilon == rappor.permanent_epsilon)


@_ALL
def test_permanent_responses_match_the_public_client(name: str) -> None:
    """Responses equal those computed bit by bit from cohort, filter, stream and coins."""
    mechanism = _example(name)
    spec = mechanism.spec
    texts, secrets = [f"v{number % 5}" for number in range(40)], _secrets(40)
    responses = mechanism.permanent(texts, secrets)

    for text, secret, response in zip(texts, secrets, responses, strict=True):
        cohort = permanent.cohort_of(secret, spec.cohorts, spec.bits)
        if spec.encoding == "labels":
            places = {int(text[1:])}
        else:
            places = set(bloom.positions(text.encode(), cohort, spec.bits, spec.hashes))
        filled = sum(1 << place for place in places)
        message = permanent.filter_message(filled, spec.bits, b"\x01")
        octets = permanent.stream(secret, message, spec.bits)
        expected = [
            octets[i] & 1 if octets[i] >> 1 < spec.permanent_weight else int(i in places)
            for i in range(spec.bits)
        ]
        assert cohort == response["cohort"]
        assert [tuple(expected)] == _bits(mechanism, response[None])


def test_reports_have_their_exact_distribution() -> None:
    """
    A permanent response with bits 1, 0 gives the four reports with 3/16, 9/16, 1/16 and 3/16.

    With p = 1/4 and q = 3/4 a bit depends on the upper two of its 16 random bits alone, so four
    draws per bit represent all.
    """
    mechanism = Rappor.of(
        Rappor.specify(bits=2, f=0.5, p=0.25, q=0.75, encoding="labels"), ["a", "b"]
    )
    draws = np.array(list(itertools.product([quarter << 14 for quarter in range(4)], repeat=2)))
    response = np.zeros(16, dtype=mechanism.report_dtype)
    response["bits"][:, 0] = 1
    seen = Counter(_bits(mechanism, mechanism.randomize(response, Scripted(draws))))

    assert {(0, 0): 3, (1, 0): 9, (0, 1): 1, (1, 1): 3} == seen


def test_the_largest_weights_are_certain() -> None:
    """The weight of p = 0 shows no unset bit for any draw, and that of q = 1 every set bit."""
    response = np.zeros(2, dtype=_example("basic").report_dtype)
    response["bits"][:, 0] = 0b00101
    draws = np.array([[0] * 5, [65535] * 5])
    no_p = Rappor.of(dataclasses.replace(_BASIC, unset_weight=0), [f"v{i}" for i in range(5)])
    all_q = Rappor.of(dataclasses.replace(_BASIC, set_weight=65536), [f"v{i}" for i in range(5)])

    assert [0b00101, 0] == no_p.randomize(response, Scripted(draws))["bits"][:, 0].tolist()
    assert [0b11111, 0b00101] == all_q.randomize(response, Scripted(draws))["bits"][:, 0].tolist()


@pytest.mark.parametrize("name", ["one-time", "basic one-time"])
def test_a_one_time_report_is_the_permanent_response(name: str) -> None:
    """Nothing is drawn, and the result is a copy."""
    mechanism = _example(name)
    response = mechanism.permanent(["v1", "v2"], _secrets(2))
    kept = response.tobytes()
    reports = mechanism.randomize(response, Scripted())

    assert kept == reports.tobytes()
    reports["cohort"] = 0
    reports["bits"] = 0
    assert kept == response.tobytes()


@pytest.mark.slow
def test_many_reports_are_drawn_and_counted_in_pieces() -> None:
    """At 4,194,304 bits at a time, 30,000 reports of 320 bits take three pieces."""
    mechanism = Rappor.of(Rappor.specify(bits=320, hashes=1, cohorts=2, f=0.5, p=0.25, q=0.75), [])
    response = np.zeros(30_000, dtype=mechanism.report_dtype)
    response["cohort"] = np.arange(30_000) % 2
    response["bits"][:, 1] = 0xFF
    reports = mechanism.randomize(response, np.random.default_rng(2))
    bits = np.array(_bits(mechanism, reports))
    cells = mechanism.tally(reports)

    assert [15_000, 15_000, *bits[::2].sum(axis=0), *bits[1::2].sum(axis=0)] == cells.tolist()
    assert 0.75 == pytest.approx(bits[27_000:, 8:16].mean(), abs=0.02)
    assert 0.25 == pytest.approx(bits[27_000:, 16:].mean(), abs=0.02)


@_ALL
def test_only_bits_and_cohorts_of_the_task_are_valid(name: str) -> None:
    """A report may have all bits set, but no spare bit, unknown cohort, or null report is valid."""
    mechanism = _example(name)
    size, cohorts = mechanism.spec.bits, mechanism.spec.cohorts
    places = 8 * (mechanism.report_dtype.itemsize - 2)
    every = np.zeros(1, dtype=mechanism.report_dtype)
    every["bits"][0] = np.packbits(np.arange(places) < size, bitorder="little")
    every["cohort"] = cohorts - 1

    assert mechanism.valid(every).all()
    assert not is_null(every).any()
    assert not mechanism.valid(null_reports(3, mechanism.report_dtype)).any()
    for bit in range(places):
        report = np.zeros(1, dtype=mechanism.report_dtype)
        report["bits"][0, bit // 8] = 1 << bit % 8
        assert (bit < size) == mechanism.valid(report)[0]
    for cohort in (cohorts, 255, 256, 65535):
        report = np.zeros(1, dtype=mechanism.report_dtype)
        report["cohort"] = cohort
        assert not mechanism.valid(report)[0]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("full", "ä" * 129, "a text must have at most 256 bytes in UTF-8"),
        ("full", b"x" * 257, "a text must have at most 256 bytes in UTF-8"),
        ("full", "secret\ud800", "a text must not contain a lone surrogate"),
        ("basic", "v5", "a text must be one of the task's labels"),
    ],
    ids=["characters", "bytes", "surrogate", "label"],
)
def test_invalid_texts_are_refused(name: str, text: str | bytes, message: str) -> None:
    """Neither the message nor its cause contains the text."""
    with pytest.raises(ValueRangeError) as refused:
        _example(name).permanent([text], _secrets(1))

    assert message == str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None or refused.value.__suppress_context__
    assert (1,) == _example("full").permanent(["ä" * 128], _secrets(1)).shape


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (dataclasses.replace(_FULL, report_bytes=9), "for this mechanism it must be 5"),
        (
            dataclasses.replace(_FULL, bits=264, hashes=9, report_bytes=36),
            "hashes is 9; for a filter of 264 bits it must be at most 8",
        ),
    ],
)
def test_invalid_specifications_are_refused(spec: RapporSpec, sentence: str) -> None:
    """The message names the number or the rule that is broken."""
    with pytest.raises(TaskError, match=sentence):
        Rappor.of(spec, [])


def test_only_one_hash_is_a_match_count() -> None:
    """Attacks cover three labels or more, but no filters."""
    filters = Rappor.of(Rappor.specify(bits=16, cohorts=4, f=0.5, p=0.5, q=0.75), [])
    bit = Rappor.of(Rappor.specify(bits=2, f=0.5, p=0.5, q=0.75, encoding="labels"), ["a", "b"])
    found = [mechanism.reduction for mechanism in (_example("basic"), filters, bit)]

    assert ["independent", "none", "none"] == [
        each.third_value for each in found if isinstance(each, MatchCountReduction)
    ]
    more = _example("full")
    assert PureReduction(local_epsilon=more.local_epsilon) == more.reduction


def test_cohorts_change_nothing_for_the_worst_pair() -> None:
    """
    Reports of 2 cohorts and 3 bits have the blanket of the reduction if two texts share no bit.

    U supports each text with probability p* and both with p*². A report is a draw from U with
    probability γ, else from U given that it supports its text.
    """
    spec = Rappor.specify(bits=3, cohorts=2, f=0.5, p=0.25, q=0.75)
    reduction = Rappor.of(spec, []).reduction
    assert isinstance(reduction, MatchCountReduction)
    shown, unset = Rappor.of(spec, []).set_probability, Rappor.of(spec, []).unset_probability
    own = {0: 1, 1: 2}
    for cohort, bits in itertools.product(range(2), itertools.product((0, 1), repeat=3)):
        blanket = 0.5 * np.prod([unset if bit else 1 - unset for bit in bits])
        of_set = [shown if place == own[cohort] else unset for place in range(3)]
        distribution = 0.5 * np.prod(
            [p if bit else 1 - p for bit, p in zip(bits, of_set, strict=True)]
        )
        lift = reduction.signal * reduction.answers if bits[own[cohort]] else 0.0
        assert distribution == pytest.approx(blanket * (reduction.blanket + lift), rel=1e-12)
