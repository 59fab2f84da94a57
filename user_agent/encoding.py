"""
Check a person's value and encode it for their task's mechanism. Pure.

Errors state the task's rule and never repeat a value.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from common.errors import ValueRangeError
from common.mechanisms.base import check_value
from common.mechanisms.key_value.pairs import Pairs
from common.mechanisms.numeric.number import Numbers, to_unit
from common.mechanisms.rappor.permanent_response import scope_secret
from common.mechanisms.registry import rappor_of
from common.messages.submission import KIND_IN_WORDS, Value, kind_of
from common.protocols import Kind
from common.task.specs import KeyValueSpec, NumberSpec, RapporSpec, normalised, spec_as
from common.task.task import Task

_SECRET_BYTES: Final = 32
_ITEM_DIGITS: Final = 20
"""Digits of the largest item number on the wire, 2^64 - 1."""

Encoder = Callable[[Value, np.random.Generator], Any]
"""Encodes one value for its mechanism, or raises ValueRangeError if it does not fit the task. Where
there is no secret, permanent noise is drawn from the generator."""


def encoder_for(task: Task, secret: bytes | None) -> Encoder:
    """
    Return the encoder of a task's values. Run by the user agent.

    Lasting noise is derived from the person's `secret`; None, for simulated people, draws fresh
    noise. Other tasks ignore it.

    Raises:
        TaskError: This version does not know the task's mechanism.
    """
    if task.kind == "string":
        return _Texts(task, secret)
    return _WITHOUT_SECRETS[task.kind](task)


def lasting_scope(task: Task) -> bytes:
    """
    Encode the fields of a lasting task that its permanent responses depend on.

    Two tasks share a text's response exactly if they share population, question, filter, permanent
    noise and labels.
    """
    spec = spec_as(task.mechanism, RapporSpec)
    shape = (spec.encoding, spec.bits, spec.hashes, spec.cohorts, spec.permanent_weight)
    named = [task.population, spec.question, *task.labels]
    # As JSON, so that different lists of names have different encodings.
    return b"question " + json.dumps([shape, named]).encode()


class _Items:
    """Encodes an item of the domain: its number, or the text of its label or number."""

    def __init__(self, task: Task) -> None:
        self._domain_size, self._labels = task.domain_size, task.labels

    def __call__(self, value: Value, _rng: np.random.Generator) -> NDArray[np.int64]:
        if isinstance(value, str):
            value = self._item(value)
        if not isinstance(value, int):
            _refuse("categorical", value)
        check_value(value, self._domain_size)  # before numpy: the number may be of any size
        return np.array([value], dtype=np.int64)

    def _item(self, text: str) -> int:
        """Parse an item's label or number. Labels come first, since they may consist of digits."""
        text = normalised(text.strip())
        for item, label in enumerate(self._labels):
            if text == normalised(label):
                return item
        if text.isascii() and text.isdecimal() and len(text) <= _ITEM_DIGITS:
            return int(text)
        labels = f"one of the task's {len(self._labels)} labels or " if self._labels else ""
        raise ValueRangeError(
            f"a value must be {labels}an item's number, from 0 to {self._domain_size - 1}"
        )


class _Texts:
    """Encodes a text, normalised, as its permanent response."""

    def __init__(self, task: Task, secret: bytes | None) -> None:
        self._rappor, self._most = rappor_of(task), spec_as(task.mechanism, RapporSpec).most_bytes
        # A question asked once needs no lasting noise: fresh noise cannot be linked or removed.
        lasting = task.lasting and secret is not None
        self._key = scope_secret(secret or b"", lasting_scope(task)) if lasting else None
        self._labels = frozenset(task.labels)

    def __call__(self, value: Value, rng: np.random.Generator) -> NDArray[np.void]:
        if not isinstance(value, str):
            _refuse("string", value)
        text = normalised(value)
        self._check(text)
        return self._rappor.permanent([text], [self._key or rng.bytes(_SECRET_BYTES)])

    def _check(self, text: str) -> None:
        # Checked here, since the codec's exception would contain the text.
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise ValueRangeError("a text must be valid Unicode")
        if len(text.encode()) > self._most:
            raise ValueRangeError(f"a text may have at most {self._most} bytes in UTF-8")
        if self._labels and text not in self._labels:
            raise ValueRangeError(f"a text must be one of the task's {len(self._labels)} labels")


class _Numbers:
    """Encodes one number, or several."""

    def __init__(self, task: Task) -> None:
        self._kind, self._dimensions = task.kind, task.domain_size
        self._spec = spec_as(task.mechanism, NumberSpec)

    def __call__(self, value: Value, _rng: np.random.Generator) -> Numbers:
        if kind_of(value) != self._kind or not isinstance(value, float | tuple):
            _refuse(self._kind, value)
        numbers = value if isinstance(value, tuple) else (value,)
        if len(numbers) != self._dimensions:
            raise ValueRangeError(f"a value must have {self._dimensions} numbers")
        low, high = self._spec.low, self._spec.high
        _check_range(numbers, low, high)
        return to_unit(np.array([numbers], dtype=np.float64), low, high)


class _KeyValues:
    """Encodes a number for each key that the person owns."""

    def __init__(self, task: Task) -> None:
        self._keys, self._spec = task.domain_size, spec_as(task.mechanism, KeyValueSpec)

    def __call__(self, value: Value, _rng: np.random.Generator) -> Pairs:
        if not isinstance(value, Mapping):
            _refuse("key-value", value)
        if not all(0 <= key < self._keys for key in value):
            raise ValueRangeError(f"a key must lie between 0 and {self._keys - 1}")
        low, high = self._spec.low, self._spec.high
        _check_range(tuple(value.values()), low, high)
        return Pairs.of_person(value, low, high)


_WITHOUT_SECRETS: Final[Mapping[Kind, Callable[[Task], Encoder]]] = {
    "categorical": _Items,
    "mean": _Numbers,
    "vector": _Numbers,
    "key-value": _KeyValues,
}


def _check_range(numbers: tuple[float, ...], low: float, high: float) -> None:
    """Refuse NaN, infinities, and numbers out of range."""
    if not all(math.isfinite(number) and low <= number <= high for number in numbers):
        least, most = (str(end).removesuffix(".0") for end in (low, high))
        raise ValueRangeError(f"a number must lie between {least} and {most}")


def _refuse(kind: Kind, value: Value) -> NoReturn:
    given = kind_of(value)
    raise ValueRangeError(
        f"this task asks for {KIND_IN_WORDS[kind]} (kind {kind}); the value is "
        f"{KIND_IN_WORDS[given]} (kind {given})"
    )
