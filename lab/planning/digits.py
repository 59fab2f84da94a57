"""
Numbers reported as digits, hidden by users' dummies or by shufflers' geometric noise. Pure.

Numbers in -1 .. 1 are rounded to N points. The load of a digit with radix r and place value w is
x = w·√(r(r² - 1)/6). If an item's count in its view has the variance v, the sum of n users' numbers
has the variance Σ x²·v/2 + n/(N - 1)², where the second term is the rounding at its largest.

With privacy like that of Gaussian noise, uniform dummies of variance v give a view μ² = 2/v. For a
total of μ² the error is smallest if each view has a share ∝ x. With few dummies a view needs about
ln(1/δ) more for each item, which a Gaussian approximation omits.

Noise by shufflers with a privacy loss of at most ε has a variance of about 8/ε² an item. The losses
of a few views add up nearly in full, so that a total ε is best split ∝ x^(2/3). Those of many views
compose like Gaussian noise of μ² = ε²/2 each, best split with ε ∝ x^(1/2). Splits in between are
tried, and scaled with the exact accountant. The formulas only guide the search (from no paper).
"""

import dataclasses
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product
from typing import Any, Final

from shuffledp.common.accounting.composition import composed_epsilon
from shuffledp.common.accounting.item_noise import ItemNoiseRelease
from shuffledp.common.errors import AccountingError, PlanError, TaskError
from shuffledp.common.limits import MAX_ENVELOPE_BYTES
from shuffledp.common.task.draft import NumberDraft
from shuffledp.common.task.named_dummies import ViewDummies
from shuffledp.common.task.shuffler_spec import ShufflerSpec, sum_of
from shuffledp.common.task.task import envelope_bytes
from shuffledp.common.task.uniform_dummies import averaging
from shuffledp.common.task.view_specs import MAX_POINTS, MAX_RADICES, MAX_RADIX
from shuffledp.lab.planning.calibration import CLAIM_ROOM, MARGIN, gaussian_mu, log_excess
from shuffledp.lab.planning.design import Design, excess_of, least_noisy, within_caps
from shuffledp.lab.planning.frontier import CLOSE_ENOUGH
from shuffledp.lab.planning.item_dummies import least_geometric
from shuffledp.lab.planning.protocol_family import ProtocolFamily
from shuffledp.lab.planning.requirements import Noises, Requirements, item_report, noise_fields

Radices = tuple[int, ...]

_USUAL_MESSAGES: Final = 7.0
"""Default cap on messages per user and number; more would gain little."""
_FULL: Final = 0.5
"""Share of the largest envelope that an average submission may fill."""
_STEPS: Final = (-2, -1, 1, 2)
"""Changes of one radix, or of two at once, that the search tries."""
_ROOM: Final = 1.01
"""Factor on approximate numbers of dummies, for a first try that mostly keeps the caps."""
_SPARE: Final = 0.8
"""Dummies of an item beyond those of the Gaussian approximation, in units of ln(1/δ)."""
_SLACK: Final = 1e-3
"""The search for the dummies ends when μ is within this share below its target."""
_SLACK_OF_NOISE: Final = 2e-3
"""The same for the noise of shufflers."""
_FEW_VIEWS: Final = 2 / 3
"""Exponent of the loads x that ε is split by if losses add up."""
_POWERS: Final = (0.5, 0.55, 0.6, _FEW_VIEWS, 0.7)
"""Exponents to try."""
_CUT_SHARE: Final = 0.9
"""Share of δ for truncating the noise of all views; the rest is for the sum of their losses."""


