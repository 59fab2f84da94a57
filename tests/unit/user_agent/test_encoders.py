"""Values of every kind, encoded as numbers or from texts, or refused without being repeated."""

import math
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

from shuffledp.common.errors import ValueRangeError
from shuffledp.common.messages.submission import Value
from shuffledp.common.protocols import Kind
from shuffledp.common.task.domain_spec import BreakdownSpec, EdgesSpec
from shuffledp.common.task.draft import NumberDraft, TableDraft
from shuffledp.common.task.kinds import KINDS
from shuffledp.user_agent.contribution import encoder_for
from tests.support.changed_tasks import changed
from tests.support.kind_tasks import ATTRIBUTES, OTHER_KINDS, VALUES, kind_task
from tests.support.protocol_tasks import protocol_task
from tests.support.tables import table
from tests.support.tasks import published

_OF_KIND = {
    "string": "rappor",
    "open": "discover",
    "mean": "piecewise",
    "vector": "multi-hm",
    "key-value": "priv-kv",
    "table": "tables",
}
_SECRET = 918273.5
"""A number that occurs in no rule."""
_NO_ILLNESS = "a value of illness must be one of none, flu, cold, or # and a number, from #0 to #2"


_RNG = np.random.default_rng(1)


def _encoded(protocol: str, value: Value) -> Any:
    return encoder_for(kind_task(protocol), None)(value, _RNG)


@table("asked", OTHER_KINDS)
@table("given", ["categorical", "mean", "vector", "key-value"])
def test_a_value_of_another_kind_is_refused(asked: Kind, given: Kind) -> None:
    """The message names both kinds, not the value."""
    if asked == given:
        return
    value = 918273 if given == "categorical" else VALUES[given]
    with pytest.raises(ValueRangeError) as caught:
        _encoded(_OF_KIND[asked], value)

    wanted = (
        f"this task asks for {KINDS[asked].description} (kind {asked}); the value is "
        f"{KINDS[given].description} (kind {given})"
    )
    assert wanted == str(caught.value)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("mean", 7.5, " 7.5\n"),
        ("vector", (1.0, 2.0, 3.0, 4.0, 5.0), "1, 2, 3,4,5e0"),
        ("key-value", {2: 1.0, 5: 0.5}, "2: 1, 5:.5\n"),
        ("key-value", {}, " "),
    ],
)
def test_a_number_or_pairs_may_be_sent_as_text(kind: Kind, value: Value, text: str) -> None:
    """The device knows the kind, and encodes the text as the value; a wrong text is refused."""
    written, typed = _encoded(_OF_KIND[kind], value), _encoded(_OF_KIND[kind], text)
    with pytest.raises(ValueRangeError, match=r"^a value (is|must be) "):
        _encoded(_OF_KIND[kind], f"{_SECRET}?")

    assert repr(written) == repr(typed)


@table(
    ("text", "pairs"),
    [
        ("film A: 3.5, B: 1", {0: 3.5, 1: 1.0}),
        ("C, the sequel:2, #0:1", {2: 2.0, 0: 1.0}),
        ("10:4", {3: 4.0}),
        ("D: 2: 5", {4: 5.0}),
        ("e\u0301:0", {5: 0.0}),
        ("1:4", None),
        ("C, the sequel", None),
        ("film A:1, #0:2", None),
    ],
)
def test_a_key_goes_by_its_label(text: str, pairs: dict[int, float] | None) -> None:
    """Labels may contain commas and colons; a key's number needs a # before it."""
    labels = ("film A", "B", "C, the sequel", "10", "D: 2", "\u00e9")
    encode = encoder_for(kind_task("priv-kv", labels=labels), None)
    if pairs is None:
        with pytest.raises(ValueRangeError, match=r"^a (key|value) "):
            encode(text, np.random.default_rng(1))
        return

    assert repr(encode(pairs, _RNG)) == repr(encode(text, _RNG))


