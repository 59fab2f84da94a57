"""
Draft the next task from a released result: PrivKVM's next iteration, or a dictionary's labels.

PrivKVM iterates PrivKV, each time with the previous iteration's means as fakes [YHMZ19].
Fakes equal to the true means would not bias the estimates. Each iteration is a separate task, in
which users draw a new key, and multiplies the bias by its share of fakes; all their ε add up.

The split of ε follows published programs, not the paper: the first iteration spends ε1 = κε on the
ownership of a key, and each of c iterations (1-κ)ε/c on the value. Later iterations toss a fair
coin for ownership, which costs no ε; only the first estimates frequencies. Half of their reports
carry a value; if a share f of users owns the key, a share 1-f of these values is fake.
"""

import dataclasses
import math
from fractions import Fraction
from pathlib import Path
from typing import Final, Literal, TypeVar

import numpy as np
from pydantic import FiniteFloat, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from shuffledp.common.errors import SettingsError, TaskError
from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.protocols import Kind, protocol_named
from shuffledp.common.runtime.validation import read_file
from shuffledp.common.task.draft import PairDraft, TaskDraft
from shuffledp.common.task.kinds import KINDS
from shuffledp.common.task.labels import check_labels, check_new_labels
from shuffledp.deploy.tasks.drafts import literal

MAX_ITERATIONS: Final = 1000
_MIN_EPSILON: Final = 2.0**-32
"""Minimum ε of one part of a report, as in `ResponseWeights`."""
_MAX_BYTES: Final = 64 * 1024 * 1024
"""Maximum bytes of a JSON result: enough for ten numbers for each of 65,536 keys."""

F = TypeVar("F")


def read_result(path: Path, form: type[F], kind: Kind) -> F:
    """Read the fields of `form` from `shuffledp result --json`, or raise SettingsError."""
    try:
        return TypeAdapter(form).validate_json(read_file(path, _MAX_BYTES))
    except ValidationError as error:
        raise SettingsError(f"{path} is not a JSON result of {kind} data") from error


@dataclass(frozen=True, kw_only=True)
class Iterated:
    """The fields of an iteration's result that the next iteration needs."""

    kind: Literal["key-value"]
    means_with_fakes: tuple[FiniteFloat, ...]
    """Mean of the reports on each key, fakes included, in units of low .. high."""
    low: FiniteFloat
    high: FiniteFloat
    population: str


def next_draft(total: TaskDraft, iterations: int, number: int, last: Iterated | None) -> TaskDraft:
    """
    Return the draft of iteration `number`, from 1 on, or raise TaskError. Run by the operator.

    The local_epsilon of `total` is that of all iterations. `last` is None for the first.
    """
    if "pairs" not in KINDS[protocol_named(total.protocol).kind].tables:
        raise TaskError(f"the protocol {total.protocol} is not for pairs, so it has no iterations")
    if not total.population:
        raise TaskError(
            "the draft names no population; iterations need one, because they ask the same users "
            "and share one budget"
        )
    if not 1 <= number <= iterations:
        raise TaskError(f"number is {number}; it must lie between 1 and {iterations}")
    if (number == 1) != (last is None):
        raise TaskError(
            f"number is {number}; iteration 1 must not have --after, and later ones need it, with "
            "the previous iteration's result"
        )
    pairs = total.pairs or PairDraft()
    low, high = pairs.low, pairs.high
    if not low < high:
        raise TaskError(f"low is {low} and high is {high}; low must be below high")
    means = None
    if last is not None:
        for name, released, drafted in (
            ("number of keys", len(last.means_with_fakes), total.domain_size),
            ("range", f"{last.low} to {last.high}", f"{low} to {high}"),
            ("population", last.population, total.population),
        ):
            if released != drafted:
                raise TaskError(f"the result's {name} is {released}; the draft's is {drafted}")
        means = (np.array(last.means_with_fakes) - low) / (high - low) * 2 - 1
    local_epsilon, pairs = iteration(pairs, total.local_epsilon, iterations, number, means)
    budget = total.budget_epsilon
    return dataclasses.replace(
        total,
        local_epsilon=local_epsilon,
        pairs=pairs,
        budget_epsilon=total.local_epsilon if budget is None else budget,
    )