def loads_of(radices: Radices) -> list[float]:
    """Return the load of each digit, the most significant first."""
    place, found = 2 / (math.prod(radices) - 1), list[float]()
    for radix in reversed(radices):
        found.insert(0, place * math.sqrt(radix * (radix**2 - 1) / 6))
        place *= radix
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RadixSearch:
    """Search for radices under the caps of requirements, by an approximation of the noise."""

    target: Requirements
    item_variances: Callable[[Sequence[float]], list[float]]
    """Returns the variance of an item's count in each digit's view, from the loads."""
    sent: Callable[[Radices, Sequence[float]], list[float]]
    """Returns the dummies of each digit that a user sends, for these variances."""

    def best(self) -> list[Radices]:
        """
        Return the radices with the least approximate error, for each number of digits, best first.

        A search starts at binary digits and changes one radix or two as long as that helps. Smaller
        radices come first: they have less noise for their place value. Of those close to the best,
        the one with the fewest digits comes first. Raises PlanError if the caps allow none. Cost:
        tenths of a second.
        """
        found = list[tuple[float, Radices]]()
        for number in range(1, MAX_RADICES + 1):
            error, radices = math.inf, (2,) * number
            while (next_ := min(map(self._rated, self._near(radices))))[0] < error:
                error, radices = next_
            if error == math.inf:
                break  # more digits need more messages
            found.append((error, radices))
        if not found:
            raise PlanError(
                f"digits need {self._messages((2,), self.item_variances(loads_of((2,)))):.4g} "
                f"messages per user; the caps allow {self._most_messages:.4g}"
            )
        least = CLOSE_ENOUGH * min(found)[0]
        found.sort(key=lambda rated: max(rated[0], least))  # stable: the fewest digits first
        return [radices for _, radices in found]

    def first_design(self, design: Callable[[Radices], Design]) -> Design:
        """Return the best radices' design, or that of fewer digits if it breaks a cap or a rule."""
        radices, *others = self.best()
        try:
            return within_caps(design(radices))
        except (AccountingError, PlanError, TaskError):
            fewer = [other for other in others if len(other) < len(radices)]
            if not fewer:
                raise
        return within_caps(design(fewer[0]))

    def error(self, radices: Radices) -> float:
        """Return the approximate variance of the sum of n_users' numbers; infinite above a cap."""
        points, loads = math.prod(radices), loads_of(radices)
        if points > MAX_POINTS or radices[-1] > MAX_RADIX:
            return math.inf
        variances = self.item_variances(loads)
        if self._messages(radices, variances) > self._most_messages:
            return math.inf
        rounding = self.target.n_users / (points - 1) ** 2
        squares = (load * load * each for load, each in zip(loads, variances, strict=True))
        return math.fsum(squares) / 2 + rounding

    def _messages(self, radices: Radices, variances: Sequence[float]) -> float:
        dummies = math.fsum(self.sent(radices, variances))
        return self.target.domain_size * (len(radices) + _ROOM * dummies)

    @property
    def _most_messages(self) -> float:
        each = envelope_bytes(item_report(hashed=False), 1) - envelope_bytes(0, 0)
        allowed = self.target.most_messages(hashed=False)
        if math.isinf(allowed):
            allowed = _USUAL_MESSAGES * self.target.domain_size
        return min(allowed, _FULL * MAX_ENVELOPE_BYTES / each)

    def _rated(self, radices: Radices) -> tuple[float, Radices]:
        return self.error(radices), radices

    def _near(self, radices: Radices) -> Iterator[Radices]:
        """Yield the radices, and those that differ in one or two of them, in ascending order."""
        yield radices
        places = range(len(radices))
        for changed in chain(combinations(places, 1), combinations(places, 2)):
            for steps in product(_STEPS, repeat=len(changed)):
                near = list(radices)
                for place, step in zip(changed, steps, strict=True):
                    near[place] += step
                if min(near) > 1:
                    yield tuple(sorted(near))


def design_of(protocol: str, target: Requirements, radices: Radices, **fields: Any) -> Design:  # noqa: ANN401  # of a draft
    """Return the design whose draft has these radices and fields."""
    design = Design.of(protocol, target, **fields)
    numbers = dataclasses.replace(design.draft.numbers or NumberDraft(), radices=radices)
    return dataclasses.replace(design, draft=dataclasses.replace(design.draft, numbers=numbers))


class DigitDummies(ProtocolFamily):
    """Digits of one number or several, hidden by users' uniform dummies of each."""

    def design(self, protocol: str, target: Requirements) -> Design:
        """
        Return the design with the least error under the caps; 7 messages a number by default.

        Cost: two or three evaluations of ε, tenths of a second for each digit.
        """
        mu, numbers = gaussian_mu(target.central_epsilon, target.delta), target.domain_size
        spare = -_SPARE * math.log(target.delta)

        def item_variances(loads: Sequence[float]) -> list[float]:
            needed = 2 * numbers * math.fsum(loads) / mu**2
            return [(needed / load + spare) * target.n_users / target.honest for load in loads]

        def sent(radices: Radices, variances: Sequence[float]) -> list[float]:
            return [each / target.n_users for each in map(operator.mul, radices, variances)]

        def calibrated(radices: Radices) -> Design:
            variances = item_variances(loads_of(radices))
            means = sent(radices, variances)

            def design_at(level: float) -> Design:
                dummies = [averaging(mean * math.exp(-2 * level)) for mean in means] * numbers
                return design_of(protocol, target, radices, dummies=ViewDummies.of_views(dummies))

            start = spare / (4 * min(variances))  # half of the spare dummies suffice, mostly
            return least_noisy(target, protocol, design_at, excess_of, start=start, slack=_SLACK)

        search = RadixSearch(target=target, item_variances=item_variances, sent=sent)
        return search.first_design(calibrated)


