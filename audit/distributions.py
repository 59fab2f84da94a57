"""
Reference distributions of reports and dummies, test values, and draws by the deployed code.

For items, the probabilities that reports support a value follow from ε by the papers' formulas,
independently of the mechanisms' integer weights. For numbers, texts and pairs, the exact
distributions follow [DMNS06], [DJW18], [NXY+16], [WXY+19], [EPK14] and [YHMZ19] with the task's
integer weights.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import Final, cast

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import stats

from audit.scenario import AuditSubject, NotCoveredError
from common.mechanisms.base import Mechanism, Reports, Vector
from common.mechanisms.hashing.local_hashing import LocalHashing
from common.mechanisms.hashing.string_hashing import StringHashing
from common.mechanisms.numeric.multi_rphm import projection
from common.mechanisms.rappor.rappor import Rappor
from common.mechanisms.registry import prefix_hashing_of, randomizer_of
from common.messages.submission import Value
from common.protocols import ITEM_KINDS
from common.task import specs
from common.task.cluster_dummies import ClusterDummies
from common.task.dummy_forms import AnyDummies
from common.task.named_dummies import LevelDummies
from common.task.shuffler_spec import RATIO_SUM, GeometricNoise, ItemNoise
from common.task.specs import KeyValueSpec, NumberSpec, OpenSpec, RapporSpec, spec_as
from common.task.task import Task
from common.task.uniform_dummies import NegativeBinomialDummies
from deploy.tasks.encoded_values import joined
from deploy.tasks.value_parser import value_of
from user_agent.contribution import encoder_for

Draw = Callable[[Task, Value, int, Generator], Reports]
"""Draws the reports of `count` users who all hold the same value."""

_USUAL_NUMBERS: Final = (-0.73, 0.31)
"""Numbers in -1 .. 1 that lie between grid points."""
_MAX_TEXTS: Final = 24
"""Maximum number of texts searched for the pair whose bits differ most."""
_SECRET_BYTES: Final = 32
_DRAW_SIZE: Final = 2_000_000
"""Maximum total of numbers, keys or items in one draw."""
_WRONG_DEVICES: Final = 5
"""In the self-test, one device in this many answers with another value."""
_REPORT_DIVISOR: Final = 30
"""Divisor of the number of trials, because reports on numbers and pairs are slow to draw."""
_MIN_REPORTS: Final = 80_000
_TEXT_DIVISOR: Final = 1000
_MIN_TEXTS: Final = 24_000
"""Minimum reports on a text; each permanent response takes ten microseconds."""
_LAPLACE_CUT: Final = 64
"""Distance beyond the ends of the range, in scales, at which Laplace noise is cut."""
_MAX_CORNER_DIMENSIONS: Final = 8
"""Maximum dimensions for listing all corners of the cube."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportDistribution:
    """Probabilities that a value is supported by a report on it, by another report, by a dummy."""

    own: float
    other: float
    dummy: float
    independent: bool = False
    """Whether a report supports values independently; otherwise only one, unless `far_only`."""
    far_only: bool = False
    """Whether `other` applies only between the first and the last item."""


def support_distribution(task: Task) -> SupportDistribution:
    """
    Return a task's probabilities by [KBR16] (GRR), [LWLWLS20] (square wave) or [WBLJ17].

    Raises NotCoveredError for other mechanisms.
    """
    power = math.exp(task.local_epsilon)
    name, size, buckets = task.mechanism.name, task.domain_size, task.item_mechanism.buckets
    if name in {"grr", "warner"}:
        return _response(power, size, other=None)
    if name == "hierarchy":
        dummy = float(level_shares(task) @ (1 / np.array(task.level_sizes)))
        return SupportDistribution(own=1.0, other=0.0, dummy=dummy, far_only=True)
    if name in {"local-hashing", "string-hashing"}:
        return _response(power, buckets, other=1 / buckets)
    if name in {"symmetric-unary", "optimized-unary"}:
        own, other = 0.5, 1 / (power + 1)
        if name == "symmetric-unary":
            own, other = 1 / (1 + power**-0.5), 1 / (power**0.5 + 1)
        return SupportDistribution(own=own, other=other, dummy=other, independent=True)
    if name != "square-wave":
        raise NotCoveredError(name)
    # The `width` places around a value have weight e^ε each.
    places = max(size, buckets)
    width = places - size + 1
    total, shared = width * power + size - 1, max(0, 2 * width - places)
    own, far = width * power / total, (shared * power + (width - shared)) / total
    return SupportDistribution(own=own, other=far, dummy=width / places, far_only=True)