def iteration(
    whole: PairDraft, local_epsilon: float, iterations: int, number: int, means: Vector | None
) -> tuple[float, PairDraft]:
    """
    Return the local ε and the draft of one iteration. Run by the operator.

    The exact sum of all iterations' local ε is at most local_epsilon.

    `whole` and `local_epsilon` describe all `iterations` together; the key_share is above 0 and
    below 1. `number` counts from 1. `means` are those of the previous iteration, in -1 .. 1; mapped
    to low .. high and clipped, they are the new fakes. None for the first iteration, which uses the
    fakes of `whole`. Raises TaskError if a parameter is out of range, or a part of ε is too small.
    """
    if not 1 <= iterations <= MAX_ITERATIONS:
        raise TaskError(f"there are {iterations} iterations; there must be 1 to {MAX_ITERATIONS}")
    if not 0 < local_epsilon < math.inf:
        raise TaskError(f"local_epsilon is {local_epsilon}; it must be above 0 and finite")
    if not 0 < whole.key_share < 1:
        raise TaskError(f"key_share is {whole.key_share}; it must be above 0 and below 1")
    key = local_epsilon * whole.key_share
    value = (local_epsilon - key) / iterations
    if min(key, value) < _MIN_EPSILON:
        raise TaskError(
            f"local_epsilon is {local_epsilon}: with {iterations} iterations, the smallest part is "
            f"{min(key, value)}; it must be at least 2^-32, or reports carry no signal"
        )
    while Fraction(key) + iterations * Fraction(value) > Fraction(local_epsilon):
        value = math.nextafter(value, 0.0)
    key = key if number == 1 else 0.0
    total = key + value
    if Fraction(total) > Fraction(key) + Fraction(value):
        total = math.nextafter(total, 0.0)
    fakes = whole.fakes
    if means is not None:
        scaled = whole.low + (means + 1) / 2 * (whole.high - whole.low)
        fakes = tuple(np.clip(scaled, whole.low, whole.high).tolist())
    return total, dataclasses.replace(whole, key_share=key / total, fakes=fakes)


@dataclass(frozen=True, kw_only=True)
class FoundTexts:
    """The fields of a result that a second task needs."""

    kind: Literal["open"]
    encoding: str
    most_bytes: int
    texts: tuple[str, ...]


def labels_fragment(found: FoundTexts, *, spell: bool) -> str:
    """
    Return the part of a draft in TOML that lists the found values as labels.

    With `spell`, the second task spells the texts whose hashes were found. Values that cannot be
    labels, because no device would send them, are left out. Raises SettingsError if none is left,
    or if `spell` does not fit the result.
    """
    if spell != (found.encoding == "hash"):
        rule = "needs" if spell else "must be set for"
        raise SettingsError(f"--spell {rule} a result of hashes; its encoding is {found.encoding}")
    kept = tuple(text for text in dict.fromkeys(found.texts) if _is_label(text))
    if not kept:
        raise SettingsError(f"none of the {len(found.texts)} values found can be a label")
    comment = f"""\
# {len(kept)} of the {len(found.texts)} values found. Ask other users: the same ones pay again.
# Add the draft's other fields, at least n_min, target_size, delta, deadline and local_epsilon.
"""
    if not spell:
        comment += "# Devices refuse other values: add a label such as other for them.\n"
    labels = f"{comment}labels = {literal(kept)}\n"
    if not spell:
        return labels
    form = f'encoding = "spell"\ncode_bytes = {len(kept[0]) // 2}\nmost_bytes = {found.most_bytes}'
    return f'{labels}protocol = "discover"\n\n[open]\n{form}\n'


def _is_label(text: str) -> bool:
    try:
        check_labels((text,), 1)
        check_new_labels((text,))
    except TaskError:
        return False
    return bool(text)
