"""
A task: what is collected and under which parameters. Immutable, signed by the analyzer, and
identified by the SHA-256 of its bytes exactly as published.

One task is one round and one release; each further round needs a new task. The bytes are canonical
JSON (see `shuffledp.common.task.canonical`), so that an auditor can read the promises made to
every device.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from numbers import Real
from typing import Any, Final, Self, get_args

import numpy as np

from shuffledp.common import dates, limits, protocols
from shuffledp.common.crypto.hpke import DEFAULT_SUITE, SUITES, suite_named
from shuffledp.common.crypto.signing import PublicIdentity, SignedTask
from shuffledp.common.errors import ProofError, TaskError
from shuffledp.common.task import canonical, domain_spec, named_dummies, specs, task_parts
from shuffledp.common.task.dummy_forms import AnyDummies
from shuffledp.common.task.kinds import KINDS
from shuffledp.common.task.labels import check_labels
from shuffledp.common.task.protocol_rules import check_domain_size, check_protocol_rules
from shuffledp.common.task.shuffler_spec import sum_of
from shuffledp.common.task.shuffling import Shuffling
from shuffledp.common.task.spec_forms import AnySpec, spec_as
from shuffledp.common.task.token_spec import TokenSpec
from shuffledp.common.task_digest import TaskDigest

FORMAT_VERSION: Final = 2
_OLD_VERSION: Final = 1
_PARSE_ERRORS: Final = (ValueError, TypeError, KeyError, AttributeError, OverflowError)
"""Exceptions, besides TaskError, that the fields of an arbitrary task may raise."""
NONCE_BYTES: Final = 32
SUBMISSION_ID_BYTES: Final = 16

MIN_DELTA: Final = 1e-15
MIN_COMPOSED_DELTA: Final = 1e-12
"""Minimum δ of several releases or views: below it, rounding of Fourier transforms dominates."""

_PER_PUBLICATION: Final = frozenset(
    {"analyzer_key", "shufflers", "nonce", "tokens", "title", "purpose", "round"}
    | {"central_epsilon", "coalition_epsilon"}
)
"""Fields in which two tasks from one draft may differ."""
MOST_CHARACTERS: Final = {"title": 80, "prompt": 500, "purpose": 1000, "series": 64}
"""Maximum length of each text that a person is shown, by field."""
FOR_PEOPLE: Final = (*MOST_CHARACTERS, "round")
"""Fields that a person is shown; they may be empty."""
MAX_ROUND: Final = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """
    The parameters that all parties agree on for one round.

    A Task checks its fields when it is created. Further rules for the mechanism's integers are
    checked when the mechanism is built from its spec.
    """

    protocol: str
    views: tuple[task_parts.TaskView, ...]
    """The histograms that every user reports to: one for each level of a hierarchy, the coarsest
    first; for each digit of a number; for each pair of attributes; otherwise one."""
    labels: tuple[str, ...] = ()
    """Names of the items, numbers or keys; may be empty."""
    mechanism: AnySpec
    shufflers: tuple[task_parts.TaskShuffler, ...]
    """The shufflers that reports pass, in order: one, or a chain of two."""
    delta: float
    n_min: int
    """Minimum number of users in a released batch."""
    target_size: int
    """Number of users at which the batch closes, even before the deadline."""
    deadline: int
    """Seconds since 1970 UTC. The batch then closes, or expires with fewer than n_min users."""
    assumed_honest_fraction: float
    """Share of honest users that every guarantee assumes."""
    local_epsilon: float
    """Claimed ε of a user if nobody else is honest. Infinite if reports have no noise."""
    central_epsilon: float
    """Claimed ε at `delta`, with ⌊n_min · assumed_honest_fraction⌋ honest users and an honest
    shuffler. Always finite."""
    coalition_epsilon: float
    """Claimed ε at `delta` against the analyzer together with any one of two shufflers; with one
    shuffler, the local ε."""
    suite: str
    """HPKE suite of all layers: reports are sealed to the analyzer's key, then to the relay's if
    there is one, and envelopes to the shuffler's."""
    analyzer_key: bytes
    nonce: bytes
    population: str = ""
    """Name of the group of people asked. Costs of tasks for one population are composed; different
    populations are assumed disjoint. If empty, the operator asserts that nobody is asked again."""
    budget_epsilon: float
    """Maximum composed central ε, at `budget_delta`, of all releases to this population, including
    this task's."""
    budget_delta: float
    tokens: TokenSpec | None = None
    """The one-time tokens that submissions must spend; None if anybody may submit any number."""
    edges: domain_spec.EdgesSpec | None = None
    """Edges of the buckets, if the items are ordered buckets of numbers."""
    breakdown: domain_spec.BreakdownSpec | None = None
    """The public attribute that the items are broken down by; None for none."""
    title: str = ""
    prompt: str = ""
    """The question that a person is asked."""
    purpose: str = ""
    """What the result is for. Title, prompt and purpose, which may be empty, are for a person."""
    series: str = ""
    """Name of the series of tasks that this task is a round of; empty for none."""
    round: int = 0
    """Number of the round in the series, from 1; 0 without a series."""

    def __post_init__(self) -> None:
        self._check_lists()
        check_domain_size(self.domain_size, self.kind)  # first, since other rules multiply by it
        check_protocol_rules(
            self.protocol_row,
            self.mechanism,
            self.dummies,
            self.shuffler,
            domain_size=self.domain_size,
            labels=self.labels,
        )
        check_labels(self.labels, self.domain_size)
        self._check_domain()
        if not self.least_delta <= specs.check_float("delta", self.delta) < 1:
            least = f"{self.least_delta}{' with several views' * (len(self.views) > 1)}"
            raise TaskError(f"delta is {self.delta}; it must be at least {least} and below 1")
        specs.check_int_range("n_min", self.n_min, 1, limits.MAX_USERS)
        specs.check_int_range("target_size", self.target_size, self.n_min, limits.MAX_USERS)
        specs.check_int_range("deadline", self.deadline, 1, limits.MAX_UNIX_TIME)
        specs.check_open_range(
            "assumed_honest_fraction", self.assumed_honest_fraction, 0.0, 1.0, or_high=True
        )
        self._check_claims()
        specs.check_choice("the suite", self.suite, tuple(SUITES))
        key_bytes = suite_named(self.suite).public_key_bytes
        for name, value, length in (
            ("analyzer_key", self.analyzer_key, key_bytes),
            ("nonce", self.nonce, NONCE_BYTES),
        ):
            if len(value) != length:
                raise TaskError(f"{name} has {len(value)} bytes; it must have {length}")
        task_parts.check_keys(self.shufflers, key_bytes, self.deadline)
        self._check_texts()
        if self.tokens is not None and self.deadline > self.tokens.end:
            raise TaskError(
                f"deadline is {dates.utc(self.deadline)}; the issuer signs tokens of this key "
                f"until {dates.utc(self.tokens.end)}"
            )
        if self.envelope_sizes[-1] > limits.MAX_ENVELOPE_BYTES:
            raise TaskError(
                f"a submission would have {self.envelope_sizes[-1]} bytes; "
                f"the limit is {limits.MAX_ENVELOPE_BYTES}"
            )
        self._check_budget()

    def _check_lists(self) -> None:
        """Check the views, and the number of shufflers and of their noise."""
        if not self.views:
            raise TaskError(f"the task has 0 views; the protocol {self.protocol} needs one or more")
        needed = self.mechanism.view_sizes(self.domain_size, self.groups)
        if needed != self.view_sizes:
            found, wanted = (", ".join(map(str, sizes)) for sizes in (self.view_sizes, needed))
            raise TaskError(
                f"the task has {len(self.views)} views, of {found} items; this mechanism with a "
                f"domain_size of {self.domain_size} needs {len(needed)}, of {wanted}"
            )
        task_parts.check_shufflers(self.protocol_row, self.shufflers, len(self.views))

    def _check_texts(self) -> None:
        for name, most in MOST_CHARACTERS.items():
            specs.check_printable(name, getattr(self, name), most, ascii_only=False)
        specs.check_int_range("round", self.round, int(self.series != ""), MAX_ROUND)
        if self.round and not self.series:
            raise TaskError(f"round is {self.round}; a task without a series must leave it out")

    def _check_domain(self) -> None:
        """Check that edges and breakdown fit the protocol and the number of items."""
        if self.kind == "ordered" and self.edges is None:
            raise TaskError(f"the protocol {self.protocol} needs a table [edges]")
        if not self.protocol_row.collects(self.kind) or (self.edges and self.labels):
            raise TaskError(
                f"edges need a protocol for any number of items, and no labels; the protocol is "
                f"{self.protocol}, and the task has {len(self.labels)} labels"
            )
        if self.breakdown is not None and not KINDS[self.kind].histogram:
            raise TaskError(f"a breakdown is for items; the protocol {self.protocol} has none")
        size = self.edges.size if self.edges else self.domain_size // self.groups
        if size * self.groups != self.domain_size:
            raise TaskError(
                f"domain_size is {self.domain_size}; it must be {self.groups} groups of {size} "
                "items"
            )
        if self.breakdown is not None:
            if self.refinement == "ems":
                raise TaskError(
                    f"the protocol {self.protocol} smooths across groups; its tasks have no "
                    "breakdown"
                )
            for item, label in enumerate(self.labels):
                _, _, name = self.labels[item % size].partition(domain_spec.GROUP_SEPARATOR)
                group = self.breakdown.groups[item // size]
                if label != f"{group}{domain_spec.GROUP_SEPARATOR}{name}":
                    raise TaskError(
                        f"the label of item {item} must name its group, {group}, and then the same "
                        f"as that of item {item % size}"
                    )

    def _check_budget(self) -> None:
        specs.check_printable("population", self.population, limits.MAX_POPULATION_CHARACTERS)
        if not 0 < specs.check_float("budget_epsilon", self.budget_epsilon) < math.inf:
            raise TaskError(
                f"budget_epsilon is {self.budget_epsilon}; it must be above 0 and finite"
            )
        if self.lasting and not self.population:
            raise TaskError(
                "a question that may be asked again spends its population's budget: population "
                "must not be empty"
            )
        if self.budget_epsilon < self.central_epsilon:
            raise TaskError(
                f"budget_epsilon is {self.budget_epsilon}; this task alone claims a "
                f"central_epsilon of {self.central_epsilon}"
            )
        if not self.delta <= specs.check_float("budget_delta", self.budget_delta) < 1:
            raise TaskError(
                f"budget_delta is {self.budget_delta}; it must be at least delta, {self.delta}, "
                "and below 1"
            )

    def _check_claims(self) -> None:
        check_local_epsilon(specs.check_float("local_epsilon", self.local_epsilon))
        spec = self.mechanism
        if spec.noiseless != math.isinf(self.local_epsilon):
            if not spec.noiseless and not isinstance(spec, specs.MechanismSpec):
                raise TaskError(
                    f"local_epsilon is {self.local_epsilon}; for the mechanism {spec.name} it must "
                    f"be {'in' * spec.noiseless}finite"
                )
            noise = "no local noise" if spec.noiseless else "local noise"
            raise TaskError(
                f"local_epsilon is {self.local_epsilon}, and reports have {noise}; it must be "
                "infinite if and only if they have none"
            )
        if math.isinf(specs.check_float("central_epsilon", self.central_epsilon)):
            raise TaskError(
                f"central_epsilon is {self.central_epsilon}: the task would guarantee nothing; "
                f"it needs {self._remedy()}"
            )
        claimed = self.central_epsilon
        if claimed != self.local_epsilon and not self.amplified and claimed > 0:
            lasting = " for a lasting question" * self.protocol_row.amplified
            raise TaskError(
                f"the protocol {self.protocol}{lasting} relies on no shuffler; central_epsilon is "
                f"{claimed}, and must equal local_epsilon, {self.local_epsilon}"
            )
        if not 0 <= self.central_epsilon <= self.local_epsilon:
            raise TaskError(
                f"central_epsilon is {self.central_epsilon}; it must lie between 0 and "
                f"local_epsilon, {self.local_epsilon}"
            )
        coalition = specs.check_float("coalition_epsilon", self.coalition_epsilon)
        fits = coalition == self.local_epsilon
        rule = f"with one shuffler it must equal local_epsilon, {self.local_epsilon}"
        if self.relay:
            fits = 0 < coalition < math.inf and coalition >= claimed
            rule = "with two shufflers it must be finite, above 0 and at least central_epsilon, "
            rule += str(claimed)
        if not fits:
            raise TaskError(f"coalition_epsilon is {coalition}; {rule}")

    def _remedy(self) -> str:
        noiseless = self.protocol_row.local_noise == "none"
        if noiseless and self.protocol_row.shuffler_distribution != "none":
            return "a shuffler that adds more dummies of each item"
        noise = "" if noiseless else "local noise, "
        return f"{noise}more dummies, or a larger n_min than {self.n_min}"

    @property
    def domain_size(self) -> int:
        """Number of items, vector components or keys."""
        return self.mechanism.domain_size_of(self.view_sizes)

    @property
    def dummies(self) -> AnyDummies:
        """The distribution of the users' dummies of all views together."""
        return _dummies_of(self.views) if len(self.views) > 1 else self.views[0].dummies

    @property
    def shuffler(self) -> Shuffling:
        """What all shufflers together drop, and add to each view."""
        return self.hop(*range(len(self.shufflers)))

    def hop(self, *places: int) -> Shuffling:
        """Return what the shufflers at these places drop and add; 0 is the first."""
        chosen = [self.shufflers[place] for place in places]
        of_views = zip(*(each.noises for each in chosen), strict=True)
        return Shuffling(
            keep_weight=chosen[0].keep_weight,
            sizes=self.view_sizes,
            noises=tuple(map(sum_of, of_views)),
        )

    @property
    def relay(self) -> task_parts.TaskShuffler | None:
        """The second shuffler, which receives the reports of the first; None without it."""
        return self.shufflers[1] if len(self.shufflers) > 1 else None

    @property
    def shuffler_key(self) -> bytes:
        """The shuffler's key for envelopes."""
        return self.shufflers[0].key

    @property
    def protocol_row(self) -> protocols.ProtocolRow:
        """The protocol's row in the table of protocols."""
        return protocols.protocol_named(self.protocol)

    @property
    def kind(self) -> protocols.Kind:
        """The kind of one person's value."""
        return "ordered" if self.edges else self.protocol_row.kind

    @property
    def groups(self) -> int:
        """Number of groups of the breakdown; 1 without a breakdown."""
        return domain_spec.group_count(self.breakdown)

    @property
    def view_sizes(self) -> tuple[int, ...]:
        """Number of items of each view."""
        return tuple(view.domain_size for view in self.views)

    @property
    def least_delta(self) -> float:
        """Minimum δ for which the accountant has a bound."""
        return MIN_DELTA if len(self.views) == 1 else MIN_COMPOSED_DELTA

    @property
    def amplified(self) -> bool:
        """
        Whether the central claim relies on the shuffler; if not, it equals the local ε.

        Reports of a lasting question are dependent, so amplified costs do not compose.
        """
        return self.protocol_row.amplified and not self.lasting

    @property
    def texts(self) -> Mapping[str, str]:
        """What a person is shown before they answer, by field; empty if not stated."""
        return {name: getattr(self, name) for name in MOST_CHARACTERS}

    @property
    def lasting(self) -> bool:
        """Whether this task shares permanent noise with other tasks of its population."""
        return getattr(self.mechanism, "lasting_question", "") != ""

    @property
    def permanent_scope(self) -> bytes:
        """
        The encoded fields that a task's permanent responses depend on.

        Two tasks share a person's response to a text if and only if they have the same population,
        question, labels, encoding, bits, hashes, cohorts and permanent weight. Raises TaskError if
        the task does not collect texts.
        """
        spec = spec_as(self.mechanism, specs.RapporSpec)
        shape = (spec.encoding, spec.bits, spec.hashes, spec.cohorts, spec.permanent_weight)
        # JSON encodes different lists of names differently.
        named = [self.population, spec.lasting_question, *self.labels]
        return b"question " + json.dumps([shape, named]).encode()

    def asks_like(self, other: Self) -> bool:
        """
        Return whether both tasks ask the same people the same until the same deadline.

        They may differ in keys, tokens and nonce, in the claims against the analyzer, which are
        computed, in the round, and in title and purpose: a corrected word asks nothing else.
        """
        names = self.__dataclass_fields__.keys() - _PER_PUBLICATION
        same = all(getattr(self, name) == getattr(other, name) for name in names)
        ours, theirs = (
            [replace(each, key=b"", proof=b"") for each in task.shufflers] for task in (self, other)
        )
        return same and ours == theirs

    @property
    def refinement(self) -> protocols.Refinement:
        """
        The refinement of the estimate; raises TaskError if the task does not collect items.

        Norm-Sub if a hashing protocol reports plain items: EM would be hardly more accurate, and
        less accurate if many items are rare.
        """
        own = self.mechanism.name == self.protocol_row.mechanism
        refinement = self.protocol_row.refinement if own else "norm-sub"
        if refinement is None:
            raise TaskError(f"the protocol {self.protocol} estimates no distribution of items")
        return refinement

    @property
    def item_mechanism(self) -> specs.MechanismSpec:
        """The mechanism of a task that collects items; raises TaskError for any other kind."""
        return spec_as(self.mechanism, specs.MechanismSpec)

    @property
    def lengths(self) -> tuple[int, ...]:
        """
        Numbers of sealed reports that a submission may have, ascending.

        A device pads the user's own reports and dummies to the next of them with null reports.
        """
        return tuple(self.own_reports + number for number in self.dummies.lengths)

    @property
    def own_reports(self) -> int:
        """Number of reports of a user's own value: one for each view."""
        return len(self.views)

    @property
    def sealed_report_bytes(self) -> int:
        """Bytes of every sealed report of this task, as the analyzer receives it."""
        return self.report_bytes_at(len(self.shufflers))

    @property
    def sent_report_bytes(self) -> int:
        """Bytes of every report that a device sends: a sealed one, under a layer for each relay."""
        return self.report_bytes_at(0)

    def report_bytes_at(self, hop: int) -> int:
        """Return the bytes of a report at a shuffler, or beyond them at the analyzer; 0 first."""
        layers = 1 + max(0, len(self.shufflers) - max(hop, 1))
        return self.mechanism.report_bytes + layers * suite_named(self.suite).overhead_bytes

    @property
    def envelope_sizes(self) -> tuple[int, ...]:
        """Bytes of an envelope of each of the `lengths`."""
        empty, each = envelope_bytes(0, 0, self.suite), self.sent_report_bytes
        return tuple(empty + length * each for length in self.lengths)

    @property
    def expected_reports_per_user(self) -> float:
        """Average number of sealed reports of a submission, padding included."""
        return float(self.dummies.length_probabilities() @ np.array(self.lengths))

    @property
    def expected_envelope_bytes(self) -> float:
        """Average bytes of an envelope."""
        return float(self.dummies.length_probabilities() @ np.array(self.envelope_sizes))

    @property
    def most_leaves(self) -> int:
        """Maximum number of reports of a batch; it may close somewhat after target_size."""
        users = 2 * self.target_size + 1000
        return users * self.lengths[-1] + self.hop(0).most_dummies

    def to_bytes(self) -> bytes:
        """Return the canonical bytes to sign and publish; raise TaskError above MAX_TASK_BYTES."""
        return canonical.encode("task", self, version=FORMAT_VERSION, kind=self.kind)

    @classmethod
    def verified(
        cls, signed: SignedTask, digest: TaskDigest, identity: PublicIdentity | None
    ) -> Self:
        """
        Verify and parse a task from another party. Run by the user agent and by the shuffler.

        `identity` is the pinned analyzer's; None, in simulations, skips the signature. Raises
        ProofError if the task's digest is another or `identity` did not sign it; TaskError if the
        task is invalid.
        """
        if signed.digest() != digest:
            raise ProofError("the answer is not the requested task")
        if identity is not None:
            identity.verify(signed)
        return cls.from_bytes(signed.task_bytes)

    @classmethod
    def from_bytes(cls, task_bytes: bytes) -> Self:
        """Parse a published task; raise TaskError unless the bytes are its canonical form."""
        fields = canonical.decode("task", task_bytes)
        try:
            task = cls._from_fields(fields)
            read_back = task.to_bytes()
        except _PARSE_ERRORS as error:
            raise TaskError("the bytes are not a valid task") from error
        if read_back != task_bytes:
            raise TaskError("the task is not in canonical form")
        return task

    @classmethod
    def _from_fields(cls, fields: dict[str, Any]) -> Self:
        version, kind = fields.pop("version"), fields.pop("kind")
        if version == _OLD_VERSION:
            raise TaskError(
                f"task format {_OLD_VERSION} is no longer read: let a former version finish the "
                "task, and publish it again for later answers"
            )
        kinds = get_args(protocols.Kind)
        if version != FORMAT_VERSION or kind not in kinds:
            raise TaskError(
                f"this program reads version {FORMAT_VERSION} of tasks of the kinds "
                f"{', '.join(kinds)}"
            )
        task: Self = canonical.from_json(cls, fields)
        return task


@lru_cache(maxsize=64)
def _dummies_of(views: tuple[task_parts.TaskView, ...]) -> named_dummies.ViewDummies:
    return named_dummies.ViewDummies.of_views([view.dummies for view in views])


_LISTED: Final = 4


def listed(numbers: Sequence[int]) -> str:
    """Return ascending numbers for a message: all of a few, or the first and the last."""
    if len(numbers) > _LISTED:
        return f"{numbers[0]} to {numbers[-1]}"
    return " or ".join(map(str, numbers))


def envelope_bytes(report_bytes: int, reports_per_user: int, suite: str = DEFAULT_SUITE) -> int:
    """Return the length of a submission's envelope, in bytes."""
    overhead = suite_named(suite).overhead_bytes
    return SUBMISSION_ID_BYTES + reports_per_user * (report_bytes + overhead) + overhead


def check_local_epsilon(local_epsilon: float) -> float:
    """Return a local ε; raise TaskError unless it is in (0, MAX_LOCAL_EPSILON] or infinite."""
    if not isinstance(local_epsilon, Real) or isinstance(local_epsilon, bool):
        raise TaskError("local_epsilon must be a number")
    if not (0 < local_epsilon <= limits.MAX_LOCAL_EPSILON or local_epsilon == math.inf):
        raise TaskError(
            f"local_epsilon is {local_epsilon}; it must be above 0.0 and at most "
            f"{limits.MAX_LOCAL_EPSILON}, or infinite for reports without noise"
        )
    return float(local_epsilon)


def honest_share(n_users: int, fraction: float) -> int:
    """Return ⌊n_users · fraction⌋, exact for the decimal in a task's bytes: .9 of 10 is 9."""
    numerator, denominator = Fraction(repr(fraction)).as_integer_ratio()
    return n_users * numerator // denominator


@lru_cache(maxsize=8)
def cached_task(task_bytes: bytes) -> Task:
    """Parse a task, or return a recent one; two megabytes take a third of a second."""
    return Task.from_bytes(task_bytes)