@pytest.mark.parametrize(
    ("text", "item"),
    [("bus", 1), (" tram\n", 2), ("2", 0), ("#2", 2), ("e\u0301t\u00e9", 3), ("#3", 4)],
)
def test_an_item_goes_by_its_label_or_its_number_after_a_sign(text: str, item: int) -> None:
    """Labels come first: items are called "2" and "#3" here. Accents may be typed in any form."""
    labels = ("2", "bus", "tram", "\u00e9t\u00e9", "#3")
    task = changed(published().task, domain_size=5, labels=labels)

    assert [item] == encoder_for(task, None)(text, np.random.default_rng(1)).tolist()


@table("text", ["0", "1", "2", "+10", "10.0", "#3", "##1", "010", "#-1", "# "])
def test_a_number_that_is_no_label_is_refused(text: str) -> None:
    """With the labels 10, 20 and 30, a 2 is no third item."""
    task = changed(published().task, domain_size=3, labels=("10", "20", "30"))
    with pytest.raises(ValueRangeError, match=r"10, 20, 30, or # and a number|between 0 and 2"):
        encoder_for(task, None)(text, np.random.default_rng(1))
    unnamed = encoder_for(replace(task, labels=()), None)

    assert [[2], [2]] == [unnamed(number, _RNG).tolist() for number in ("2", "#2")]


@pytest.mark.parametrize(
    ("value", "numbers"),
    [
        ("flu / 37 / no", [1, 1, 0]),
        ("  cold /  90 / #1\n", [2, 2, 1]),
        ("none / 0 / yes", [0, 0, 1]),
    ],
)
def test_a_value_of_each_attribute_is_given_in_order(value: str, numbers: list[int]) -> None:
    """A label, # and a number, or a number that is put into its bucket."""
    assert [numbers] == _encoded("tables", value).tolist()


def test_numbers_of_attributes_with_edges_may_be_given_as_a_list() -> None:
    """They are put into buckets; a list is refused where an attribute has labels."""
    form = TableDraft(attributes=(ATTRIBUTES[1], replace(ATTRIBUTES[1], name="weight")))
    task = kind_task("tables", tables=form)

    assert [[1, 2]] == encoder_for(task, None)((37.0, 61.5), _RNG).tolist()


_COUNTRIES: Final = BreakdownSpec(attribute="country", groups=("DE", "C\u00f4te"))


def _item(value: Value, **changes: Any) -> list[int]:
    """Encode a value for a task of labels a, b and 2, or of buckets of 10 to 40, in two groups."""
    fields = {"domain_size": 1, "labels": ("a", "b", "2"), "breakdown": _COUNTRIES, **changes}
    task = protocol_task("sh", **fields)
    found: list[int] = encoder_for(task, None)(value, np.random.default_rng(1)).tolist()
    return found


_BUCKETS: Final = {"labels": (), "edges": EdgesSpec(low=10.0, high=40.0, buckets=3, unit="ms")}


@pytest.mark.parametrize(
    ("value", "item"),
    [("DE / a", 0), ("C\u00f4te / b", 4), ("Co\u0302te  /  2\n", 5), ("DE / #0", 0), (4, 4)],
)
def test_a_group_and_a_label_name_an_item(value: Value, item: int) -> None:
    """By the label or, after a #, the number within the group; accents in either form."""
    assert [item] == _item(value)


@pytest.mark.parametrize(
    ("value", "bucket"),
    [
        *(("DE / 10", 0), ("DE/ 12", 0), ("DE/12", 0), (" DE /2e1", 1)),
        *(("C\u00f4te / 39.9", 5), ("Co\u0302te/39.9", 5)),
        *(("DE/x / 12", 6), ("DE/x/12", None), ("DE/x /12", None), ("DEU/12", None), ("/12", None)),
    ],
)
def test_a_group_and_a_number_name_a_bucket(value: str, bucket: int | None) -> None:
    """The spaces may be left out unless two groups fit."""
    groups = BreakdownSpec(attribute="country", groups=("DE", "C\u00f4te", "DE/x"))
    fields = {**_BUCKETS, "breakdown": groups}
    if bucket is None:
        with pytest.raises(ValueRangeError, match=r"begin with one of the 3 groups of country"):
            _item(value, **fields)
        return
    assert [bucket] == _item(value, **fields)


