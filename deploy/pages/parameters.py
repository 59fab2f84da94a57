"""Every parameter of a task, in words, for a reader who wants all of them."""

import math
from dataclasses import dataclass

from common.dummy_spec import DummySpec
from common.hpke import fingerprint
from common.mechanism_spec import MechanismSpec
from common.shuffler_spec import KEEP_SUM, ShufflerSpec
from common.suites import suite_named
from common.task import Task
from deploy.pages.figures import count, privacy
from deploy.times import moment


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


def _question(task: Task) -> tuple[Parameter, ...]:
    return (
        _row(
            "population",
            "Who was asked",
            task.population or "not named: its operator says nobody is asked again",
        ),
        _row("domain_size", "Values that can be answered", task.domain_size),
        _row("labels", "Whether the values have names", "yes" if task.labels else "no: numbers"),
        _row("n_min", "Fewer users than this are never released", task.n_min),
        _row("target_size", "The batch closes at this many users", task.target_size),
        _row("deadline", "It closes, or expires below n_min", moment(task.deadline)),
    )


def _answer(task: Task) -> tuple[Parameter, ...]:
    spec: MechanismSpec = task.mechanism
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
    return (
        _row("protocol", "The named composition", task.protocol),
        _row("mechanism.name", "How a value is randomized", spec.name),
        _row("mechanism.buckets", "Possible answers", spec.buckets),
        _row("mechanism.digits", "Digits of a value, for hashing", spec.digits),
        _row("mechanism.true_weight", "Integer weight of the truth", spec.true_weight),
        _row("mechanism.other_weight", "Weight of each other answer", spec.other_weight),
        _row("mechanism.report_bytes", "Bytes of a report, before sealing", spec.report_bytes),
        *law,
        _row("reports_per_user", "Sealed reports of every user", task.reports_per_user),
        _row("refinement", "How the estimate is refined", task.refinement),
    )


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
