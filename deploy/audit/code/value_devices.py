"""What devices send for texts, numbers and pairs: one report of one length, and no word of it."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from common.crypto.hpke import HpkePrivateKey, envelope_context, report_context
from common.crypto.signing import SigningIdentity
from common.errors import PolicyError, ValueRangeError, WireError
from common.errors import WireError as SealError
from common.mechanisms.base import Reports, null_reports
from common.mechanisms.registry import randomizer_of
from common.messages.submission import unpack
from common.messages.value import Value
from common.task.specs import KeyValueSpec, NumberSpec, RapporSpec, spec_as
from common.task.task import Task
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.code.value_reports import DIGEST, draw, name_of
from deploy.audit.finding import Outcome
from deploy.audit.laws.kind_panel import asked_again, asked_once, kind_panel
from deploy.audit.laws.kind_values import usual_values, worst_values
from user_agent.contribution import Contributor
from user_agent.encoding import lasting_scope, layout_of
from user_agent.policy import Policy, check

_SECRET: Final = bytes(range(32))
_SECRETS: Final = 24
"""Of people whose permanent responses are compared: that all are alike is no chance."""
_OUTSIDE: Final = 987654.25
_NO_KEY: Final = 91827
_LONG: Final = "verschwiegen"
"""Parts of values that no message may have."""
_TELLING: Final = ("987654", "91827", _LONG, "nan", "inf")


def play_value_devices(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Make answers of every small task, and of the audited one, and try to make some that are not.

    Nothing is tested here that could fail by chance.
    """
    checks = Checks()
    own = (audited.task,) if audited.task.kind != "categorical" else ()
    for task in (*own, *kind_panel()):
        _check_answers(checks, task, rng)
        _check_refused(checks, task, rng)
        _check_reports(checks, task, rng)
        if task.kind == "string":
            _check_permanent(checks, task)
    finding = checks.finding(
        scenario="kind-devices",
        title="Devices answer with texts, numbers and pairs as they should",
        heading="correctness",
        sentence="Everybody sends one report, of one length whatever the value. What a task does "
        "not ask for is refused without a word of it, by devices and by the analyzer. A permanent "
        "response follows from the person's secret and the text alone, and within its scope only.",
        advice="Do not collect with this version: devices give away more than they say, or what "
        "they send is not what was asked.",
    )
    return Outcome(findings=(finding,))


def _check_answers(checks: Checks, task: Task, rng: np.random.Generator) -> None:
    """Everybody's envelope has one length, and holds one report that a mechanism can make."""
    analyzer, shuffler = (HpkePrivateKey.generate(task.suite) for _ in range(2))
    keyed = dataclasses.replace(
        task, analyzer_key=analyzer.public_key().raw, shuffler_key=shuffler.public_key().raw
    )
    contributor, randomizer = Contributor(keyed, DIGEST, _SECRET), randomizer_of(task)
    values = [*usual_values(task), *(value for pair in worst_values(task) for value in pair)]
    for value in values:
        envelope = contributor.prepare(value, rng)
        checks.must("one length of every envelope", len(envelope) == task.envelope_bytes)
        try:
            sealed = unpack(shuffler.open(envelope, envelope_context(DIGEST)), keyed).sealed_reports
            plain = analyzer.open(sealed, report_context(DIGEST))
        except (SealError, WireError):
            checks.must("one report of everybody", False)  # noqa: FBT003  # a fact
            continue
        checks.must("one report of everybody", len(plain) == task.mechanism.report_bytes)
        [valid] = randomizer.valid(np.frombuffer(plain, dtype=randomizer.report_dtype))
        checks.must("reports that their mechanism makes", bool(valid))


def _check_refused(checks: Checks, task: Task, rng: np.random.Generator) -> None:
    """What is none of the task's values is refused, by its rule alone."""
    lay_out, name = layout_of(task, _SECRET), name_of(task)
    for what, value in _unwanted(task):
        try:
            lay_out(value, rng)
        except ValueRangeError as error:
            words = " ".join(_said(error)).lower()
            checks.must(
                f"{name}: {what} is refused without a word of it",
                not any(part in words for part in _TELLING),
            )
        except Exception:  # noqa: BLE001  # that it is another is what is found
            checks.must(f"{name}: {what} is refused for being no value", False)  # noqa: FBT003  # a fact
        else:
            checks.must(f"{name}: {what} is refused", False)  # noqa: FBT003  # a fact


def _said(error: BaseException | None) -> Iterator[str]:
    """Give what an error says, and those that it came from."""
    while error is not None:
        yield str(error)
        error = error.__cause__ or error.__context__


