"""How values were collected, told in a few sentences to who has never heard of it."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from common.messages.estimate import KeyValues
from common.messages.result import Result
from common.protocols import Kind, Refinement, protocol_named
from common.task.specs import RapporSpec
from common.task.task import Task
from deploy.pages.citation import variant_of

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
        "rappor": "set bits for its text, and reported all bits with chance noise (RAPPOR)",
        "laplace": "reported its number with random noise added (Laplace)",
        "duchi": "reported one random bit, which is more often 1 the larger its number is (Duchi)",
        "piecewise": "reported a random number, most likely near its own (piecewise mechanism)",
        "hybrid": "reported a random number, most likely near its own, or one random bit (hybrid "
        "mechanism)",
        "harmony": "picked one of its numbers at random and reported one random bit of it "
        "(Harmony)",
        "mean-est": "reported a random sign for every number, all together (MeanEST)",
        "multi-hm": "picked some of its numbers at random and reported each with noise (Multi-HM)",
        "multi-rphm": "projected its numbers onto fewer, picked some of those at random and "
        "reported each with noise (Multi-RPHM)",
        "priv-kv": "picked one key at random and reported, with noise, whether it is owned and a "
        "sign of its value (PrivKV)",
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


_ESTIMATED: Final[Mapping[Kind, str]] = MappingProxyType(
    {
        "categorical": "how often each value occurs",
        "string": "how often each bit is set; whoever has candidates can read texts from that",
        "mean": "the mean",
        "vector": "the mean of each number",
        "key-value": "how many people own each key, and the mean of its values",
    }
)

_VALUES_ALONE: Final = (
    "picked one key at random, tossed a fair coin for whether to report on it, and reported a sign "
    "of its value with noise, or of a fake value if it has none (a later iteration of PrivKVM)"
)
"""What is reported of pairs where a task does not ask who owns a key."""
_MEANS_WITH_FAKES: Final = "the mean of what was said of each key, fakes included"
_FILTER: Final = "set bits of a filter for its text"
_REPLACED_FOR_GOOD: Final = ", replaced some by chance for good"
_LABELS_ESTIMATED: Final = "how often each label occurs, from how often its bit is set"


def story(result: Result, task: Task | None) -> str:
    """Say what devices, shuffler and analyzer did."""
    wording = _NOISELESS if math.isinf(result.local_epsilon) else _NOISY
    words = wording.get(result.mechanism)
    estimated = _ESTIMATED[protocol_named(result.protocol).kind]
    if isinstance(result.estimate, KeyValues) and result.estimate.owners is None:
        words, estimated = _VALUES_ALONE, _MEANS_WITH_FAKES
    if task is not None and isinstance(task.mechanism, RapporSpec):
        words = _rappor(task.mechanism)
        if task.mechanism.encoding == "labels":
            estimated = _LABELS_ESTIMATED
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
        f"The analyzer opened them, without knowing whose they are, and estimated "
        f"{estimated}."
    )


def refinement_in_words(result: Result) -> str:
    """Say how the refined shares were made."""
    names = protocol_named(result.protocol).mechanisms
    [mechanism] = [name for name in names if name == result.mechanism] or [names[0]]
    refinement = protocol_named(result.protocol).refinement_for(mechanism)
    return "" if refinement is None else _REFINEMENTS[refinement]


def _rappor(spec: RapporSpec) -> str:
    """Say what a device did under each of RAPPOR's four variants."""
    basic = spec.encoding == "labels"
    filled = "took a bit for each label, set that of its text" if basic else _FILTER
    replaced = _REPLACED_FOR_GOOD if spec.question else ", replaced some by chance"
    if spec.permanent_weight == 0:
        replaced = ""
    shown = "reported the bits" if spec.one_time else "reported each bit with chance noise"
    return f"{filled}{replaced}, and {shown} ({variant_of(spec)})"


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
