"""
The distributions of reports by definition, and the true δ of tiny shuffled protocols.

Deliberately slow and simple: every report and every multiset of messages is enumerated, and no
formula is shared with the mechanisms or the accountant.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Message = tuple[int, ...]
Distribution = Mapping[Message, float]
Histogram = tuple[int, ...]
Added = Mapping[Histogram, float]


def grr_distribution(value: int, items: int, local_epsilon: float) -> Distribution:
    """Distribution of one GRR report."""
    total = math.exp(local_epsilon) + items - 1
    return {
        (item,): (math.exp(local_epsilon) if item == value else 1) / total for item in range(items)
    }


def _hashed_distribution(
    hashes: Iterable[tuple[int, int]], buckets: int, local_epsilon: float
) -> Distribution:
    """Distribution of one report of local hashing, given each seed and the value's bucket."""
    drawn = list(hashes)
    total = (math.exp(local_epsilon) + buckets - 1) * len(drawn)
    return {
        (seed, bucket): (math.exp(local_epsilon) if bucket == own else 1) / total
        for seed, own in drawn
        for bucket in range(buckets)
    }


def hashing_distribution(
    value: int, q: int, local_epsilon: float, seeds: Iterable[int]
) -> Distribution:
    """Distribution of local hashing over F_q, of one or two digits: bucket ⟨seed, value⟩ mod q."""
    high, low = divmod(value, q)
    hashes = ((seed, (seed // q * high + seed % q * low) % q) for seed in seeds)
    return _hashed_distribution(hashes, q, local_epsilon)


def every_function_distribution(
    value: int, values: int, buckets: int, local_epsilon: float
) -> Distribution:
    """Distribution of local hashing whose seed names any function from values to buckets."""
    functions = itertools.product(range(buckets), repeat=values)
    return _hashed_distribution(enumerate(one[value] for one in functions), buckets, local_epsilon)


def uniform_distribution(messages: Sequence[Message]) -> Distribution:
    """Distribution of a dummy."""
    return {message: 1 / len(messages) for message in messages}


def unary_distribution(value: int | None, bits: int, p: float, q: float) -> Distribution:
    """Distribution of unary encoding: the user's own bit is set with chance p, others with q."""
    chances = [p if bit == value else q for bit in range(bits)]
    return {
        report: math.prod(
            chance if bit else 1 - chance for bit, chance in zip(report, chances, strict=True)
        )
        for report in itertools.product((0, 1), repeat=bits)
    }


def duchi_distribution(value: float, local_epsilon: float) -> Distribution:
    """Distribution of Duchi's bit of a number in -1 .. 1."""
    up = 0.5 + value * math.tanh(local_epsilon / 2) / 2
    return {(1,): up, (0,): 1 - up}


def band_distribution(point: int, points: int, reach: int, odds: int = 3) -> Distribution:
    """Distribution of a place: those of the point's band have weight `odds`, others 1."""
    places = range(points + 2 * reach)
    weights = [odds if point <= place <= point + 2 * reach else 1 for place in places]
    return {(place,): weight / sum(weights) for place, weight in enumerate(weights)}


def averaged(parts: Iterable[tuple[float, Mapping[Any, float]]]) -> Mapping[Any, float]:
    """Distribution of a draw from one of several, each chosen with its probability."""
    total: dict[Any, float] = defaultdict(float)
    for share, part in parts:
        for seen, chance in part.items():
            total[seen] += share * chance
    return total


def mixed(one: Distribution, other: Distribution, share: float) -> Distribution:
    """Distribution of a draw from one with probability `share`, and else from the other."""
    return averaged([(share, one), (1 - share, other)])


def sampled_distribution(numbers: Sequence[Distribution], sampled: int) -> Distribution:
    """Distribution of a uniform set of coordinates, followed by the code of each of its numbers."""
    chosen = list(itertools.combinations(range(len(numbers)), sampled))
    return {
        (*coordinates, *(code for (code,) in codes)): math.prod(
            numbers[coordinate][code] for coordinate, code in zip(coordinates, codes, strict=True)
        )
        / len(chosen)
        for coordinates in chosen
        for codes in itertools.product(*(numbers[coordinate] for coordinate in coordinates))
    }


def corner_distribution(point: Sequence[float], odds: int = 3) -> Distribution:
    """Distribution of MeanEST: corners on the side of the point's own, rounded to one at random."""
    corners = list(itertools.product((0, 1), repeat=len(point)))

    def of_corner(own: Message) -> Distribution:
        agreeing = [sum(map(int.__eq__, own, corner)) for corner in corners]
        weights = [odds if 2 * number > len(point) else 1 for number in agreeing]
        return dict(zip(corners, (weight / sum(weights) for weight in weights), strict=True))

    ends = [{1: (1 + number) / 2, 0: (1 - number) / 2} for number in point]
    chances = [math.prod(end[bit] for end, bit in zip(ends, own, strict=True)) for own in corners]
    return averaged(zip(chances, map(of_corner, corners), strict=True))


def prefix_distribution(
    value: Message, columns: Sequence[Sequence[int]], buckets: int, odds: int = 3
) -> Distribution:
    """Distribution of level, seed and bucket of a value under prefix hashing; -1 hashes nothing."""
    width = len(columns[0])
    total = (odds + buckets - 1) * len(columns) * buckets**width
    return {
        (level, *seed, bucket): (odds if bucket == hashed else 1) / total
        for level, hashes in enumerate(columns)
        for seed in itertools.product(range(buckets), repeat=width)
        for hashed in [sum(a * (*value, 0)[c] for a, c in zip(seed, hashes, strict=True)) % buckets]
        for bucket in range(buckets)
    }


def pair_distribution(
    person: Sequence[float], fakes: Sequence[float], key_odds: int, value_odds: int
) -> Distribution:
    """Distribution of PrivKV's key and answer (absent, -, +); NaN is a key not owned."""
    distribution: dict[Message, float] = {}
    for key, (value, fake) in enumerate(zip(person, fakes, strict=True)):
        owned = not math.isnan(value)
        present = (key_odds if owned else 1) / (key_odds + 1)
        up = 0.5 + (value if owned else fake) * (value_odds - 1) / (value_odds + 1) / 2
        answers = (1 - present, present * (1 - up), present * up)
        distribution |= {(key, answer): p / len(person) for answer, p in enumerate(answers)}
    return distribution


def _spread(
    parts: Iterable[Mapping[Any, float]], start: Mapping[Any, float], join: Callable[..., Any]
) -> Mapping[Any, float]:
    """Distribution of independent parts, joined one after the other."""
    spread = start
    for part in parts:
        grown: dict[Any, float] = defaultdict(float)
        for seen, chance in spread.items():
            for more, probability in part.items():
                grown[join(seen, more)] += chance * probability
        spread = grown
    return spread


def _with_message(messages: tuple[Message, ...], message: Message) -> tuple[Message, ...]:
    return tuple(sorted((*messages, message)))


def _added(counts: Histogram, more: Histogram) -> Histogram:
    return tuple(map(sum, zip(counts, more, strict=True)))


def summed(*laws: Added) -> Added:
    """Distribution of the sum of independent counts."""
    return _spread(laws[1:], laws[0], _added)


def beside(*views: Mapping[Any, float]) -> Mapping[Any, float]:
    """Joint distribution of independent views."""
    return _spread(views, {(): 1.0}, lambda seen, view: (*seen, view))


def histogram_distribution(own: int, size: int, dummies: int) -> Added:
    """Distribution of the counts of all items: one report, and uniform dummies."""
    items = [tuple(int(item == other) for other in range(size)) for item in range(size)]
    return summed({items[own]: 1.0}, *[dict.fromkeys(items, 1 / size)] * dummies)


def excess(worlds: Iterable[Mapping[Any, float]], epsilon: float) -> float:
    """Return the hockey-stick divergence of two distributions: δ at this ε."""
    one, other = worlds
    return math.fsum(
        max(0.0, chance - math.exp(epsilon) * other.get(seen, 0.0)) for seen, chance in one.items()
    )


def _largest_excess(worlds: Iterable[Mapping[Any, float]], epsilon: float) -> float:
    return max(excess(pair, epsilon) for pair in itertools.permutations(worlds, 2))


def true_delta(
    distributions: Sequence[Distribution],
    *,
    users: int,
    dummies: int | Mapping[int, float],
    dummy: Distribution,
    epsilon: float,
) -> float:
    """
    Return the largest δ over the victim's two values and every choice of the others' values.

    `dummies` is a number or its distribution: the analyzer sees how many messages arrive.
    """
    numbers = {dummies: 1.0} if isinstance(dummies, int) else dummies
    worst = 0.0
    for others in itertools.combinations_with_replacement(distributions, users - 1):
        around = averaged(
            (weight, _spread([*others, *([dummy] * number)], {(): 1.0}, _with_message))
            for number, weight in numbers.items()
        )
        worlds = [_spread([distribution], around, _with_message) for distribution in distributions]
        worst = max(worst, _largest_excess(worlds, epsilon))
    return worst


def own_dummies_distribution(items: int, chance: float, most: int) -> Added:
    """Distribution of one user's dummies of each item, conditioned on at most `most`."""
    distribution = {
        drawn: math.prod(chance if one else 1 - chance for one in drawn)
        for drawn in itertools.product((0, 1), repeat=items)
        if sum(drawn) <= most
    }
    total = math.fsum(distribution.values())
    return {drawn: probability / total for drawn, probability in distribution.items()}


def true_delta_with_item_noise(
    distributions: Sequence[Distribution],
    *,
    users: int,
    noise: Mapping[int, float],
    epsilon: float,
    kept: float = 1.0,
    own: Added | None = None,
) -> float:
    """
    Return the largest δ where the shuffler drops reports and adds noise to each item's count.

    Enumerates every histogram that the analyzer can see, for the victim's two values and every
    choice of the others' values. `own` is the distribution of the dummies that each user adds.
    """
    items = len(distributions)

    def one_hot(item: int) -> Histogram:
        return tuple(int(item == other) for other in range(items))

    def sent(value: int) -> Added:
        distribution = {
            one_hot(item): kept * chance for (item,), chance in distributions[value].items()
        }
        return {**distribution, (0,) * items: 1 - kept}

    added = [
        {tuple(z if item == other else 0 for other in range(items)): p for z, p in noise.items()}
        for item in range(items)
    ]
    dummies = [own] * users if own is not None else []
    worst = 0.0
    for others in itertools.combinations_with_replacement(range(items), users - 1):
        around = _spread([*map(sent, others), *added, *dummies], {(0,) * items: 1.0}, _added)
        worlds = [_spread([sent(value)], around, _added) for value in range(items)]
        worst = max(worst, _largest_excess(worlds, epsilon))
    return worst