class DigitNoise(ProtocolFamily):
    """Digits of one number or several, hidden by geometric noise of one shuffler or of two."""

    def design(self, protocol: str, target: Requirements) -> Design:
        """
        Return the design with the least error under the caps.

        The second of two shufflers has the least noise that meets the coalition ε; the first has
        the least that meets it too, and together with the second the central ε. Cost: a second.
        """
        central, coalition = target.central_epsilon, target.coalition_epsilon
        alone = [central] if target.shufflers == 1 else [coalition, min(central, coalition)]

        def item_variances(loads: Sequence[float]) -> list[float]:
            shares = _shares(loads, _FEW_VIEWS)
            squares = (_approximate_total(shares, each, target) ** 2 for each in alone)
            per_square = math.fsum(8 / square for square in squares)
            return [per_square / share**2 for share in shares]

        def design(radices: Radices) -> Design:
            split, noise = _best_split(loads_of(radices), alone[0], target)
            fields = noise_fields(noise)
            if target.shufflers > 1:
                fields = noise_fields(_least(split, alone[1], target, second=noise), noise)
            return design_of(protocol, target, radices, **fields)

        search = RadixSearch(target=target, item_variances=item_variances, sent=lambda *_: [])
        return search.first_design(design)


def _shares(loads: Sequence[float], power: float) -> list[float]:
    powers = [load**power for load in loads]
    return [each / math.fsum(powers) for each in powers]


def _approximate_total(shares: Sequence[float], epsilon: float, target: Requirements) -> float:
    """Return the sum of the ε of one number's views if all numbers' views together meet ε."""
    squares = target.domain_size * math.fsum(share**2 for share in shares)
    mu = gaussian_mu(epsilon, target.delta)
    return max(epsilon / target.domain_size, mu * math.sqrt(2 / squares))


def _best_split(
    loads: Sequence[float], epsilon: float, target: Requirements
) -> tuple[list[float], Noises]:
    """Return the split of ε with the least error, and its noise; raise PlanError without any."""
    splits = [_shares(loads, power) for power in _POWERS[: None if len(loads) > 1 else 1]]

    def error(found: tuple[list[float], Noises]) -> float:
        digits = zip(loads, found[1], strict=False)
        return sum(load**2 * noise.moments()[1] for load, noise in digits)

    return min(((split, _least(split, epsilon, target)) for split in splits), key=error)


def _least(
    shares: Sequence[float], epsilon: float, target: Requirements, second: Noises = ()
) -> Noises:
    """
    Return the least noise of every number's views that meets ε.

    With a second shuffler's noise, it meets the coalition ε alone and the central ε together, and ε
    is near that of the result. Raises PlanError if there is none.
    """
    total = _approximate_total(shares, epsilon, target)
    delta = _CUT_SHARE * MARGIN * target.delta / (target.domain_size * len(shares))

    def found_at(level: float) -> tuple[Noises, float] | None:
        try:
            each = [least_geometric(total * math.exp(level) * share, delta) for share in shares]
            noises = tuple(each * target.domain_size)
            if not second:
                return noises, _excess(noises, epsilon, target)
            both = tuple(map(sum_of, zip(noises, second, strict=True)))
            alone = _excess(noises, target.coalition_epsilon, target)
            return noises, max(alone, _excess(both, target.central_epsilon, target))
        except AccountingError:  # more dummies than a task can have
            return None

    name, slack, excess = "noise of digits", _SLACK_OF_NOISE, operator.itemgetter(1)
    noises, _ = least_noisy(target, name, found_at, excess, start=-slack / 2, slack=slack)
    return noises


def _excess(noises: Noises, epsilon: float, target: Requirements) -> float:
    """Return the `log_excess` of the views' noise, with room for rounding claims."""
    releases = [ItemNoiseRelease.of_shuffler(ShufflerSpec(noise=noise)) for noise in noises]
    delta = MARGIN * target.delta
    return log_excess((composed_epsilon(releases, delta), delta), (epsilon / CLAIM_ROOM, delta))
