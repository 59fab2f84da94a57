"""
Prepare one person's submission to one task. Pure.

The value is checked, encoded and randomized; dummies and padding are added; the reports are
permuted and sealed. No other code turns a true value into bytes that leave the device, in
production, simulations or tests. Errors state the task's rule and never repeat a value.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.crypto.hpke import HpkePublicKey, Sealer, envelope_context
from shuffledp.common.errors import ValueRangeError
from shuffledp.common.mechanisms.base import Mechanism, Reports, check_value, null_reports
from shuffledp.common.mechanisms.discovery.prefix_hashing import code_of, elements_of
from shuffledp.common.mechanisms.key_value.pairs import Pairs
from shuffledp.common.mechanisms.numeric.number import Numbers, to_unit
from shuffledp.common.mechanisms.rappor.permanent_response import scope_secret
from shuffledp.common.mechanisms.registry import randomizer_of, rappor_of
from shuffledp.common.messages import submission
from shuffledp.common.messages.inclusion_proof import leaf
from shuffledp.common.messages.submission import Value
from shuffledp.common.protocols import Kind
from shuffledp.common.task.domain_spec import GROUP_SEPARATOR, BreakdownSpec, EdgesSpec
from shuffledp.common.task.kinds import KINDS
from shuffledp.common.task.labels import normalize
from shuffledp.common.task.sealing import report_sealer
from shuffledp.common.task.spec_forms import spec_as
from shuffledp.common.task.specs import KeyValueSpec, OpenSpec, RangedSpec, RapporSpec
from shuffledp.common.task.task import SUBMISSION_ID_BYTES, Task
from shuffledp.common.task.view_specs import TableSpec
from shuffledp.common.task_digest import TaskDigest
from shuffledp.user_agent.credentials import SECRET_BYTES


class Encoder(ABC):
    """Encodes one person's values for a task's mechanism. Run by the user agent."""

    @abstractmethod
    def __call__(self, value: Value, rng: np.random.Generator) -> Any:  # noqa: ANN401  # the mechanism's
        """
        Encode a value, or raise ValueRangeError if it does not fit.

        The generator draws the permanent noise if no secret determines it.
        """

    def text_hash(self, value: Value) -> bytes:
        """Return a hash of a lasting answer's text, keyed by its scope's secret; else nothing."""
        return b""


def encoder_for(task: Task, secret: bytes | None) -> Encoder:
    """
    Return the encoder of a task's values. Run by the user agent.

    If the task asks for permanent responses, their noise is derived from the person's `secret`.
    Other tasks ignore the secret; without a secret, as for simulated people, the noise is fresh.

    Raises TaskError if this version does not know the task's mechanism.
    """
    return _ENCODERS[task.kind](task, secret)


class _Items(Encoder):
    """
    Encodes an item of the domain, given as its number or as a text that `parse_item` reads.

    With a breakdown a text names the group first, as in `DE / flu` or, for item 17 of the group's
    own, `DE / #17`; a number is that of an item of all groups. With edges the value is a number to
    be put into a bucket, or its text.
    """

    def __init__(self, task: Task, _secret: bytes | None) -> None:
        self._domain_size, self._labels, self._edges = task.domain_size, task.labels, task.edges
        self._breakdown, self._group_size = task.breakdown, task.domain_size // task.groups

    def __call__(self, value: Value, _rng: np.random.Generator) -> NDArray[np.int64]:
        first, size = 0, self._domain_size
        if isinstance(value, str):
            value = normalize(value)
        if self._breakdown is not None and (self._edges or isinstance(value, str)):
            value, first = self._split_group(str(value), self._breakdown)
            size = self._group_size
        if self._edges is not None:
            value = _bucket(value, self._edges)
        elif isinstance(value, str):
            labels: Sequence[str] = self._labels[first : first + size]
            if self._breakdown:
                labels = [label.partition(GROUP_SEPARATOR)[2] for label in labels]
            value = submission.parse_item(value, submission.label_numbers(labels), size)
        if not isinstance(value, int):
            _refuse("categorical", value)
        check_value(value, size)  # before numpy, which cannot hold every int
        return np.array([first + value], dtype=np.int64)

    def _split_group(self, text: str, breakdown: BreakdownSpec) -> tuple[str, int]:
        """
        Split `group / value`; return the value and the first item of the group.

        The spaces may be left out where only one group fits: of the groups A and A/B, A/B/7 could
        be either.
        """
        groups, head = breakdown.groups, text.partition(GROUP_SEPARATOR)[0].rstrip()
        starts = [name for name in groups if text.startswith(name)]
        fitting = [name for name in starts if text[len(name) :].lstrip().startswith("/")]
        found = [name for name in fitting if name == head] or fitting
        if len(found) != 1:
            most = submission.LISTED_LABELS
            named = [*groups[:most], *("…" for _ in groups[most:][:1])]
            raise ValueRangeError(
                f"a value must begin with one of the {len(groups)} groups of {breakdown.attribute} "
                f"({', '.join(named)}), such as {groups[0]}{GROUP_SEPARATOR}…"
            )
        rest = text[len(found[0]) :].lstrip().removeprefix("/")
        return rest.strip(), groups.index(found[0]) * self._group_size


def _bucket(value: Value, edges: EdgesSpec) -> int:
    rule = "a value must be a number, such as 36.6"
    if isinstance(value, str):
        value = submission.parse_number(value, rule)
    try:
        if isinstance(value, int | float):
            return edges.bucket_of(float(value))
    except OverflowError:
        pass
    raise ValueRangeError(rule)


class _Attributes(Encoder):
    """
    Encodes a value of each attribute, in their order, as in `DE / flu / 37`.

    A part is a label, # and its number, or a number to be put into a bucket. A list of numbers will
    do if all attributes have edges.
    """

    def __init__(self, task: Task, _secret: bytes | None) -> None:
        self._attributes = spec_as(task.mechanism, TableSpec).attributes
        self._labels = [submission.label_numbers(each.labels) for each in self._attributes]

    def __call__(self, value: Value, _rng: np.random.Generator) -> NDArray[np.int64]:
        if not isinstance(value, str) and (not isinstance(value, tuple) or any(self._labels)):
            _refuse("table", value)
        parts: Sequence[str | float] = value
        if isinstance(value, str):
            parts = normalize(value).split(GROUP_SEPARATOR)
        names = GROUP_SEPARATOR.join(each.name for each in self._attributes)
        if len(parts) != len(self._attributes):
            raise ValueRangeError(f"a value must have {len(self._attributes)} parts: {names}")
        found = list[int]()
        for part, attribute, labels in zip(parts, self._attributes, self._labels, strict=True):
            if attribute.edges is not None:
                found.append(_bucket(part, attribute.edges))
            else:
                noun = f"value of {attribute.name}"
                found.append(submission.parse_item(str(part), labels, attribute.size, noun))
                check_value(found[-1], attribute.size)
        return np.array([found], dtype=np.int64)


class _Texts(Encoder):
    """Encodes a text, normalized, as its permanent response."""

    def __init__(self, task: Task, secret: bytes | None) -> None:
        self._rappor, self._most = rappor_of(task), spec_as(task.mechanism, RapporSpec).most_bytes
        # A question asked once gets fresh noise, which cannot be linked or removed.
        derived = task.lasting and secret is not None
        self._key = scope_secret(secret or b"", task.permanent_scope) if derived else None
        self._labels = frozenset(task.labels)

    def text_hash(self, value: Value) -> bytes:
        text = self._text(value)
        return scope_secret(self._key, b"text " + text.encode()) if self._key else b""

    def _text(self, value: Value) -> str:
        if not isinstance(value, str):
            _refuse("string", value)
        text = checked_text(value, self._most)
        if self._labels and text not in self._labels:
            raise ValueRangeError(f"a text must be one of the task's {len(self._labels)} labels")
        return text

    def __call__(self, value: Value, rng: np.random.Generator) -> NDArray[np.void]:
        text = self._text(value)
        return self._rappor.permanent([text], [self._key or rng.bytes(SECRET_BYTES)])


def checked_text(value: str, most: int) -> str:
    """Normalize a text; raise ValueRangeError unless it is valid and has at most `most` bytes."""
    text = normalize(value)
    # Checked first, since the codec's exception would contain the text.
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueRangeError("a text must be valid Unicode")
    if len(text.encode()) > most:
        raise ValueRangeError(f"a text may have at most {most} bytes in UTF-8")
    return text


def open_text(value: str, most: int) -> str:
    """Check and normalize a text that no list holds, as `checked_text` does."""
    text = checked_text(value, most)
    if not text or "\0" in text:
        raise ValueRangeError("a text must not be empty or contain a zero character")
    return text


class _OpenValues(Encoder):
    """Encodes a text or a code that no list holds as elements of the field."""

    def __init__(self, task: Task, _secret: bytes | None) -> None:
        self._spec = spec_as(task.mechanism, OpenSpec)
        self._labels = {label: number for number, label in enumerate(task.labels, start=1)}

    def __call__(self, value: Value, rng: np.random.Generator) -> NDArray[np.int64]:
        spec, size = self._spec, self._spec.code_bytes
        if spec.encoding == "code" and isinstance(value, int):
            value = str(value)
        if not isinstance(value, str):
            _refuse("open", value)
        if spec.encoding == "code":
            most = 256**size - 1
            digits = value.strip()
            short = digits.isascii() and digits.isdecimal() and len(digits) <= len(str(most))
            if not short or int(digits) > most:
                raise ValueRangeError(f"a value must be a whole number from 0 to {most}")
            return elements_of(int(digits).to_bytes(size, "big"), size)
        content = open_text(value, spec.most_value_bytes).encode()
        if spec.encoding == "text":
            return elements_of(content, size)
        code = code_of(content, size)
        if spec.encoding == "hash":
            return elements_of(code, size)
        label = self._labels.get(code.hex(), 0)
        if not label:  # uniform, so that no text gains or loses support
            return rng.integers(0, spec.buckets, size=(1, 1 + spec.most_bytes), dtype=np.int64)
        return elements_of(content, spec.most_bytes, label)


class _Numbers(Encoder):
    """Encodes one number or a vector of numbers, or their text."""

    def __init__(self, task: Task, _secret: bytes | None) -> None:
        self._kind, self._dimensions = task.kind, task.domain_size
        self._spec = spec_as(task.mechanism, RangedSpec)

    def __call__(self, value: Value, _rng: np.random.Generator) -> Numbers:
        if isinstance(value, str) and self._kind == "vector":
            value = submission.parse_numbers(value)
        elif isinstance(value, str):
            value = submission.parse_number(value, "a value must be a number, such as 36.6")
        if submission.kind_of(value) != self._kind or not isinstance(value, float | tuple):
            _refuse(self._kind, value)
        numbers = value if isinstance(value, tuple) else (value,)
        if len(numbers) != self._dimensions:
            raise ValueRangeError(f"a value must have {self._dimensions} numbers")
        low, high = self._spec.low, self._spec.high
        _check_range(numbers, low, high)
        return to_unit(np.array([numbers], dtype=np.float64), low, high)


class _KeyValues(Encoder):
    """Encodes a number for each key that the person owns, or the text of these pairs."""

    def __init__(self, task: Task, _secret: bytes | None) -> None:
        self._keys, self._spec = task.domain_size, spec_as(task.mechanism, KeyValueSpec)
        self._labels = submission.label_numbers(task.labels)

    def __call__(self, value: Value, _rng: np.random.Generator) -> Pairs:
        if isinstance(value, str):
            value = submission.parse_pairs(value, self._labels, self._keys)
        if not isinstance(value, Mapping):
            _refuse("key-value", value)
        if not all(0 <= key < self._keys for key in value):
            raise ValueRangeError(f"a key must lie between 0 and {self._keys - 1}")
        low, high = self._spec.low, self._spec.high
        _check_range(tuple(value.values()), low, high)
        return Pairs.of_person(value, low, high)


_ENCODERS: Final[Mapping[Kind, Callable[[Task, bytes | None], Encoder]]] = {
    "categorical": _Items,
    "ordered": _Items,
    "string": _Texts,
    "open": _OpenValues,
    "mean": _Numbers,
    "vector": _Numbers,
    "key-value": _KeyValues,
    "table": _Attributes,
}


def _check_range(numbers: tuple[float, ...], low: float, high: float) -> None:
    """Raise ValueRangeError for NaN, infinities, and numbers out of range."""
    if not all(math.isfinite(number) and low <= number <= high for number in numbers):
        least, most = (str(end).removesuffix(".0") for end in (low, high))
        raise ValueRangeError(f"a number must lie between {least} and {most}")


def _refuse(kind: Kind, value: Value) -> NoReturn:
    given = submission.kind_of(value)
    raise ValueRangeError(
        f"this task asks for {KINDS[kind].description} (kind {kind}); the value is "
        f"{KINDS[given].description} (kind {given})"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedSubmission:
    """One user's envelope, and the data to check later that the reports were counted."""

    envelope: bytes
    """The bytes to send. A retry must send them unchanged."""
    leaves: tuple[bytes, ...]
    """Hashes of the reports as sent, of layers with two shufflers; see inclusion_proof.py."""
    task: Task


