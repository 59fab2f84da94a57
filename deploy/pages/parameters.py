"""Every parameter of a task, in words, for a reader who wants all of them."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from common.crypto.hpke import fingerprint
from common.crypto.suites import suite_named
from common.protocols import Kind
from common.task.dummy_spec import DummySpec
from common.task.shuffler_spec import KEEP_SUM, ShufflerSpec
from common.task.specs import AnySpec
from common.task.task import Task
from deploy.pages.figures import count, privacy
from deploy.terminal.durations import moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One row: the field's name, what it is, and its value."""

    name: str
    meaning: str
    value: str


Group = tuple[str, tuple[Parameter, ...]]


def parameter_groups(task: Task) -> tuple[Group, ...]:
    """Give all fields of a task, in groups with a heading."""
    return (
        ("What was asked, and of whom", _question(task)),
        ("How a device answers", _answer(task)),
        ("What the shuffler does besides permuting", _shuffler(task.shuffler)),
        ("What was promised before anybody answered", _claims(task)),
        ("Encryption", _encryption(task)),
    )


def _row(name: str, meaning: str, value: object) -> Parameter:
    shown = count(value) if isinstance(value, int) else str(value)
    if isinstance(value, float):
        shown = shown.removesuffix(".0")
    return Parameter(name=name, meaning=meaning, value=shown)


_COUNTED: Final[Mapping[Kind, tuple[str, str]]] = MappingProxyType(
    {
        "categorical": ("Values that can be answered", "values"),
        "string": ("Texts that can be answered", "texts"),
        "mean": ("Numbers of each person", "numbers"),
        "vector": ("Numbers of each person", "numbers"),
        "key-value": ("Keys that each person may own", "keys"),
    }
)
"""What the domain's size counts, and what has labels."""


def _values(task: Task) -> list[Parameter]:
    """Say of how many values there are; nothing where any text is one."""
    if task.kind == "string" and not task.labels:
        return []
    meaning, named = _COUNTED[task.kind]
    return [
        _row("domain_size", meaning, task.domain_size),
        _row("labels", f"Whether the {named} have names", "yes" if task.labels else "no: numbers"),
    ]


def _question(task: Task) -> tuple[Parameter, ...]:
    return (
        _row(
            "population",
            "Who was asked",
            task.population or "not named: its operator says nobody is asked again",
        ),
        *_values(task),
        _row("n_min", "Fewer users than this are never released", task.n_min),
        _row("target_size", "The batch closes at this many users", task.target_size),
        _row("deadline", "It closes, or expires below n_min", moment(task.deadline)),
    )


def _answer(task: Task) -> tuple[Parameter, ...]:
    dummies: DummySpec = task.dummies
    law = [
        _row("dummies.law", "Law of the number of dummies", dummies.law),
        _row("dummies.per_user", "Dummies that each user adds for certain", dummies.per_user),
    ]
    if dummies.law != "fixed":
        law += [
            _row("dummies.trials", "Chances of more", dummies.trials),
            _row(
                "dummies.extra_weight",
                "Each of these chances, of 4,294,967,296",
                f"{count(dummies.extra_weight)} ({dummies.extra_chance:.4g})",
            ),
            _row("dummies.most", "Most dummies beyond those", dummies.most),
        ]
    refined = []
    if task.kind == "categorical":
        refined = [_row("refinement", "How the estimate is refined", task.refinement)]
    return (
        _row("protocol", "The named composition", task.protocol),
        *_mechanism(task.mechanism),
        *law,
        _row("reports_per_user", "Sealed reports of every user", task.reports_per_user),
        *refined,
    )


_MEANINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "name": "How a value is randomized",
        "report_bytes": "Bytes of a report, before sealing",
        "buckets": "Possible answers",
        "digits": "Digits of a value, for hashing",
        "true_weight": "Integer weight of the truth",
        "other_weight": "Weight of each other answer",
        "low": "Least number of the range",
        "high": "Largest number of the range",
        "steps": "Steps of the grid that numbers are moved to",
        "scale": "Scale of Laplace noise, in steps",
        "reach": "Reach of the piecewise mechanism, in steps to either side",
        "piecewise_weight": "How often it is the piecewise mechanism, of 4,294,967,296",
        "sampled": "Numbers that a report tells of",
        "projected": "Dimensions that a vector is projected to; 0 for none",
        "encoding": "Which bits a text sets",
        "bits": "Bits of a filter",
        "hashes": "Bits that a text sets",
        "cohorts": "Cohorts, each with hashes of its own",
        "permanent_weight": "How often a bit is replaced by chance, of 128",
        "unset_weight": "How often an unset bit is shown as set, of 65,536",
        "set_weight": "How often a set bit is shown as set, of 65,536",
        "most_bytes": "Longest text, in bytes",
        "question": "What replaced bits are kept for, over tasks; nothing: for this answer alone",
        "key_true_weight": "Weight of the truth about a key",
        "key_other_weight": "Weight of the opposite",
        "value_true_weight": "Weight of the truth about a value's sign",
        "value_other_weight": "Weight of the opposite",
        "fakes": "Values that stand for keys that are not owned",
    }
)


def _mechanism(spec: AnySpec) -> list[Parameter]:
    """Give every number of a mechanism, whatever its kind, under what it means."""
    return [
        _row(f"mechanism.{field.name}", _MEANINGS[field.name], _shown(getattr(spec, field.name)))
        for field in dataclasses.fields(spec)
    ]


def _shown(value: object) -> object:
    return f"{len(value)} of them" if isinstance(value, tuple) else value


def _shuffler(spec: ShufflerSpec) -> tuple[Parameter, ...]:
    rows = [_row("shuffler.law", "Law of the dummies that it adds for each value", spec.law)]
    if spec.kept < 1:
        rows.append(
            _row(
                "shuffler.keep_weight",
                f"Chance that it keeps a report, of {count(KEEP_SUM)}",
                f"{count(spec.keep_weight)} ({spec.kept:.4g})",
            )
        )
    if spec.law == "binomial":
        rows.append(_row("shuffler.trials", "Fair coins for each value", spec.trials))
    if spec.law == "geometric":
        rows += [
            _row("shuffler.peak", "Most likely number of dummies of a value", spec.peak),
            _row("shuffler.left_weight", "Weight below it, of 2³⁰", spec.left_weight),
            _row("shuffler.right_weight", "Weight above it, of 2³⁰", spec.right_weight),
        ]
    if spec.law != "none":
        rows.append(_row("shuffler.most", "Most dummies of one value", spec.most))
    return tuple(rows)


def _claims(task: Task) -> tuple[Parameter, ...]:
    local = "infinite: no local noise" if math.isinf(task.local_epsilon) else task.local_epsilon
    return (
        _row("central_epsilon", "Against the analyzer, at n_min users", task.central_epsilon),
        _row("delta", "At this δ", privacy(task.delta)),
        _row("local_epsilon", "If nobody else is honest", local),
        _row(
            "assumed_honest_fraction",
            "Share of users that the promise relies on",
            task.assumed_honest_fraction,
        ),
        _row(
            "budget_epsilon",
            "The most that all releases to this population may cost together",
            task.budget_epsilon,
        ),
        _row("budget_delta", "At this δ", privacy(task.budget_delta)),
    )


def _encryption(task: Task) -> tuple[Parameter, ...]:
    overhead = suite_named(task.suite).overhead_bytes
    return (
        _row("suite", "Key exchange and cipher of both layers", task.suite),
        _row(
            "sealed_report_bytes",
            f"Bytes of a sealed report, {overhead} more",
            task.sealed_report_bytes,
        ),
        _row("envelope_bytes", "Bytes of one submission", task.envelope_bytes),
        _row(
            "analyzer_key", "Fingerprint of the key of the analyzer", fingerprint(task.analyzer_key)
        ),
        _row(
            "shuffler_key", "Fingerprint of the key of the shuffler", fingerprint(task.shuffler_key)
        ),
        _row("nonce", "Random number of the task", task.nonce.hex()),
    )
