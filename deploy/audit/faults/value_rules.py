"""Faults of devices that answer with texts, numbers and pairs, and of what is claimed of them."""

import dataclasses
import math
from contextlib import AbstractContextManager
from typing import Any, Final

import numpy as np

from common.accounting.clones import CloneReduction
from common.crypto.signing import SignedTask
from common.errors import ValueRangeError
from common.mechanisms.base import Reports
from common.mechanisms.key_value.privkv import PrivKv
from common.mechanisms.numeric.coded_number import CodedNumber
from common.mechanisms.numeric.mean_est import MeanEst
from common.mechanisms.numeric.number import Numbers, to_unit
from common.mechanisms.rappor.probabilities import RapporChances
from common.mechanisms.rappor.rappor import Rappor
from common.mechanisms.reduction import MatchCountReduction
from common.messages.value import Value
from common.task.task import Task
from common.task_digest import TaskDigest
from deploy.audit.faults import planting
from deploy.audit.faults.fault import Fault
from user_agent import encoding as layout
from user_agent.contribution import Answer, Contributor
from user_agent.encoding import lasting_scope
from user_agent.policy import Policy, check

_RANGE: Final = layout._check_range  # the rule that is broken
_SECRET_BYTES: Final = 32


def clamped_numbers() -> AbstractContextManager[None]:
    """Plant devices that put what is no number of the range to its nearest end, or its middle."""

    def unit(values: Numbers, low: float, high: float) -> Numbers:
        return np.nan_to_num(to_unit(values, low, high))

    def anything(numbers: tuple[float, ...], low: float, high: float) -> None:
        del numbers, low, high

    return planting.both(
        planting.function(to_unit, unit), planting.attribute(layout, "_check_range", anything)
    )


def repeated_number() -> AbstractContextManager[None]:
    """Plant a device that says which number it refuses."""

    def other(numbers: tuple[float, ...], low: float, high: float) -> None:
        try:
            _RANGE(numbers, low, high)
        except ValueRangeError as error:
            raise ValueRangeError(f"{error}; what came is {numbers}") from None

    return planting.attribute(layout, "_check_range", other)


def chained_text() -> AbstractContextManager[None]:
    """Plant a refusal that carries the text along in the error that it came from."""
    honest = layout._Texts._check

    def other(self: Any, text: str) -> None:
        try:
            honest(self, text)
        except ValueRangeError as error:
            raise error from ValueError(text)

    return planting.attribute(layout._Texts, "_check", other)


def cut_texts() -> AbstractContextManager[None]:
    """Plant devices that cut what is too long."""

    def check(self: Any, text: str) -> None:
        del self, text

    def encoded(self: Rappor, text: str | bytes) -> bytes:
        raw = text.encode(errors="replace") if isinstance(text, str) else text
        return raw[: self.spec.most_bytes]

    return planting.both(
        planting.attribute(layout._Texts, "_check", check),
        planting.attribute(Rappor, "_encoded", encoded),
    )


def noise_for_once() -> AbstractContextManager[None]:
    """Plant permanent responses by a secret that is drawn for each answer."""
    honest = layout._Texts.__call__

    def other(self: Any, value: Value, rng: np.random.Generator) -> Any:
        self._key = rng.bytes(_SECRET_BYTES)
        return honest(self, value, rng)

    return planting.attribute(layout._Texts, "__call__", other)


def cohort_of_the_text() -> AbstractContextManager[None]:
    """Plant cohorts that follow from the text."""
    honest = Rappor._noise_of

    def other(self: Rappor, text: str | bytes, secret: bytes) -> tuple[int, bytes, bytes]:
        _, filled, noise = honest(self, text, secret)
        raw = text.encode() if isinstance(text, str) else text
        return sum(raw) % self.spec.cohorts, filled, noise

    return planting.attribute(Rappor, "_noise_of", other)


