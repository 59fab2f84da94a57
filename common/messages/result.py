"""The released result of one batch: an estimate, refused reports, and guarantees."""

import math
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import Annotated, Final, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from shuffledp.common import limits
from shuffledp.common.errors import WireError
from shuffledp.common.messages.batch import UserCount
from shuffledp.common.messages.guarantee import NONE_WAIVED, Guarantee, Waived, delta_warnings
from shuffledp.common.task.specs import MAX_ATTRIBUTES, MAX_DOMAIN_SIZE, MAX_SPELLED_BYTES
from shuffledp.common.task.view_specs import MAX_TABLES
from shuffledp.common.task_digest import TaskDigest

MAX_FIGURE: Final = 1e30
"""Bound on every debiased share, mean and error, whatever devices send. A share is at most 10^28:
2^30 reports per user, the shuffler's dummies included, divided by p - q, which is above 2^-63 for
weights below 2^63. A mean is at most 10^12, the largest end of a range, times size / sampled."""
_MAX_REFINED: Final = 1 + 1e-6
"""Maximum refined share, allowing for rounding."""


def parse_counts(_name: str, fields: Sequence[int]) -> NDArray[np.int64]:
    """Parse numbers of people or reports."""
    limits.parse_count("a count", max(fields, default=0), limits.MAX_USERS)
    return np.array(fields, dtype=np.int64)


def parse_figures(
    name: str, fields: Sequence[float], minimum: float, maximum: float
) -> NDArray[np.float64]:
    """Parse numbers from `minimum` to `maximum`; NaN is refused."""
    read = np.array(fields, dtype=np.float64)
    outside = read[~((minimum <= read) & (read <= maximum))]
    if len(outside):
        raise WireError(f"{name} holds {outside[0]}; each must lie between {minimum} and {maximum}")
    return read


Numbers = NDArray[np.float64]
Figures = Annotated[Numbers, partial(parse_figures, minimum=-MAX_FIGURE, maximum=MAX_FIGURE)]
Errors = Annotated[Numbers, partial(parse_figures, minimum=0, maximum=MAX_FIGURE)]
_Counts = Annotated[NDArray[np.int64], parse_counts]
_Mse = Annotated[float, partial(limits.parse_amount, maximum=MAX_FIGURE**2)]
_Share = Annotated[float, partial(limits.parse_amount, maximum=1)]
_Error = Annotated[float, partial(limits.parse_amount, maximum=MAX_FIGURE)]
_Seconds = Annotated[float, partial(limits.parse_amount, maximum=limits.MAX_UNIX_TIME)]
Interval = tuple[Figures, Figures]


CONFIDENCE: Final = 0.95
"""Confidence level of each interval individually."""


def interval_half_width(confidence: float) -> float:
    """Return the half-width of a confidence interval in standard errors."""
    return -NormalDist().inv_cdf((1 - confidence) / 2)  # exact in the far tail, unlike 1 - …


def simultaneous_confidence(confidence: float, n_intervals: int) -> float:
    """Return the confidence each interval needs for all to hold at `confidence` (Bonferroni)."""
    return 1 - (1 - confidence) / max(1, n_intervals)


def interval_around(figures: Figures, reach: Figures) -> Interval:
    """Return both ends of each figure's interval, which reaches this far on either side."""
    return figures - reach, figures + reach


def _check_lengths(what: str, *lists: Sized) -> None:
    lengths = {len(each) for each in lists}
    if len(lengths) != 1:
        raise WireError(f"the lists of {what} have different lengths: {sorted(lengths)}")


MISS_STEP: Final = 10**0.1
"""Ratio of successive MISSES."""
MISSES: Final = MISS_STEP ** -np.arange(91.0)
"""Probabilities with which an interval misses, half on either side: from 1 down to 1e-9."""

