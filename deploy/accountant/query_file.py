"""Many questions to the accountant in one JSON file, for `shuffledp account --batch`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from common.accounting.count_distributions import (
    Binomial,
    CountLaw,
    Groups,
    NegativeBinomial,
    Poisson,
)
from common.errors import AccountingError
from common.messages.guarantee import Guarantee
from deploy.accountant.query import (
    MECHANISMS,
    WITH_ALPHABET,
    Question,
    Rappor,
    crowd_of,
    parse_epsilon,
    subject_of,
)
from deploy.terminal.json_output import number_or_text

_KINDS: Final[Mapping[str, str]] = {"olh": "local-hashing", **{name: name for name in MECHANISMS}}
_LAWS: Final = ("M_binom", "M_negbin", "M_poisson", "M_groups")
_KEYS: Final = {
    *("kind", "n", "k", "eps_l", "coll", "rappor", "M", "m", "M_shuffler", *_LAWS),
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
    """
    Give {"epsilon_upper": …} or {"delta_upper": …}, and what it is compared with.

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


def _question(fields: object) -> Question:
    if not isinstance(fields, dict):
        raise AccountingError("a question is an object")
    unknown = sorted(set(fields) - _KEYS)
    if unknown:
        raise AccountingError(f"unknown key: {', '.join(unknown)}")
    kind = fields.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise AccountingError(f"kind must be one of {', '.join(_KINDS)}")
    alphabet = _whole(fields, "k") if "k" in fields or _KINDS[kind] in WITH_ALPHABET else None
    epsilon = None if kind == "rappor" else parse_epsilon(fields.get("eps_l"))
    subject = subject_of(_KINDS[kind], epsilon, alphabet, _real(fields, "coll"), _rappor_of(fields))
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


def _rappor_of(fields: Mapping[str, Any]) -> Rappor | None:
    if fields.get("rappor") is None:
        return None
    numbers = _numbered(fields, "rappor", 4)
    f, p, q, hashes = numbers
    return Rappor(
        f=_number(numbers, f),
        p=_number(numbers, p),
        q=_number(numbers, q),
        hashes=_whole(numbers, hashes),
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
        return Poisson(_number(fields, key))
    numbers = _numbered(fields, key, 3 if key == "M_groups" else 2)
    names = list(numbers)
    if key == "M_groups":
        size, trials, chance = names
        law = Binomial(_whole(numbers, trials), _number(numbers, chance))
        return Groups(law, _whole(numbers, size))
    first, second = names
    if key == "M_binom":
        return Binomial(_whole(numbers, first), _number(numbers, second))
    return NegativeBinomial(_number(numbers, first), _number(numbers, second))


def _numbered(fields: Mapping[str, Any], key: str, length: int) -> dict[str, Any]:
    """Name the members of a list by their places, so that a complaint can."""
    members = fields[key]
    if not (isinstance(members, list) and len(members) == length):
        raise AccountingError(f"{key} must be a list of {length} numbers")
    return {f"{key}[{place}]": member for place, member in enumerate(members)}


def _number(fields: Mapping[str, Any], key: str) -> float:
    value = _real(fields, key)
    if value is None:
        raise AccountingError(f"{key} must be a number of ordinary size")
    return value


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