def secret_for_all() -> AbstractContextManager[None]:
    """Plant noise that follows from the person's secret where nobody is asked again, too."""
    honest = layout._Texts.__init__

    def other(self: Any, task: Task, secret: bytes | None) -> None:
        honest(self, task, secret)
        self._key = secret

    return planting.attribute(layout._Texts, "__init__", other)


def scope_by_task() -> AbstractContextManager[None]:
    """Plant permanent responses that are drawn anew for each task that names the question."""

    def other(task: Task) -> bytes:
        return task.to_bytes()

    return planting.function(lasting_scope, other)


def scope_by_population() -> AbstractContextManager[None]:
    """Plant permanent noise that questions to one population share."""

    def other(task: Task) -> bytes:
        return task.population.encode()

    return planting.function(lasting_scope, other)


def lasting_unasked() -> AbstractContextManager[None]:
    """Plant devices whose owners seem to have allowed lasting responses."""
    honest = check

    def other(
        signed: SignedTask, digest: TaskDigest, policy: Policy, *rest: Any, **more: Any
    ) -> Task:
        return honest(
            signed, digest, dataclasses.replace(policy, lasting_responses=True), *rest, **more
        )

    return planting.function(honest, other)


def value_in_the_length() -> AbstractContextManager[None]:
    """Plant envelopes that are a byte longer for longer values."""
    honest = Contributor.answer

    def other(self: Contributor, value: Value, rng: np.random.Generator) -> Answer:
        made = honest(self, value, rng)
        more = bytes(len(str(value)) % 2 + 1)
        return dataclasses.replace(made, envelope=made.envelope + more)

    return planting.attribute(Contributor, "answer", other)


def _all_valid(_: Any, reports: Reports) -> Any:
    return np.ones(len(reports), dtype=np.bool_)


def any_code() -> AbstractContextManager[None]:
    """Plant an analyzer that counts codes which no device sends."""
    return planting.attribute(CodedNumber, "valid", _all_valid)


def any_pair() -> AbstractContextManager[None]:
    """Plant one that counts keys that are not there."""
    return planting.attribute(PrivKv, "valid", _all_valid)


def any_bits() -> AbstractContextManager[None]:
    """Plant one that counts bits beyond the last."""
    return planting.attribute(Rappor, "valid", _all_valid)


def clones_of_2023() -> AbstractContextManager[None]:
    """Plant a chance of clones that is not proven for every randomizer."""

    def other(odds: float, ratio: float) -> CloneReduction:
        del ratio
        return CloneReduction.of_2023(math.log(odds))

    return planting.attribute(CloneReduction, "of_2021_with_a_coin", other)


def amplified_question() -> AbstractContextManager[None]:
    """Plant a claim of a shuffler's help for texts whose permanent responses come again."""
    return planting.attribute(Task, "amplified", property(lambda self: self.composition.amplified))


def one_hash_charged() -> AbstractContextManager[None]:
    """Plant a local claim that counts one of a text's bits."""
    honest = RapporChances.report_epsilon

    def other(self: RapporChances, hashes: int) -> float:
        return honest(self, min(hashes, 1))

    return planting.attribute(RapporChances, "report_epsilon", other)


def value_charged_alone() -> AbstractContextManager[None]:
    """Plant a local claim of pairs that leaves their keys out."""
    return planting.attribute(
        PrivKv, "local_epsilon", property(lambda self: self.value.local_epsilon)
    )


def too_much_blanket() -> AbstractContextManager[None]:
    """Plant a vector whose report is taken for a uniform one too often."""
    honest: Any = MeanEst.reduction

    def other(self: MeanEst) -> MatchCountReduction:
        found: MatchCountReduction = honest.fget(self)
        return dataclasses.replace(found, blanket=1.1 * found.blanket)

    return planting.attribute(MeanEst, "reduction", property(other))