_MAX_SHARES: Final = 1000
_TINY: Final = 1e-300


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IntervalTable:
    """
    How far an estimate may be from a true share, by the exact distribution of its count.

    An interval holds all shares f from which the estimate is at most `above` errors up and `below`
    errors down: f's own error and reaches, which is exact for rare items and few users too.
    """

    shares: Annotated[Numbers, partial(parse_figures, minimum=0, maximum=1)]
    """Ascending true shares, from 0 to 1."""
    errors: Errors
    """Standard error of an estimate of each of the shares, up to a common factor."""
    below: Figures
    """Reach below each share in errors, for each of the MISSES: flat, (shares · misses,)."""
    above: Figures
    """The same above each share."""

    def __post_init__(self) -> None:
        _check_lengths("a table of intervals", self.shares, self.errors)
        _check_lengths("its reaches", self.below, self.above, range(len(self.shares) * len(MISSES)))
        if not 2 <= len(self.shares) <= _MAX_SHARES or (np.diff(self.shares) <= 0).any():  # noqa: PLR2004  # two ends
            raise WireError(
                f"a table of intervals has {len(self.shares)} shares; it must have 2 to "
                f"{_MAX_SHARES}, ascending"
            )

    @classmethod
    def alike(cls, reaches: Figures) -> Self:
        """Return the table of intervals that reach as far on both sides of every share."""
        twice, ends = np.tile(reaches, 2), np.array([0.0, 1.0])
        return cls(shares=ends, errors=np.ones(2), below=twice, above=twice)

    def reaches(self, confidence: float) -> tuple[Figures, Figures]:
        """
        Return the reaches below and above each share, in errors, at a confidence below 1.

        Beyond the last of the MISSES they are extrapolated as for an exponential tail, which is too
        wide for lighter ones.
        """
        step = -math.log(1 - confidence) / math.log(MISS_STEP)
        first = min(int(step), len(MISSES) - 2)
        below, above = (
            (1 - step + first) * each[:, first] + (step - first) * each[:, first + 1]
            for each in (flat.reshape(len(self.shares), -1) for flat in (self.below, self.above))
        )
        return below, above

    def interval(self, estimates: Figures, errors: Figures, confidence: float) -> Interval:
        """Return the ends of each estimate's interval, from its standard error."""
        places = np.arange(2 * len(self.shares) - 1) / 2
        shares, square, below, above = (
            np.interp(places, places[::2], each)
            for each in (self.shares, self.errors**2, *self.reaches(confidence))
        )
        stated = np.sqrt(np.interp(estimates, shares, square))
        scale = np.divide(errors, stated, out=np.ones_like(errors), where=stated > 0)
        own = np.sqrt(square)
        return (
            _share_at(estimates, shares, scale, above * own),
            _share_at(estimates, shares, scale, -below * own),
        )


def _share_at(estimates: Figures, shares: Figures, scale: Figures, reach: Figures) -> Figures:
    """Return the share f at which f + scale · reach(f) is the estimate; linear between shares."""
    at = shares[0] + scale * reach[0]
    found: Figures = np.minimum(estimates - at, 0.0) + shares[0]
    for last, share, far in zip(shares, shares[1:], reach[1:], strict=False):
        before, at = at, share + scale * far
        part = (estimates - before) / np.maximum(at - before, _TINY)
        found += (share - last) * np.clip(part, 0.0, 1.0)
    found += np.maximum(estimates - at, 0.0)
    return found


