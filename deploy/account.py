"""`shuffledp account`: what formula 1 says about numbers that are typed in or read from a file."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self

from common.accounting.amplification import delta_upper, epsilon_upper
from common.accounting.coalitions import FORMULA_1
from common.accounting.crowd import Crowd
from common.errors import AccountingError
from common.guarantee import REPLACE_ONE, Guarantee
from common.mechanisms.reduction import MatchCountReduction
from deploy.result_json import number_or_text

MechanismKind = Literal["grr", "local-hashing"]

_KINDS: Final[Mapping[str, MechanismKind]] = {"grr": "grr", "olh": "local-hashing"}
_KEYS: Final = {"kind", "n", "k", "eps_l", "M", "colluders", "eps", "delta"}
_LARGEST: Final = 10**300
_NOT_YET: Final = {
    "M_binom": "a binomial number of dummies",
    "M_negbin": "a negative binomial number of dummies",
    "known_dummies": "known dummies",
    "coll": "a collision probability of its own",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked: ε at a δ, or δ at an ε."""

    reduction: MatchCountReduction
    crowd: Crowd
    delta: float | None
    central_epsilon: float | None

    @classmethod
    def ask(
        cls,
        *,
        mechanism: str,
        users: int,
        alphabet: int,
        local_epsilon: float,
        dummies: int = 0,
        colluders: int = 0,
        delta: float | None = None,
        central_epsilon: float | None = None,
    ) -> Self:
        """
        Put a question.

        Raises:
            AccountingError: A number breaks a rule, or not exactly one of delta and
                central_epsilon is given.
        """
        if mechanism not in _KINDS.values():
            raise AccountingError(f"the mechanism must be one of {', '.join(_KINDS.values())}")
        if (delta is None) == (central_epsilon is None):
            raise AccountingError("give delta to get epsilon, or central epsilon to get delta")
        return cls(
            reduction=MatchCountReduction.for_epsilon(
                answers=alphabet,
                local_epsilon=local_epsilon,
                hashed=mechanism == "local-hashing",
            ),
            crowd=Crowd(users=users, dummies=dummies, colluders=colluders),
            delta=delta,
            central_epsilon=central_epsilon,
        )

    def answer(self) -> dict[str, float | str]:
        """Give {"epsilon_upper": …} or {"delta_upper": …}; an infinite ε as the text "inf"."""
        if self.delta is not None:
            epsilon = epsilon_upper(self.reduction, self.crowd, self.delta)
            return {"epsilon_upper": number_or_text(epsilon)}
        if self.central_epsilon is None:
            raise AccountingError("nothing was asked")
        return {"delta_upper": delta_upper(self.reduction, self.crowd, self.central_epsilon)}

    def guarantee(self, bound: float) -> Guarantee:
        """State an answer with everything that it rests on."""
        epsilon, delta = bound, self.delta
        if delta is None:
            epsilon, delta = self.central_epsilon or 0.0, bound
        honest = self.crowd.users - self.crowd.colluders
        return Guarantee(
            coalition="analyzer+users" if self.crowd.colluders else "analyzer",
            epsilon=epsilon,
            delta=delta,
            neighbouring=REPLACE_ONE,
            theorem=FORMULA_1,
            assumptions=(
                "the shuffler permutes uniformly and does not collude with the analyzer",
                f"{honest} users are honest, {self.crowd.colluders} others collude",
                f"{self.crowd.dummies} uniform dummies are in the batch",
            ),
        )


def answer_file(path: Path) -> list[dict[str, float | str]]:
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
    return [_answer_entry(question) for question in questions]


def _answer_entry(question: object) -> dict[str, float | str]:
    try:
        return _question(question).answer()
    except AccountingError as error:
        return {"error": str(error)}


def _question(fields: object) -> Question:
    if not isinstance(fields, dict):
        raise AccountingError("a question is an object")
    for key, meaning in _NOT_YET.items():
        if key in fields:
            raise AccountingError(f"{key}: {meaning} is not accounted for yet")
    unknown = sorted(set(fields) - _KEYS)
    if unknown:
        raise AccountingError(f"unknown key: {', '.join(unknown)}")
    kind = fields.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise AccountingError(f"kind must be one of {', '.join(_KINDS)}")
    return Question.ask(
        mechanism=_KINDS[kind],
        users=_whole(fields, "n"),
        alphabet=_whole(fields, "k"),
        local_epsilon=parse_epsilon(fields.get("eps_l")),
        dummies=_whole(fields, "M", 0),
        colluders=_whole(fields, "colluders", 0),
        delta=_real(fields, "delta"),
        central_epsilon=_real(fields, "eps"),
    )


def parse_epsilon(value: Any) -> float:  # noqa: ANN401  # from JSON or a command line
    """
    Read a local ε: a number above 0, or "inf".

    Raises:
        AccountingError: It is neither.
    """
    try:
        epsilon = float(value)
    except (TypeError, ValueError, OverflowError):
        epsilon = math.nan
    if not epsilon > 0:
        raise AccountingError("the local epsilon must be a number above 0, or inf")
    return epsilon


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
    if type(value) not in {int, float} or abs(value) > _LARGEST:
        raise AccountingError(f"{key} must be a number of ordinary size")
    return float(value)