@table(
    ("value", "changes", "rule"),
    [
        ("a", {}, "one of the 2 groups of country (DE, Côte), such as DE / \u2026"),
        (f"FR / {_SECRET}", {}, "one of the 2 groups of country (DE, Côte)"),
        (f"DE / {_SECRET}", {}, "one of a, b, 2, or # and a number, from #0 to #2"),
        ("DE / #3", {}, "between 0 and 2"),
        ("DE / 0", {}, "one of a, b, 2, or # and a number, from #0 to #2"),
        (f"DE / {_SECRET}", _BUCKETS, "a number must lie between 10 and 40 ms"),
        ("DE / nan", _BUCKETS, "a number must be finite"),
        (_SECRET, _BUCKETS, "one of the 2 groups of country (DE, Côte)"),
        (_SECRET, {**_BUCKETS, "breakdown": None}, "a number must lie between 10 and 40 ms"),
        (-math.inf, {**_BUCKETS, "breakdown": None}, "a number must be finite"),
        (f"x{_SECRET}", {**_BUCKETS, "breakdown": None}, "a value must be a number"),
        ("1_5", {**_BUCKETS, "breakdown": None}, "a value must be a number"),
        ("\u0661\u0665", {**_BUCKETS, "breakdown": None}, "a value must be a number"),
        ((1.0, 2.0), {**_BUCKETS, "breakdown": None}, "a value must be a number"),
    ],
)
def test_a_value_outside_its_group_or_buckets_is_refused(
    value: Value, changes: dict[str, Any], rule: str
) -> None:
    """The message states the rule, and never the value."""
    with pytest.raises(ValueRangeError) as refused:
        _item(value, **changes)

    assert rule in str(refused.value)
    assert str(_SECRET) not in str(refused.value)


def test_a_device_may_clip_numbers() -> None:
    """Those outside the edges count in the nearest bucket."""
    edges = EdgesSpec(low=10.0, high=40.0, buckets=3, outside="clip")
    clipping = {"labels": (), "edges": edges, "breakdown": None}

    assert [[0], [2], [1]] == [_item(number, **clipping) for number in (-5.0, 99.0, 20.0)]


@pytest.mark.parametrize("text", ["", "plane", "-1", "1.5", "4", "9" * 21, "\u0663"])
def test_a_text_that_names_no_item_is_refused_without_being_repeated(text: str) -> None:
    """The message has only the rule and public numbers; labels of RAPPOR are checked too."""
    basic = kind_task("rappor", labels=("yes", "no", "maybe"), domain_size=3, texts=None)
    with pytest.raises(ValueRangeError, match="must be one of the task's 3 labels"):
        encoder_for(basic, None)("perhaps", np.random.default_rng(1))
    task = changed(published().task, domain_size=4, labels=("car", "bus", "tram", "walk"))

    with pytest.raises(ValueRangeError) as caught:
        encoder_for(task, None)(text, np.random.default_rng(1))

    message = str(caught.value)
    assert "one of car, bus, tram, walk, or" in message
    assert not text.strip() or text not in message
    many = changed(task, domain_size=21, labels=tuple(f"line {item}" for item in range(21)))
    with pytest.raises(ValueRangeError, match="must be one of the task's 21 labels, or # and"):
        encoder_for(many, None)("perhaps", np.random.default_rng(1))


@table(
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
        ("tables", "flu / 37", "a value must have 3 parts: illness / age / smokes"),
        ("tables", f"flu / {_SECRET} / no", "a number must lie between 0 and 90 years"),
        ("tables", "918273 / 37 / no", _NO_ILLNESS),
        ("tables", "#3 / 37 / no", "a value must lie between 0 and 2"),
    ],
)
def test_what_breaks_a_rule_is_refused_without_being_repeated(
    protocol: str, value: Value, rule: str
) -> None:
    """Neither message nor cause has the value; the rule has all its digits."""
    with pytest.raises(ValueRangeError) as caught:
        _encoded(protocol, value)
    task = kind_task("piecewise", numbers=NumberDraft(low=0.125, high=1_234_567.0))
    with pytest.raises(ValueRangeError, match=r"^a number must lie between 0\.125 and 1234567$"):
        encoder_for(task, None)(1_234_569.0, np.random.default_rng(1))

    assert rule == str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