NORMAL: Final = IntervalTable.alike(np.array([-NormalDist().inv_cdf(m / 2) for m in MISSES]))
"""The table of estimates that are practically normal."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Histogram:
    """The share of each item."""

    frequencies: Figures
    """Unbiased shares, one per item; may be negative. Their sum is 1, in results of earlier
    versions about 1."""
    standard_errors: Errors
    """Standard errors of these shares. Confidence intervals are around them, not the refined."""
    refined: Annotated[Numbers, partial(parse_figures, minimum=0, maximum=_MAX_REFINED)]
    """A distribution: at least 0, sum 1. Usually more accurate, but biased."""
    mse_theory: _Mse
    """Mean over items of the unbiased shares' variance."""
    table: IntervalTable = NORMAL
    """Intervals that are not `standard_errors` of a normal distribution on either side."""

    def __post_init__(self) -> None:
        _check_lengths("a histogram", self.frequencies, self.standard_errors, self.refined)

    def interval(self, confidence: float) -> Interval:
        """Return the ends of each item's confidence interval; not simultaneous."""
        return self.table.interval(self.frequencies, self.standard_errors, confidence)

    def half_width(self, confidence: float, share: float = 0.0) -> float:
        """Return how far the wider side of an interval reaches from a share, in its errors."""
        wider = np.maximum(*self.table.reaches(confidence))
        return float(np.interp(share, self.table.shares, wider))

    def any_share_above_zero(self, confidence: float) -> bool:
        """
        Return whether any item's share is distinguishable from 0, by simultaneous intervals.

        With many absent items, some of their single intervals lie above 0 by chance.
        """
        low, _ = self.interval(simultaneous_confidence(confidence, len(self.frequencies)))
        return bool((low > 0).any())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Means:
    """The mean of each number over all people, in the units of the task's range."""

    means: Figures
    """Unbiased means, which may lie outside the range."""
    standard_errors: Errors
    """Standard errors from noise and random rounding. Confidence intervals are around `means`."""
    shrunk: Figures
    """Means shrunk towards the middle of the range by the noise, and clipped to the range. Usually
    more accurate with many numbers and few people, but biased."""
    mse_theory: _Mse
    """Mean over numbers of the squared standard errors."""
    rounding_error: _Error = 0.0
    """The part of each standard error that random rounding has at most: the square of a standard
    error is the sum of its square and the noise's variance. 0.0 where it is negligible."""
    unbiased: bool = True
    """Whether the means are unbiased; if not (projections), there are no confidence intervals."""

    def __post_init__(self) -> None:
        _check_lengths("means", self.means, self.standard_errors, self.shrunk)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Owners:
    """The share of people who own each key, and the owners' mean value, in the range's units."""

    frequencies: Figures
    """Unbiased shares of people who own a key; may lie outside 0 .. 1."""
    frequency_errors: Errors
    """Standard errors of the shares."""
    means: Figures
    """Mean value of each key's owners, corrected for fakes by estimated shares: biased towards the
    middle of the range by a tenth of half of it where a share is 5 times its standard error, and by
    more below."""
    mean_errors: Errors
    """Standard errors of the means."""

    def __post_init__(self) -> None:
        lists = (self.frequencies, self.frequency_errors, self.means, self.mean_errors)
        _check_lengths("estimates of owners", *lists)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeyValues:
    """Estimated mean of each key's values and, where reports reveal it, the share of its owners."""

    means_with_fakes: Figures
    """Mean of each key's reported values, in the units of the range; biased towards the fakes of
    people who do not own the key [YHMZ19]. PrivKVM's next iteration starts from these means."""
    errors_with_fakes: Errors
    """Standard errors that ignore the bias of fakes, so no confidence interval follows."""
    reports: _Counts
    """Number of reports about each key. If there are none, the key's share and means are the middle
    of their range, and their errors are half the range."""
    owners: Owners | None
    """None if reports reveal nothing about owners, as in later iterations of PrivKVM."""

    def __post_init__(self) -> None:
        owners = () if self.owners is None else (self.owners.means,)
        lists = (self.means_with_fakes, self.errors_with_fakes, self.reports, *owners)
        _check_lengths("key-value estimates", *lists)
        limits.parse_positive("the number of keys", len(self.reports), MAX_DOMAIN_SIZE)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BitTable:
    """Bit counts of texts' filters, from which candidate texts are decoded."""

    cohort_sizes: NDArray[np.int64]
    """Number of reports of each cohort, shape (cohorts,)."""
    bit_counts: NDArray[np.int64]
    """Number of each cohort's reports that set each bit, shape (cohorts, bits)."""

    def __post_init__(self) -> None:
        _check_lengths("a table of bits", self.cohort_sizes, self.bit_counts)
        if self.bit_counts.ndim != 2:  # noqa: PLR2004  # an axis of cohorts and one of bits
            raise WireError(
                f"a table of bits has {self.bit_counts.ndim} dimensions; it must have 2"
            )
        if (self.bit_counts > self.cohort_sizes[:, np.newaxis]).any():
            raise WireError("a bit is set in more reports than its cohort has")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FoundValues:
    """The frequent values of an open dictionary; rare ones cannot be found."""

    values: Annotated[
        tuple[bytes, ...],
        partial(limits.parse_texts, noun="a found value", length=MAX_SPELLED_BYTES),
    ]
    """Codes, most frequent first; of a task that spells texts, the texts in UTF-8."""
    shares: Figures
    """Share of users with each value, from users whose report covers all of it."""
    standard_errors: Errors
    """Standard errors of the shares: noise and the choice of these users."""
    reports: _Counts
    """Number of reports of each level."""
    sure_share: _Share
    """Share from which a value is found with 95 % probability, or more if texts are spelled; 1 if
    too few users took part."""
    least_share: _Share
    """Share below which nothing was found, at most 1: what the critical counts stand for. 0 if
    texts are spelled, which have no critical counts."""
    expected_false: Annotated[float, partial(limits.parse_amount, maximum=MAX_DOMAIN_SIZE)]
    """At most this many of the values found are held by nobody, in expectation."""
    overfull: bool = False
    """Whether a level left out prefixes because too many seemed frequent."""

    def __post_init__(self) -> None:
        _check_lengths("found values", self.values, self.shares, self.standard_errors)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShareTable:
    """The shares of all cells of one view of several attributes, or of one attribute's values."""

    shares: Figures
    """Unbiased shares, flat, the last attribute fastest; may be negative. Their sum is 1."""
    standard_error: Annotated[float, partial(limits.parse_amount, maximum=MAX_FIGURE)]
    """Standard error of each of the shares."""
    table: IntervalTable = NORMAL
    """Intervals that are not `standard_error` of a normal distribution on either side."""

    def __post_init__(self) -> None:
        limits.parse_positive("the number of a table's cells", len(self.shares), MAX_DOMAIN_SIZE)

    def interval(self, confidence: float) -> Interval:
        """Return the ends of each share's confidence interval; not simultaneous."""
        errors = np.full(len(self.shares), self.standard_error)
        return self.table.interval(self.shares, errors, confidence)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShareTables:
    """
    Tables of several attributes: shares that agree wherever tables have an attribute in common.

    The errors of a table's shares are those of the margins of its attributes, and of what neither
    margin explains; the three are independent, and so are different attributes and tables.
    """

    tables: tuple[ShareTable, ...]
    """The cells of each table, in the task's order."""
    attributes: tuple[ShareTable, ...]
    """The values of each attribute: the margins of every table that has it."""
    mse_theory: _Mse
    """Mean over the cells of all tables of the squared standard errors."""

    def __post_init__(self) -> None:
        limits.parse_positive("the number of tables", len(self.tables), MAX_TABLES)
        limits.parse_positive("the number of attributes", len(self.attributes), MAX_ATTRIBUTES)