class Contributor:
    """Prepares submissions to one task."""

    def __init__(
        self,
        task: Task,
        digest: TaskDigest,
        secret: bytes | None = None,
        seal_report: Sealer | None = None,
    ) -> None:
        """
        Set up a task's encoder, mechanism and seals. For `secret` see `encoder_for`.

        `seal_report` replaces `report_sealer` for sentinels, whose owner must know what is inside
        the layers; no device does.

        Raises:
            TaskError: This version does not know the task's mechanism.
            WireError: A public key of the task is invalid.
        """
        self._task = task
        self._lengths = task.lengths
        self._mechanism = randomizer_of(task)
        self._encode = encoder_for(task, secret)
        shuffler_key = HpkePublicKey(task.suite, task.shuffler_key)
        self._seal_report = seal_report or report_sealer(task, digest)
        self._seal_envelope = shuffler_key.sealer(envelope_context(digest))

    def text_hash(self, value: Value) -> bytes:
        """
        Return a keyed hash by which the device notices that the text of a lasting answer changes.

        Empty for tasks of other kinds. Raises ValueRangeError as `prepare` does.
        """
        return self._encode.text_hash(value)

    def prepare(self, value: Value, rng: np.random.Generator) -> PreparedSubmission:
        """
        Prepare one user's submission from a value of the task's kind. Run by the user agent.

        Returns:
            The submission. Its number of reports is one of the task's lengths, and is drawn
            independently of the value.

        Raises:
            ValueRangeError: The value does not fit the task; the message does not repeat it.
            WireError: A public key of the task is a point of small order.

        Cost: one seal per report, two with a relay, and one for the envelope, about 0.1 ms each.
        """
        reports = self._mechanism.randomize(self._encode(value, rng), rng)
        if self._task.dummies.maximum:
            _, dummies = self._task.dummies.draw(cast("Mechanism", self._mechanism), 1, rng)
            reports = np.concatenate([reports, dummies]) if len(dummies) else reports
        reports = pad(reports, self._lengths)
        if len(reports) > 1:
            # Permuted before sealing, so that the sealing order does not reveal the true report.
            reports = reports[rng.permutation(len(reports))]
        sealed = [self._seal_report(report.tobytes()) for report in reports]
        return PreparedSubmission(
            envelope=self._seal_envelope(rng.bytes(SUBMISSION_ID_BYTES) + b"".join(sealed)),
            leaves=tuple(map(leaf, sealed)),
            task=self._task,
        )


def pad(reports: Reports, lengths: Sequence[int]) -> Reports:
    """Append null reports up to the next of the lengths; raise ValueError if all are too short."""
    length = next((length for length in lengths if length >= len(reports)), None)
    if length is None:
        raise ValueError(f"there are {len(reports)} reports; a submission has up to {lengths[-1]}")
    if length == len(reports):
        return reports
    return np.concatenate([reports, null_reports(length - len(reports), reports.dtype)])
