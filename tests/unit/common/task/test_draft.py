import json
from typing import Any

import pytest

from shuffledp.common.errors import TaskError
from shuffledp.common.task.canonical import encode, from_json
from shuffledp.common.task.draft import TaskDraft
from tests.support.tables import table
from tests.support.tasks import draft


@table(
    ("fields", "rule"),
    [
        ({"delta": "1e-6"}, "delta must be a number"),
        ({"delta": 10**400}, "delta must be within 64 bits"),
        ({"target_size": True}, "target_size must be a whole number"),
        ({"deadline": -1}, "deadline is -1; it must lie between 0 and 1099511627776"),
        ({"labels": {"a": 1}}, "labels must be a list"),
        ({"labels": ["a", 2]}, r"labels\[1\] must be a text"),
        ({"numbers": [0.0, 1.0]}, "numbers must be a table"),
        ({"numbers": {"low": "0"}}, "numbers.low must be a number"),
        ({"numbers": {"lov": 0.0}}, r"unknown key of numbers: lov; did you mean low\?"),
        ({"numbers": None}, "numbers must be a table"),
        ({"open": {"encoding": None}}, "open.encoding must be a text"),
        ({"pairs": {"fakes": [None]}}, r"pairs.fakes\[0\] must be a number"),
        ({"texts": {"bits": -1}}, "texts.bits is -1; it must lie between 0 and 16777216"),
        ({"edges": {"low": 2.0, "buckets": 3}}, "edges: low is 2.0 and high 0.0; low must be .*"),
        ({"shuffler": {"keep_weight": "½"}}, "shuffler.keep_weight must be a whole number"),
        ({"shuffler_key": "key"}, "shuffler_key must be hexadecimal digits"),
        ({"distribution": "fixed"}, "unknown key: distribution"),
        ({"domain_syze": 4}, r"unknown key: domain_syze; did you mean domain_size\?"),
        ({"dummies": {"per_user": 1}}, "distribution of dummies must be one of: fixed, .*"),
        ({"dummies": {"distribution": ["fixed"]}}, "distribution of dummies must be one of: .*"),
    ],
)
def test_a_field_that_breaks_its_rule_is_refused_by_name(fields: dict[str, Any], rule: str) -> None:
    """From a file as over the wire; a value of a wrong type is not repeated."""
    with pytest.raises(TaskError, match=f"^{rule}$"):
        from_json(TaskDraft, json.loads(encode("draft", draft())) | fields)
    assert 1 == draft(dummies_per_user=1).dummies_per_user  # a whole number is a number