VALUE_RULES: Final = (
    Fault(
        name="clamped-numbers",
        says="what is no number of the range is taken for one",
        scenario="kind-devices",
        check="duchi: a value that is no number is refused",
        plant=clamped_numbers,
    ),
    Fault(
        name="repeated-number",
        says="the refusal of a number repeats it",
        scenario="kind-devices",
        check="piecewise: a value that is too large is refused without a word of it",
        plant=repeated_number,
    ),
    Fault(
        name="chained-text",
        says="the refusal of a text carries it along",
        scenario="kind-devices",
        check="rappor of 16 bits: a text that is too long is refused without a word of it",
        plant=chained_text,
    ),
    Fault(
        name="cut-texts",
        says="texts that are too long are cut",
        scenario="kind-devices",
        check="rappor of 16 bits: a text that is too long is refused",
        plant=cut_texts,
    ),
    Fault(
        name="noise-for-once",
        says="permanent responses are drawn anew for each answer",
        scenario="kind-devices",
        check="the same secret and text, the same permanent response",
        plant=noise_for_once,
    ),
    Fault(
        name="cohort-of-the-text",
        says="a person's cohort follows from the text",
        scenario="kind-devices",
        check="a person's cohort, whatever the text",
        plant=cohort_of_the_text,
    ),
    Fault(
        name="secret-for-all",
        says="noise follows from a secret that is kept, where nobody is asked again too",
        scenario="kind-devices",
        check="where nobody is asked again, a response that follows from no secret",
        plant=secret_for_all,
    ),
    Fault(
        name="scope-by-task",
        says="permanent responses to a question are drawn anew for each of its tasks",
        scenario="kind-devices",
        check="the same permanent response to a question in all of its tasks",
        plant=scope_by_task,
    ),
    Fault(
        name="scope-by-population",
        says="permanent noise is the same for all questions to a population",
        scenario="kind-devices",
        check="another question, other permanent noise",
        plant=scope_by_population,
    ),
    Fault(
        name="lasting-unasked",
        says="a device answers tasks that share permanent noise, whatever its owner said",
        scenario="kind-devices",
        check="a device answers no such task unasked",
        plant=lasting_unasked,
    ),
    Fault(
        name="value-in-the-length",
        says="the envelope's length goes with that of the value",
        scenario="kind-devices",
        check="one length of every envelope",
        plant=value_in_the_length,
    ),
    Fault(
        name="any-code",
        says="the analyzer counts codes of numbers that no device sends",
        scenario="kind-devices",
        check="duchi: a code beyond the last is refused",
        plant=any_code,
    ),
    Fault(
        name="any-pair",
        says="the analyzer counts keys that are not there",
        scenario="kind-devices",
        check="priv-kv: a key that is not there is refused",
        plant=any_pair,
    ),
    Fault(
        name="any-bits",
        says="the analyzer counts bits of texts beyond the last",
        scenario="kind-devices",
        check="rappor of 16 bits: a bit beyond the last is refused",
        plant=any_bits,
    ),
    Fault(
        name="clones-of-2023",
        says="clones have a chance that is not proven for every randomizer",
        scenario="kind-claims",
        check="the central claim is no less than by another sum",
        plant=clones_of_2023,
    ),
    Fault(
        name="amplified-question",
        says="permanent responses that come again are taken for fresh ones",
        scenario="kind-claims",
        check="texts that are asked for again claim their local ε",
        plant=amplified_question,
    ),
    Fault(
        name="one-hash-charged",
        says="one bit of a text alone is charged",
        scenario="kind-claims",
        check="rappor of 32 bits: the local ε is no less than its law's odds",
        plant=one_hash_charged,
    ),
    Fault(
        name="value-charged-alone",
        says="of pairs the value alone is charged",
        scenario="kind-claims",
        check="priv-kv: the local ε is no less than its law's odds",
        plant=value_charged_alone,
    ),
    Fault(
        name="too-much-blanket",
        says="more of a vector's report is taken for uniform than is",
        scenario="kind-claims",
        check="mean-est: the blanket of its law",
        plant=too_much_blanket,
    ),
)
