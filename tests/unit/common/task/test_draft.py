from typing import Any

import pytest

from common.errors import TaskError
from common.task.draft import NumberDraft, OpenDraft, PairDraft
from tests.support.tasks import draft


@pytest.mark.parametrize(
    ("build", "fields", "rule"),
    [
        (draft, {"delta": "1e-6"}, "delta must be a valid number"),
        (draft, {"target_size": True}, "target_size must be a valid integer"),
        (draft, {"labels": ["a", "b"]}, "labels must be a valid tuple"),
        (draft, {"labels": (1, 2)}, "labels must be a valid string"),
        (draft, {"numbers": (0.0, 1.0)}, "numbers must be an instance of NumberDraft"),
        (NumberDraft, {"low": "0"}, "low must be a valid number"),
        (OpenDraft, {"encoding": None}, "encoding must be a valid string"),
        (PairDraft, {"fakes": (None,)}, "fakes must be a valid number"),
    ],
)
def test_a_field_of_a_wrong_type_is_refused_by_name(
    build: Any, fields: dict[str, Any], rule: str
) -> None:
    """Where the draft is built, in Python as from a file; the value is not repeated."""
    with pytest.raises(TaskError, match=f"^{rule}$"):
        build(**fields)
    assert 1 == draft(dummies_per_user=1).dummies_per_user  # a whole number is a number
