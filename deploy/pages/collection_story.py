"""How values were collected, told in a few sentences to who has never heard of it."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from common.protocols import MechanismName, Refinement, protocol_named
from common.result import Result
from common.task import Task

_NOISY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "grr": "reported its value, or by chance another one (randomized response)",
        "warner": "reported its answer, or by chance the opposite (randomized response by Warner)",
        "symmetric-unary": "reported a bit for every value, each flipped by chance (symmetric "
        "unary encoding)",
        "optimized-unary": "reported a bit for every value, each flipped by chance (optimized "
        "unary encoding)",
        "local-hashing": "put its value into one of {buckets} buckets by a random function, and "
        "reported the bucket, or by chance another one (local hashing)",
        "string-hashing": "put its value into one of {buckets} buckets by a random function, and "
        "reported the bucket, or by chance another one (local hashing of names)",
        "square-wave": "reported a place on the line of values, most likely near its own (square "
        "wave)",
    }
)
_NOISELESS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "grr": "reported its true value",
        "local-hashing": "put its value into one of {buckets} buckets by a random function, and "
        "reported the bucket (local hashing without noise)",
    }
)
_REFINEMENTS: Final[Mapping[Refinement, str]] = MappingProxyType(
    {
        "em": "the likeliest distribution, by expectation maximisation",
        "ems": "a likely and smooth distribution, by expectation maximisation with smoothing",
        "norm-sub": "the nearest distribution (Norm-Sub: a constant is taken off every share, and "
        "what falls below 0 is set to 0)",
    }
)


def story(result: Result, task: Task | None) -> str:
    """Say what devices, shuffler and analyzer did."""
    wording = _NOISELESS if math.isinf(result.local_epsilon) else _NOISY
    words = wording.get(result.mechanism)
    reported = (
        f"reported its value by {result.mechanism}"  # anybody's text: no template
        if words is None
        else words.format(buckets=f"{result.buckets:,}")
    )
    return (
        f"Each person's device {reported}{_dummies(result, task)}. "
        f"The shuffler collected the sealed reports, which it cannot read, "
        f"{_shuffler(task)}and passed them on in random order. It is trusted to forget who sent "
        "which. "
        "The analyzer opened them, without knowing whose they are, and estimated how often each "
        "value occurs."
    )


def refinement_in_words(result: Result) -> str:
    """Say how the refined shares were made."""
    names: tuple[MechanismName, ...] = protocol_named(result.protocol).mechanisms
    [mechanism] = [name for name in names if name == result.mechanism] or [names[0]]
    return _REFINEMENTS[protocol_named(result.protocol).refinement_for(mechanism)]


def _dummies(result: Result, task: Task | None) -> str:
    if task is None:
        return ". Dummy reports that carry no value were added" if result.n_dummies else ""
    if task.dummies.maximum == 0:
        return ""
    mean = task.dummies.expected_per_user
    if mean == 1 and task.dummies.law == "fixed":
        return ". It added one dummy report that carries no value"
    exactly = "" if task.dummies.law == "fixed" else " on average"
    return f". It added {mean:.4g} dummy reports{exactly} that carry no value"


def _shuffler(task: Task | None) -> str:
    if task is None or task.shuffler.idle:
        return ""
    dropped = f"dropped a random {1 - task.shuffler.kept:.3g} of them, " * (task.shuffler.kept < 1)
    return f"{dropped}added random dummies for every value, "
