import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from common.errors import ValueRangeError
from common.messages.submission import KIND_IN_WORDS, Value
from common.protocols import Kind
from common.task.draft import NumberDraft, TextDraft
from common.task.task import Task
from common.task_digest import TaskDigest
from tests.support.kind_tasks import OF_OTHER_KINDS, OTHER_KINDS, VALUES, kind_task, lasting_task
from tests.support.tasks import published
from user_agent.contribution import Contributor
from user_agent.encoding import encoder_for, lasting_scope

_OF_KIND = {"string": "rappor", "mean": "piecewise", "vector": "multi-hm", "key-value": "priv-kv"}
_EDGES: dict[Kind, Value] = {"string": 64 * "x", "mean": 0.0, "vector": 5 * (1.0,), "key-value": {}}
_SECRET = 918273.5
"""A number that occurs in no rule."""


def _encoded(protocol: str, value: Value, secret: bytes | None = None) -> Any:
    task = kind_task(protocol)
    return encoder_for(task, secret)(value, np.random.default_rng(1))


@pytest.mark.parametrize("protocol", OF_OTHER_KINDS)
def test_every_kind_of_value_goes_into_one_report(protocol: str) -> None:
    """One report a person, of the task's length, also for values at the edge of the range."""
    task = kind_task(protocol)
    device, rng = Contributor(task, TaskDigest(b"d" * 32)), np.random.default_rng(2)
    values = (VALUES[task.kind], _EDGES[task.kind])

    assert {task.envelope_bytes} == {len(device.prepare(one, rng).envelope) for one in values}


@pytest.mark.parametrize("asked", OTHER_KINDS)
@pytest.mark.parametrize("given", ["categorical", *OTHER_KINDS])
def test_a_value_of_another_kind_is_refused(asked: Kind, given: Kind) -> None:
    """The message names both kinds, not the value."""
    if asked == given:
        return
    value = 918273 if given == "categorical" else VALUES[given]
    with pytest.raises(ValueRangeError) as caught:
        _encoded(_OF_KIND[asked], value)

    wanted = (
        f"this task asks for {KIND_IN_WORDS[asked]} (kind {asked}); the value is "
        f"{KIND_IN_WORDS[given]} (kind {given})"
    )
    assert wanted == str(caught.value)


@pytest.mark.parametrize(
    ("text", "item"), [("bus", 1), (" tram\n", 2), ("2", 0), ("1", 1), ("e\u0301t\u00e9", 3)]
)
def test_an_item_goes_by_its_label_or_its_number(text: str, item: int) -> None:
    """Labels come first: item 0 is called "2" here. Accents may be typed in either form."""
    task = replace(published().task, domain_size=4, labels=("2", "bus", "tram", "\u00e9t\u00e9"))

    assert [item] == encoder_for(task, None)(text, np.random.default_rng(1)).tolist()


@pytest.mark.parametrize("text", ["", "plane", "-1", "1.5", "4", "9" * 21, "\u0663"])
def test_a_text_that_names_no_item_is_refused_without_being_repeated(text: str) -> None:
    """The message has only the rule and public numbers; labels of RAPPOR are checked too."""
    basic = kind_task("rappor", labels=("yes", "no", "maybe"), domain_size=3, texts=None)
    with pytest.raises(ValueRangeError, match="must be one of the task's 3 labels"):
        encoder_for(basic, None)("perhaps", np.random.default_rng(1))
    task = replace(published().task, domain_size=4, labels=("car", "bus", "tram", "walk"))

    with pytest.raises(ValueRangeError) as caught:
        encoder_for(task, None)(text, np.random.default_rng(1))

    assert "4 labels" in str(caught.value) or "between 0 and 3" in str(caught.value)
    assert not text.strip() or text not in str(caught.value).replace("4 labels", "")


