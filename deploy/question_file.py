"""Many questions to the accountant in one JSON file, for `shuffledp account --batch`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from common.accounting.counts import Binomial, CountLaw, NegativeBinomial, Poisson
from common.errors import AccountingError
from common.guarantee import Guarantee
from deploy.account import MECHANISMS, Question, crowd_of, parse_epsilon, subject_of
from deploy.result_json import number_or_text

_KINDS: Final[Mapping[str, str]] = {"olh": "local-hashing", **{name: name for name in MECHANISMS}}
_WITH_ALPHABET: Final = {"olh", "grr", "local-hashing"}
_LAWS: Final = ("M_binom", "M_negbin", "M_poisson")
_KEYS: Final = {
    *("kind", "n", "k", "eps_l", "coll", "M", "m", "M_shuffler", *_LAWS),
    *("known_dummies", "colluders", "skippers", "eps", "delta"),
}
_LARGEST: Final = 10**300


def answer_file(path: Path, *, comparing: bool = False) -> list[dict[str, Any]]:
    """
    Answer a JSON list of questions, in order; what cannot be answered says so in its place.

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
    try:
        question = _question(fields)
        return answer_fields(question, question.answer(), comparing=comparing)
    except AccountingError as error:
        return {"error": str(error)}


def answer_fields(question: Question, guarantee: Guarantee, *, comparing: bool) -> dict[str, Any]:
    """Give {"epsilon_upper": …} or {"delta_upper": …}, and what it is compared with."""
    if question.delta is None:
        return {"delta_upper": guarantee.delta}
    fields: dict[str, Any] = {"epsilon_upper": number_or_text(guarantee.epsilon)}
    if comparing:
        lower, others = question.comparison()
        fields["epsilon_lower"] = lower
        fields["compare"] = [
            {"bound": name, ("refused" if isinstance(said, str) else "epsilon"): said}
            for name, said in others
        ]
    return fields


def _question(fields: object) -> Question:
    if not isinstance(fields, dict):
        raise AccountingError("a question is an object")
    unknown = sorted(set(fields) - _KEYS)
    if unknown:
        raise AccountingError(f"unknown key: {', '.join(unknown)}")
    kind = fields.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise AccountingError(f"kind must be one of {', '.join(_KINDS)}")
    subject = subject_of(
        _KINDS[kind],
        parse_epsilon(fields.get("eps_l")),
        _whole(fields, "k") if "k" in fields or kind in _WITH_ALPHABET else None,
        _real(fields, "coll"),
    )
    crowd = crowd_of(
        users=_whole(fields, "n"),
        dummies=_whole(fields, "M", 0),
        random_dummies=_law(fields),
        known_dummies=_whole(fields, "known_dummies", 0),
        colluders=_whole(fields, "colluders", 0),
        dummies_per_user=_real(fields, "m") or 0.0,
        skippers=_whole(fields, "skippers", 0),
        shuffler_dummies=_whole(fields, "M_shuffler", 0),
    )
    return Question(
        subject=subject,
        crowd=crowd,
        delta=_real(fields, "delta"),
        central_epsilon=_real(fields, "eps"),
    )


def _law(fields: Mapping[str, Any]) -> CountLaw | None:
    """Read the law of random dummies; at most one is given."""
    given = [key for key in _LAWS if fields.get(key) is not None]
    if not given:
        return None
    if len(given) > 1:
        raise AccountingError(f"{' and '.join(given)} are two laws of random dummies; give one")
    [key] = given
    if key == "M_poisson":
        return Poisson(_real(fields, key) or 0.0)
    pair = fields[key]
    if not (isinstance(pair, list) and len(pair) == 2):  # noqa: PLR2004  # a pair
        raise AccountingError(f"{key} must be a list of two numbers")
    first, second = f"{key}[0]", f"{key}[1]"
    numbers = {first: pair[0], second: pair[1]}
    if key == "M_binom":
        return Binomial(_whole(numbers, first), _real(numbers, second) or 0.0)
    return NegativeBinomial(_real(numbers, first) or 0.0, _real(numbers, second) or 0.0)


def _whole(fields: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = fields.get(key, default)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int:
        raise AccountingError(f"{key} must be a whole number")
    return value


def _real(fields: Mapping[str, Any], key: str) -> float | None:
    value = fields.get(key)
    if value is None:
        return None
    if type(value) not in {int, float} or not abs(value) <= _LARGEST:
        raise AccountingError(f"{key} must be a number of ordinary size")
    return float(value)
