"""Many queries to the accountant in one JSON file, for `shuffledp account --batch`."""

import json
from pathlib import Path
from typing import Any

from common.errors import AccountingError
from common.messages.guarantee import Guarantee
from deploy.accountant.query import Question, QuestionFields
from deploy.terminal.json_output import number_or_text


def answer_file(path: Path, *, comparing: bool = False) -> list[dict[str, Any]]:
    """
    Answer a JSON list of questions, in order; a question without an answer has an error instead.

    Raises:
        AccountingError: The file cannot be read, or holds no list.
    """
    try:
        questions = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise AccountingError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise AccountingError(f"{path} is not JSON") from error
    if not isinstance(questions, list):
        raise AccountingError(f"{path} must hold a list of questions")
    return [_answer_entry(question, comparing=comparing) for question in questions]


def _answer_entry(fields: object, *, comparing: bool) -> dict[str, Any]:
    if not isinstance(fields, dict):
        return {"error": "a question is an object"}
    try:
        question = QuestionFields.read(fields).question()
        return answer_fields(question, question.answer(), comparing=comparing)
    except AccountingError as error:
        return {"error": str(error)}


def answer_fields(question: Question, guarantee: Guarantee, *, comparing: bool) -> dict[str, Any]:
    """
    Return {"epsilon_upper": …} or {"delta_upper": …}, and the bounds to compare it with.

    Where nothing can be compared, `compare` is the sentence that says why.
    """
    fields: dict[str, Any] = (
        {"delta_upper": guarantee.delta}
        if question.delta is None
        else {"epsilon_upper": number_or_text(guarantee.epsilon)}
    )
    if not comparing:
        return fields
    try:
        lower, others = question.comparison()
    except AccountingError as error:
        return fields | {"compare": str(error)}
    fields["epsilon_lower"] = lower
    fields["compare"] = [
        {"bound": name, ("refused" if isinstance(said, str) else "epsilon"): said}
        for name, said in others
    ]
    return fields