def _unwanted(task: Task) -> Iterator[tuple[str, Any]]:
    """Give values that the task does not ask for."""
    usual = usual_values(task)[0]
    kinds: tuple[Value, ...] = (7, "text", 0.5, (0.5,) * 9, {0: 0.5})
    for value in kinds:
        if type(value) is not type(usual):
            yield "another kind of value", value
    odd = {"too large": _OUTSIDE, "too small": -_OUTSIDE, "no number": math.nan, "inf": math.inf}
    if task.kind == "string":
        most = spec_as(task.mechanism, RapporSpec).most_bytes
        yield "a text that is too long", _LONG * (most // len(_LONG) + 1)
        yield "half of a surrogate pair", _LONG[:10] + "\ud800"
        if task.labels:
            yield "a text that is no label", _LONG
        return
    if task.kind == "key-value":
        low = spec_as(task.mechanism, KeyValueSpec).low
        yield "a key that is not there", {_NO_KEY: low}
        yield "a key below 0", {-_NO_KEY: low}
        for what, number in odd.items():
            yield f"a value that is {what}", {0: number}
        return
    low = spec_as(task.mechanism, NumberSpec).low
    rest = (low,) * (task.domain_size - 1)
    for what, number in odd.items():
        yield f"a value that is {what}", (number, *rest) if task.kind == "vector" else number
    if task.kind == "vector":
        yield "a number too few", rest
        yield "a number too many", (low, low, *rest)


def _check_reports(checks: Checks, task: Task, rng: np.random.Generator) -> None:
    """Reports that no device makes are refused when they are opened."""
    randomizer, name = randomizer_of(task), name_of(task)
    report = draw(task, usual_values(task)[0], 1, rng)
    checks.must(f"{name}: an honest report counts", bool(randomizer.valid(report).all()))
    checks.must(
        f"{name}: padding is no report",
        not randomizer.valid(null_reports(1, randomizer.report_dtype)).any(),
    )
    for what, made in _never_made(task, report):
        checks.must(f"{name}: {what} is refused", not randomizer.valid(made).any())


def _never_made(task: Task, report: Reports) -> Iterator[tuple[str, Reports]]:
    """Change one thing of a report, so that no device makes it."""

    def changed(field: str, value: Any, place: int | None = None) -> Reports:  # noqa: ANN401
        made = report.copy()
        if place is None:
            made[field] = value
        else:
            made[field][:, place] = value
        return made

    spec = task.mechanism
    if isinstance(spec, RapporSpec):
        yield "a cohort that is not there", changed("cohort", spec.cohorts)
        yield "a bit beyond the last", changed("bits", 1 << spec.bits % 8, -1)
    elif isinstance(spec, KeyValueSpec):
        yield "a key that is not there", changed("key", task.domain_size)
        yield "what is not said of keys", changed("said", 3)
    elif spec.name == "mean-est":
        yield "a bit beyond the last", changed("bits", 1 << task.domain_size % 8, -1)
    elif spec.name == "laplace":
        yield "a place beyond the last", changed("place", spec.steps + 1 + 128 * spec.scale)
    elif isinstance(spec, NumberSpec):
        places = spec.steps + 1 + 2 * spec.reach if spec.steps else 0
        codes = places + 2 * (spec.name != "piecewise")
        if "code" in (report.dtype.names or ()):
            yield "a code beyond the last", changed("code", codes)
            return
        size = spec.projected or task.domain_size
        yield "a code beyond the last", changed("codes", codes, 0)
        yield "a coordinate that is not there", changed("coordinates", size, -1)
        if spec.sampled > 1:
            yield "a coordinate told twice", changed("coordinates", 0)


def _check_permanent(checks: Checks, task: Task) -> None:
    """A permanent response follows from the secret, the text and its scope, and nothing else."""
    one, other = (str(text) for text in worst_values(task)[0])
    once, again = asked_once(task), asked_again(task)
    secrets = [bytes([number]) * 32 for number in range(1, _SECRETS + 1)]

    def responses(of: Task, text: str, seed: int = 1) -> list[bytes]:
        return [
            layout_of(of, secret)(text, np.random.default_rng(seed)).tobytes() for secret in secrets
        ]

    first = responses(again, one)
    checks.must(
        "the same secret and text, the same permanent response", first == responses(again, one, 2)
    )
    checks.must("another secret, another permanent response", len(set(first)) > 1)
    checks.must(
        "where nobody is asked again, a response that follows from no secret",
        responses(once, one) != responses(once, one, 2),
    )
    checks.must(
        "the same permanent response to a question in all of its tasks",
        first == responses(dataclasses.replace(again, deadline=again.deadline + 1), one),
    )
    for what, other_task in _others(task).items():
        checks.must(
            f"another {what}, other permanent noise",
            lasting_scope(again) != lasting_scope(other_task),
        )
    checks.must("a device answers no such task unasked", not _answers(again, lasting=False))
    checks.must("and does if its owner says so", _answers(again, lasting=True))
    # The cohort is the first field of a response: two bytes.
    cohorts = [response[:2] for response in first]
    of_other = [response[:2] for response in responses(again, other)]
    checks.must("a person's cohort, whatever the text", cohorts == of_other)
    several = spec_as(task.mechanism, RapporSpec).cohorts > 1
    checks.must("people of several cohorts", (len(set(cohorts)) > 1) == several)


def _others(task: Task) -> dict[str, Task]:
    """Give tasks that must not share permanent noise with `asked_again`'s, by what they change."""
    spec, again = spec_as(task.mechanism, RapporSpec), asked_again(task)
    filters = dataclasses.replace(
        spec_as(again.mechanism, RapporSpec), permanent_weight=spec.permanent_weight + 1
    )
    others = {
        "question": asked_again(task, question="what it was"),
        "population": asked_again(task, population="some of them"),
        "filter": dataclasses.replace(again, mechanism=filters),
    }
    if task.labels:
        others["order of labels"] = dataclasses.replace(again, labels=task.labels[::-1])
    return others


def _answers(task: Task, *, lasting: bool) -> bool:
    """Say whether a device without caps answers a task, by what its owner says of lasting noise."""
    identity = SigningIdentity.generate()
    signed = identity.sign(task.to_bytes())
    policy = Policy(
        identity=identity.public_identity(),
        local_epsilon_cap=math.inf,
        lasting_responses=lasting,
    )
    try:
        check(signed, signed.digest(), policy, 0.0, claim_confirmed=True)
    except PolicyError:
        return False
    return True