def seed_count(mechanism: Mechanism) -> int:
    """Return the number of equally likely seeds of a hashed report; raise NotCoveredError."""
    if isinstance(mechanism, LocalHashing):
        return mechanism.family.seeds
    if isinstance(mechanism, StringHashing):
        return 2**64
    raise NotCoveredError(type(mechanism).__name__)


def level_shares(task: Task) -> Vector:
    """Return the share of each level of a hierarchy among all dummies."""
    weights = np.array(cast("LevelDummies", task.dummies).levels, dtype=np.float64)
    return np.asarray(weights / weights.sum())


def _response(power: float, answers: int, *, other: float | None) -> SupportDistribution:
    """Return the probabilities of randomized response at e^ε = `power`, which may be infinite."""
    return SupportDistribution(
        own=1 / (1 + (answers - 1) / power),
        other=1 / (power + answers - 1) if other is None else other,
        dummy=1 / answers,
        independent=other is not None,
    )


def extra_dummies(spec: AnyDummies) -> Vector:
    """Return the probabilities that a user adds 0, 1, … dummies beyond the certain ones."""
    if isinstance(spec, LevelDummies):
        fractions = np.array(spec.levels) % 2**32 / 2**32
        total = np.ones(1)
        for chance in fractions[fractions > 0]:
            total = np.convolve(total, [1 - chance, chance])
        return total
    if isinstance(spec, ClusterDummies):
        raise NotCoveredError(spec.distribution)
    places, chance = np.arange(spec.most + 1), spec.extra_weight / 2**32
    if isinstance(spec, NegativeBinomialDummies):
        kept = stats.nbinom.pmf(places, spec.trials, 1 - chance)
    else:
        kept = stats.binom.pmf(places, spec.trials, chance)
    return np.asarray(kept / kept.sum())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SubmissionSizes:
    """
    The possible sizes of a submission, k in number.

    The columns are the reports that name an item of the domain (all but negative and null ones),
    the negative reports, and all reports, null ones included.
    """

    sizes: NDArray[np.int64]
    """Shape (k, 3)."""
    chances: Vector
    """Shape (k,)."""

    def outcomes(self, seen: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the index of each seen size, shape (n, 3), and -1 where it is impossible."""
        places = {tuple(size): place for place, size in enumerate(self.sizes.tolist())}
        return np.array([places.get(tuple(size), -1) for size in seen.tolist()], dtype=np.int64)


def submission_sizes(task: Task) -> SubmissionSizes:
    """Return the distribution of the sizes of submissions. Cost: grows with trials of clusters."""
    if isinstance(task.dummies, ClusterDummies):
        sizes = _cluster_sizes(task.dummies)
        return SubmissionSizes(sizes=np.array(list(sizes)), chances=np.array(list(sizes.values())))
    chances, lengths = extra_dummies(task.dummies), task.lengths
    numbers = task.own_reports + task.dummies.certain + np.arange(len(chances))
    total = np.take(lengths, np.searchsorted(lengths, numbers))
    columns = np.stack([numbers, np.zeros_like(numbers), total], axis=1)
    return SubmissionSizes(sizes=columns, chances=chances)


def _cluster_sizes(spec: ClusterDummies) -> dict[tuple[int, int, int], float]:
    """Convolve a user's own report with the trials: the smallest room that holds each cluster."""
    rooms = {size: (shown / 2**32, filled / 2**32) for size, shown, filled in spec.rooms}
    room_of = {(i, j): min(size for size in rooms if i + j <= size) for i, j, _ in spec.clusters}
    one = {(0, 0, size): shown * (1 - filled) for size, (shown, filled) in rooms.items()}
    one[0, 0, 0] = 1 - sum(shown for shown, _ in rooms.values())
    for i, j, weight in spec.clusters:
        size = room_of[i, j]
        shown, filled = rooms[size]
        total = sum(other for a, b, other in spec.clusters if room_of[a, b] == size)
        one[i, j, size] = shown * filled * weight / total
    found = {(1, 0, 1): 1.0}
    for _ in range(spec.trials):
        more: dict[tuple[int, int, int], float] = {}
        for (sum_i, sum_j, reports), chance in found.items():
            for (i, j, size), share in one.items():
                key = (sum_i + i, sum_j + j, reports + size)
                more[key] = more.get(key, 0.0) + chance * share
        found = more
    return found


def added_dummies(spec: ItemNoise) -> Vector:
    """Return the probabilities that the shuffler adds 0, 1, …, `most` dummies of one item."""
    places = np.arange(spec.most + 1)
    if not isinstance(spec, GeometricNoise):
        return np.asarray(stats.binom.pmf(places, spec.trials, 0.5))
    steps = places - spec.peak
    left, right = spec.left_weight / RATIO_SUM, spec.right_weight / RATIO_SUM
    weights = np.where(steps < 0, left ** np.abs(steps), right ** np.abs(steps))
    return np.asarray(weights / weights.sum())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReportPart:
    """One part of each report, with its distribution; parts are independent."""

    name: str
    cells: NDArray[np.int64]
    """Cell of each report, shape (n,)."""
    chances: Vector
    """Probability of each cell under each distribution; shape (distributions, cells)."""
    which: NDArray[np.int64] | None = None
    """Row of `chances` for each report, shape (n,); None: the first row for all."""


def report_parts(task: Task, value: Value, reports: Reports) -> Iterator[ReportPart]:
    """Yield the independent parts of reports on one value; none for mean-est over 8 numbers."""
    if task.kind == "open":
        yield from _open_parts(task, value, reports)
    elif task.kind == "string":
        yield from _text_parts(task, str(value), reports)
    elif task.kind == "key-value":
        cells = reports["key"].astype(np.int64) * 3 + reports["answer"]
        chances = _pair_distribution(task, cast("dict[int, float]", value))
        yield ReportPart(name="keys and answers", cells=cells, chances=chances[np.newaxis])
    else:
        yield from _number_parts(task, value, reports)


def value_worlds(subject: AuditSubject, pair: tuple[Value, Value], rng: Generator) -> list[Vector]:
    """Draw the log likelihood ratios of reports on the first value, then on the second."""
    task, (first, second), count = subject.task, pair, reports_each(subject)
    drawn = [draw_reports(task, value, count, rng) for value in pair]
    odds = [_log_likelihood(task, first, r) - _log_likelihood(task, second, r) for r in drawn]
    return list(map(np.nan_to_num, odds))


def _log_likelihood(task: Task, value: Value, reports: Reports) -> Vector:
    """Return the log likelihood of each report under a value, up to a constant; shape (n,)."""
    total = np.zeros(len(reports))
    for part in report_parts(task, value, reports):
        with np.errstate(divide="ignore"):
            logs = np.log(part.chances)
        total += logs[0 if part.which is None else part.which, part.cells]
    return total


def _number_parts(task: Task, value: Value, reports: Reports) -> Iterator[ReportPart]:
    spec = spec_as(task.mechanism, NumberSpec)
    held = value if isinstance(value, tuple) else (cast("float", value),)
    numbers = np.array([to_unit(number, spec.low, spec.high) for number in held])
    if spec.projected:
        numbers = np.clip(numbers @ projection(task.nonce, task.domain_size, spec.projected), -1, 1)
    names = reports.dtype.names or ()
    if "bits" in names:
        if len(numbers) <= _MAX_CORNER_DIMENSIONS:
            cells = reports["bits"][:, 0].astype(np.int64)
            chances = _corner_distribution(spec, numbers)
            yield ReportPart(name="corners", cells=cells, chances=chances[np.newaxis])
        return
    answers = np.stack([_answer_distribution(spec, number) for number in numbers.tolist()])
    if "coordinates" not in names:
        cells = reports[names[0]].astype(np.int64)
        yield ReportPart(name="answers", cells=cells, chances=answers)
        return
    for place in range(spec.sampled):
        coordinates = reports["coordinates"][:, place].astype(np.int64)
        cells = reports["codes"][:, place].astype(np.int64)
        yield ReportPart(name="answers", cells=cells, chances=answers, which=coordinates)


def _answer_distribution(spec: NumberSpec, number: float) -> Vector:
    """Return the distribution of the answer code for one number in -1 .. 1."""
    if spec.name == "laplace":
        return _rounded(spec, number, lambda point: _laplace(spec, point))
    true, other = spec.true_weight, spec.other_weight
    signal = (true - other) / (true + other)
    bit = np.array([(1 - number * signal) / 2, (1 + number * signal) / 2])
    if spec.steps == 0:
        return bit
    place = _rounded(spec, number, lambda point: _band(spec, point))
    if spec.name == "piecewise":
        return place
    mixed = spec.piecewise_weight / specs.MIX_SUM
    return np.concatenate([(1 - mixed) * bit, mixed * place])


def _rounded(spec: NumberSpec, number: float, distribution: Callable[[int], Vector]) -> Vector:
    """Mix the distributions at the two grid points around a number, preserving the mean."""
    place = (number + 1) * spec.steps / 2
    down = min(math.floor(place), spec.steps - 1)
    up = place - down
    return (1 - up) * distribution(down) + up * distribution(down + 1)


def _band(spec: NumberSpec, point: int) -> Vector:
    weights = np.full(spec.steps + 1 + 2 * spec.reach, float(spec.other_weight))
    weights[point : point + 2 * spec.reach + 1] = spec.true_weight
    return np.asarray(weights / weights.sum())


def _laplace(spec: NumberSpec, point: int) -> Vector:
    """Return Laplace noise P(x) = (1-a)/(1+a)·a^|x| at a point, with tails moved to the cuts."""
    a, last = math.exp(-1 / spec.scale), spec.steps + 2 * _LAPLACE_CUT * spec.scale
    distance = np.abs(np.arange(last + 1) - (point + _LAPLACE_CUT * spec.scale))
    chances: Vector = (1 - a) / (1 + a) * a**distance
    chances[[0, last]] = a ** distance[[0, last]] / (1 + a)
    return chances


def _corner_distribution(spec: NumberSpec, numbers: Vector) -> Vector:
    """Return the distribution of mean-est's corner; bit j of its index is coordinate j."""
    corners = list(itertools.product((-1, 1), repeat=len(numbers)))
    table = np.array(corners)[:, ::-1]  # the first coordinate changes fastest
    toward = np.where(table @ table.T > 0, float(spec.true_weight), float(spec.other_weight))
    toward /= toward.sum(axis=1, keepdims=True)
    rounded = np.prod((1 + table * numbers) / 2, axis=1)
    return np.asarray(rounded @ toward)


def _pair_distribution(task: Task, owned: dict[int, float]) -> Vector:
    """Return the distribution of (key, answer), with answers absent, - and +; shape (3·keys,)."""
    spec, keys = spec_as(task.mechanism, KeyValueSpec), range(task.domain_size)
    truthful = spec.key_true_weight / (spec.key_true_weight + spec.key_other_weight)
    true, other = spec.value_true_weight, spec.value_other_weight
    fakes = spec.fakes or [(spec.low + spec.high) / 2] * len(keys)
    present = np.array([truthful if key in owned else 1 - truthful for key in keys])
    held = np.array([to_unit(owned.get(key, fakes[key]), spec.low, spec.high) for key in keys])
    plus = (1 + held * (true - other) / (true + other)) / 2
    chances = np.stack([1 - present, present * (1 - plus), present * plus], axis=1)
    return np.asarray(chances.ravel() / len(keys))


def _text_parts(task: Task, text: str, reports: Reports) -> Iterator[ReportPart]:
    """Yield the cohorts, then each bit, whose distribution depends on the hashed bit [EPK14]."""
    spec, cohort = spec_as(task.mechanism, RapporSpec), reports["cohort"].astype(np.int64)
    even = np.full((1, spec.cohorts), 1 / spec.cohorts)
    yield ReportPart(name="cohorts", cells=cohort, chances=even)
    f = spec.permanent_weight / specs.PERMANENT_SUM
    p, q = (weight / specs.INSTANT_SUM for weight in (spec.unset_weight, spec.set_weight))
    shown = np.array([(1 - f) * p + f * (p + q) / 2, (1 - f) * q + f * (p + q) / 2])
    chances = np.stack([1 - shown, shown], axis=1)
    bits = np.unpackbits(reports["bits"], axis=1, count=spec.bits, bitorder="little")
    hashed = set_bits(spec, task.labels, text)[cohort].astype(np.int64)
    for bit in range(spec.bits):
        cells = bits[:, bit].astype(np.int64)
        yield ReportPart(name="bits", cells=cells, chances=chances, which=hashed[:, bit])


def _open_parts(task: Task, value: Value, reports: Reports) -> Iterator[ReportPart]:
    """Yield levels and seed elements, which are uniform, then buckets relative to the value's."""
    spec, mechanism = spec_as(task.mechanism, OpenSpec), prefix_hashing_of(task)
    seeds = [("seeds", element, spec.buckets) for element in reports["seed"].T]
    for name, cells, size in (("levels", reports["level"], mechanism.levels), *seeds):
        even = np.full((1, size), 1 / size)
        yield ReportPart(name=name, cells=cells.astype(np.int64), chances=even)
    held = encoder_for(task, None)(value, np.random.default_rng(0))
    hashed = mechanism.hashed(reports, np.repeat(held, len(reports), axis=0))
    chances = np.full((1, spec.buckets), float(spec.other_weight))
    chances[0, 0] = spec.true_weight
    cells = (reports["bucket"] - hashed) % spec.buckets
    yield ReportPart(name="buckets", cells=cells, chances=chances / chances.sum())


def set_bits(spec: RapporSpec, labels: Sequence[str], text: str) -> NDArray[np.bool_]:
    """
    Return which bits a text sets in each cohort; shape (cohorts, bits).

    The bit of the label, or those whose numbers are bytes (pairs above 256 bits) of the MD5 of
    big-endian cohort and text, as in the public client.
    """
    bits = np.zeros((spec.cohorts, spec.bits), dtype=np.bool_)
    if spec.encoding == "labels":
        bits[:, labels.index(text)] = True
        return bits
    width = 1 if spec.bits <= 256 else 2  # noqa: PLR2004  # the values of one byte
    for cohort in range(spec.cohorts):
        message = cohort.to_bytes(4, "big") + text.encode()
        digest = md5(message, usedforsecurity=False).digest()[: width * spec.hashes]
        bits[cohort, np.frombuffer(digest, dtype=f"<u{width}").astype(int) % spec.bits] = True
    return bits


def to_unit(value: float, low: float, high: float) -> float:
    """Map a number linearly from low .. high to -1 .. 1."""
    return 2 * (value - low) / (high - low) - 1


def usual_value(task: Task) -> Value:
    """Return a valid text, or a valid value whose numbers lie between grid points."""
    if task.kind in {"string", "open"}:
        return worst_values(task)[0][0]
    low, high = _range(task)
    numbers = [low + (number + 1) / 2 * (high - low) for number in _USUAL_NUMBERS]
    if task.kind == "key-value":
        return {0: numbers[1], task.domain_size - 1: numbers[0]}
    vector = tuple(numbers[place % 2] for place in range(task.domain_size))
    return vector[0] if task.kind == "mean" else vector


def worst_values(task: Task) -> tuple[tuple[Value, Value], ...]:
    """Return the pairs of values that are easiest to distinguish."""
    if task.kind in ITEM_KINDS:
        return ((0, task.domain_size - 1),)
    if task.kind == "open":  # any two that differ in their first byte
        codes = spec_as(task.mechanism, OpenSpec)
        whole = codes.encoding == "code"
        return (("0", str(256**codes.code_bytes - 1)),) if whole else (("a", "b"),)
    if task.kind == "string":  # the texts whose bits differ most, over all cohorts
        rappor = spec_as(task.mechanism, RapporSpec)
        texts = task.labels[:_MAX_TEXTS] or tuple(f"t{number}" for number in range(_MAX_TEXTS))
        bits = {text: set_bits(rappor, task.labels, text) for text in texts}
        pairs = itertools.combinations(texts, 2)
        return (max(pairs, key=lambda pair: int((bits[pair[0]] != bits[pair[1]]).sum())),)
    low, high = _range(task)
    if task.kind == "mean":
        return ((high, low),)
    if task.kind == "key-value":
        keys = range(task.domain_size)
        everything, least = dict.fromkeys(keys, high), dict.fromkeys(keys, low)
        return ((everything, {}), (everything, least), (least, {}))
    up = np.ones(task.domain_size, dtype=bool)
    spec = spec_as(task.mechanism, NumberSpec)
    if spec.projected:
        up = projection(task.nonce, task.domain_size, spec.projected)[:, 0] > 0
    return ((tuple(np.where(up, high, low).tolist()), tuple(np.where(up, low, high).tolist())),)


def _range(task: Task) -> tuple[float, float]:
    spec = cast("KeyValueSpec | NumberSpec", task.mechanism)
    return spec.low, spec.high


def reports_each(subject: AuditSubject) -> int:
    """Return the number of reports to draw on each text, number or set of pairs."""
    if subject.task.kind != "string":
        return max(_MIN_REPORTS, subject.sizes.games // _REPORT_DIVISOR)
    hashes = spec_as(subject.task.mechanism, RapporSpec).hashes
    return max(_MIN_TEXTS, subject.sizes.games // _TEXT_DIVISOR) // hashes


def draw_reports(task: Task, value: Value, count: int, rng: Generator) -> Reports:
    """Draw `count` reports on one value as devices do."""
    randomizer = randomizer_of(task)
    if task.kind == "string":
        # Each user has a different secret, hence a different permanent response.
        secrets = [rng.bytes(_SECRET_BYTES) for _ in range(count)]
        responses = cast("Rappor", randomizer).permanent([str(value)] * count, secrets)
        return randomizer.randomize(responses, rng)
    held = value_of(task, value) if isinstance(value, int) else value
    encoded = encoder_for(task, None)(held, rng)
    # A report on one item can have a bit for each item of the task.
    together = max(1, _DRAW_SIZE // max(8, task.domain_size, randomizer.report_dtype.itemsize))
    parts = [min(together, count - start) for start in range(0, count, together)]
    return np.concatenate([randomizer.randomize(joined([encoded] * part), rng) for part in parts])


def draw_for_others(task: Task, value: Value, count: int, rng: Generator) -> Reports:
    """Draw `count` reports in random order: four in five on a value, one in five on another."""
    other = next(held for pair in worst_values(task) for held in pair if held != value)
    wrong = count // _WRONG_DEVICES
    drawn = [draw_reports(task, value, count - wrong, rng), draw_reports(task, other, wrong, rng)]
    return rng.permutation(np.concatenate(drawn))