Estimate = Histogram | Means | KeyValues | BitTable | FoundValues | ShareTables


RefusalCause = Literal["repeated", "unreadable", "malformed", "discarded"]
"""Reasons to refuse a report: its ciphertext is a repeat or does not open, its content is not an
output of the task's mechanism, or a relay found its layer to be a repeat or not to open."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Result:
    """The released result of a task's one batch."""

    task_digest: TaskDigest
    protocol: str
    mechanism: str
    buckets: int
    """`buckets` of a mechanism for items, see MechanismSpec; 0 for any other."""
    local_epsilon: Annotated[float, partial(limits.parse_amount, maximum=math.inf)]
    n_users: UserCount
    """Users in the batch by the shuffler's manifest, without sentinels."""
    n_reports: int
    """Sealed reports that arrived, and layers that a relay discarded: users' reports, dummies and
    null reports, but no sentinels'."""
    n_dummies: int
    """Counted reports minus the users' own reports. Exact if nothing was refused and the shuffler
    only permutes. Otherwise it is a rounded expectation; see `mixture_of` in analyzer/finalize.py
    for its assumptions."""
    refused: Annotated[
        Mapping[RefusalCause, int], partial(limits.parse_refused, causes=get_args(RefusalCause))
    ]
    """Reports that were not counted, by cause; included in n_reports."""
    estimate: Estimate
    guarantees: tuple[Guarantee, ...]
    published_claim: str
    """The claim of the protocol's paper against the analyzer, in words."""
    open_seconds: _Seconds
    """Duration of opening and counting the reports."""
    estimate_seconds: _Seconds
    """Duration of estimating and computing the guarantees."""
    n_sentinels: int = 0
    """Sentinels, operators' test submissions, that the shuffler acknowledged. They are removed
    before anything is counted: n_users, n_reports and the estimate exclude them."""
    n_sentinels_missing: int = 0
    """Acknowledged sentinels with a report missing from the batch. Above 0 only if the shuffler
    samples, or if the operator released the batch from quarantine."""
    warnings: tuple[str, ...] = ()
    """What the batch shows that honest users do not explain, in sentences; and the operator's note
    if it was released from quarantine."""
    n_sentinels_repeated: int = 0
    """Further copies of sentinels' reports. Unlike first copies, they count in n_reports and as
    refused."""
    waived: Waived = NONE_WAIVED
    """The checks that the batch failed; the guarantees do not rely on them."""

    @property
    def all_warnings(self) -> tuple[str, ...]:
        """The analyzer's warnings, and one of a δ that is too large for so many users."""
        delta = max((guarantee.delta for guarantee in self.guarantees), default=0.0)
        return (*delta_warnings(delta, self.n_users), *self.warnings)

    @property
    def histogram(self) -> Histogram:
        """The estimate of a task that collects items; raises WireError for any other kind."""
        if not isinstance(self.estimate, Histogram):
            raise WireError(f"the protocol {self.protocol} estimates no distribution of items")
        return self.estimate