@pytest.mark.parametrize(
    ("protocol", "value", "rule"),
    [
        ("piecewise", _SECRET, "a number must lie between 0 and 24"),
        ("laplace", -_SECRET, "a number must lie between 0 and 24"),
        ("hybrid-mean", math.inf, "a number must lie between 0 and 24"),
        ("multi-hm", (1.0, 2.0, _SECRET, 1.0, 1.0), "a number must lie between 1 and 5"),
        ("harmony", (1.0, 2.0, math.nan, 1.0, 1.0), "a number must lie between 1 and 5"),
        ("mean-est", (1.0, 2.0, 3.0, 1.0), "a value must have 5 numbers"),
        ("multi-rphm", (), "a value must have 5 numbers"),
        ("priv-kv", {6: 1.0}, "a key must lie between 0 and 5"),
        ("priv-kv", {2: _SECRET}, "a number must lie between 0 and 5"),
        ("priv-kv", {2: math.nan}, "a number must lie between 0 and 5"),
        ("rappor", "x" * 65, "a text may have at most 64 bytes in UTF-8"),
        ("rappor", "e\u0301" * 32 + "e", "a text may have at most 64 bytes in UTF-8"),
        ("rappor", "\ud800", "a text must be valid Unicode"),
    ],
)
def test_what_breaks_a_rule_is_refused_without_being_repeated(
    protocol: str, value: Value, rule: str
) -> None:
    """Neither in the message nor in its cause; the rule has all its digits."""
    with pytest.raises(ValueRangeError) as caught:
        _encoded(protocol, value)
    task = kind_task("piecewise", numbers=NumberDraft(low=0.125, high=1_234_567.0))
    with pytest.raises(ValueRangeError, match=r"^a number must lie between 0\.125 and 1234567$"):
        encoder_for(task, None)(1_234_569.0, np.random.default_rng(1))

    assert rule == str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("task", "secret", "responses"),
    [
        (lasting_task(), b"s" * 32, 1),
        (lasting_task(), None, 8),
        (kind_task("rappor"), b"s" * 32, 8),
        (kind_task("rappor"), None, 8),
    ],
    ids=["asked again", "simulated", "asked once", "asked once, simulated"],
)
def test_a_lasting_response_follows_from_secret_and_text_alone(
    task: Task, secret: bytes | None, responses: int
) -> None:
    """Other tasks and simulated people without a secret have fresh noise each time."""
    assert responses == len({_ohio(task, secret, seed) for seed in range(8)})
    assert _ohio(task, b"t" * 32) != _ohio(task, b"s" * 32, 2)


def _ohio(task: Task, secret: bytes | None, seed: int = 1) -> bytes:
    return _response(task, "Ohio", secret, seed)


def _response(task: Task, text: str, secret: bytes | None = b"s" * 32, seed: int = 1) -> bytes:
    response = encoder_for(task, secret)(text, np.random.default_rng(seed))
    assert isinstance(response, np.ndarray)
    return response.tobytes()


def test_tasks_of_one_question_share_permanent_responses_and_no_others_do() -> None:
    """Permuted labels under the same noise would reveal which bit a text sets."""
    labels = ("yes", "no", "maybe")
    basic = {"labels": labels, "domain_size": 3}
    scope = lasting_scope(lasting_task())
    others = [
        lasting_scope(task)
        for task in (
            lasting_task(population="guests"),
            lasting_task(texts=TextDraft(bits=32, cohorts=8, question="city")),
            lasting_task(texts=TextDraft(bits=32, cohorts=8, question="state", permanent=0.75)),
            lasting_task(texts=TextDraft(bits=16, cohorts=8, question="state")),
            lasting_task(**basic, texts=TextDraft(question="state")),
            lasting_task(**{**basic, "labels": labels[::-1]}, texts=TextDraft(question="state")),
        )
    ]

    assert scope == lasting_scope(lasting_task(delta=1e-7))
    assert len({scope, *others}) == 1 + len(others)


@pytest.mark.parametrize(
    ("typed", "written"), [("e\u0301", "é"), ("\u212a", "K"), ("한글", "한글")]
)
def test_a_text_is_the_same_however_it_is_typed(typed: str, written: str) -> None:
    """Normalised texts have one response; the limit counts normalised bytes."""
    _encoded("rappor", "e\u0301" * 32)
    task = lasting_task()
    assert _response(task, typed) == _response(task, written)
    basic = kind_task("rappor", labels=(written, "no"), texts=None)
    encoder_for(basic, None)(typed, np.random.default_rng(1))
