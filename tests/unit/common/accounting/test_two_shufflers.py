"""What two shufflers' noise hides, together and alone, against enumeration."""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import pytest
from scipy import optimize

from shuffledp.common.accounting.claims import (
    check_central_claim,
    check_coalition_claim,
    delta_at_claim,
)
from shuffledp.common.accounting.epsilon_search import gaussian_epsilon
from shuffledp.common.accounting.guarantees import claimed_release, guarantees, published_claim
from shuffledp.common.accounting.item_noise import ItemNoiseRelease
from shuffledp.common.accounting.privacy_parameters import PrivacyParameters
from shuffledp.common.errors import AccountingError, PolicyError
from shuffledp.common.messages.guarantee import Waived
from shuffledp.common.task.shuffler_spec import (
    RATIO_SUM,
    BinomialNoise,
    GeometricNoise,
    ItemNoise,
    ShufflerSpec,
    SummedNoise,
)
from shuffledp.lab.planning.item_dummies import least_geometric
from tests.support.chains import COINS, chain
from tests.support.reductions import geometric_noise
from tests.support.tasks import published
from tests.support.tokens import TOKENS

_NOISE: Final = geometric_noise(1, 0.5, 0.25, 2)
_OTHER: Final = 0
"""The item of the only other user, whom every coalition knows."""
_EPSILONS: Final = (0.0, 0.4, 1.0, 2.5)

Layer = tuple[str, int]
Seen = tuple[int, ...]


def _added() -> Iterator[tuple[Seen, float]]:
    """Yield the numbers of dummies of both items, with their probability."""
    chances = _NOISE.probabilities().tolist()
    for z in itertools.product(range(_NOISE.most + 1), repeat=2):
        yield z, chances[z[0]] * chances[z[1]]


def _delta(seen: Callable[[int], Mapping[Seen, float]], epsilon: float) -> float:
    """Return the larger δ of both orders of the victim's items 0 and 1."""
    found = [seen(0), seen(1)]
    return max(
        sum(max(0.0, p - math.exp(epsilon) * other.get(key, 0.0)) for key, p in one.items())
        for one, other in itertools.permutations(found)
    )


def _honest_second(layers: list[Layer], *, drops_repeats: bool) -> Mapping[Seen, float]:
    """Return the distribution of the counts that an honest second shuffler delivers."""
    opened = [item for _, item in (set(layers) if drops_repeats else layers)]
    found = defaultdict[Seen, float](float)
    for z, chance in _added():
        found[tuple(opened.count(item) + z[item] for item in (0, 1))] += chance
    return found


def _first_shufflers() -> Iterator[Callable[[int], list[Layer]]]:
    """Yield what a dishonest first shuffler may forward: copies, and reports that it made up."""
    for victims, others, zeros, ones in itertools.product(range(3), range(3), range(2), range(3)):
        yield lambda value, v=victims, o=others, made=(zeros, ones): [  # type: ignore[misc]
            *(("victim", value),) * v,
            *(("other", _OTHER),) * o,
            *((f"made up {n}", item) for item in (0, 1) for n in range(made[item])),
        ]


def test_a_dishonest_first_shuffler_learns_no_more_than_the_seconds_noise_allows() -> None:
    """
    It drops, repeats and invents reports; of all behaviours the worst is exactly the claim.

    If the second shuffler kept repeats, a victim forwarded twice would be worth more.
    """
    release = ItemNoiseRelease.of_shuffler(ShufflerSpec(noise=_NOISE))
    for epsilon in _EPSILONS:
        true, kept = (
            max(
                _delta(lambda v, s=sent, d=drops: _honest_second(s(v), drops_repeats=d), epsilon)  # type: ignore[misc]
                for sent in _first_shufflers()
            )
            for drops in (True, False)
        )

        assert true * (1 - 1e-12) <= release.delta(epsilon) <= true * (1 + 1e-9)
        assert kept > 1.05 * true


def _from_first(value: int) -> Mapping[Seen, float]:
    """Return the distribution of the reports, in order, that an honest first shuffler sends."""
    found = defaultdict[Seen, float](float)
    for z, chance in _added():
        counts = Counter({0: z[0], 1: z[1]}) + Counter([value, _OTHER])
        orders = set(itertools.permutations(counts.elements()))
        for order in orders:
            found[order] += chance / len(orders)
    return found


def test_a_dishonest_second_shuffler_learns_no_more_than_the_firsts_noise_allows() -> None:
    """All that it could deliver follows from the reports, in their order, that it received."""
    release = ItemNoiseRelease.of_shuffler(ShufflerSpec(noise=_NOISE))
    for epsilon in _EPSILONS:
        assert _delta(_from_first, epsilon) * (1 - 1e-12) <= release.delta(epsilon)


def _ratio(noise: ItemNoise, epsilon: float) -> float:
    """Return the variance of an item's noise over that of central Gaussian noise at this ε."""
    mu = optimize.brentq(lambda mu: gaussian_epsilon(mu, 1e-6) - epsilon, 1e-4, 10)
    return float(noise.moments()[1] / (2 / mu**2))


@pytest.mark.parametrize(
    ("first", "second", "central", "coalition", "ratio"),
    [
        (1.157, 1.157, 1.0, 1.157, 0.325),
        (0.5855, 0.5855, 0.5, 0.5855, 0.357),
        (0.1202, 0.1202, 0.1, 0.1202, 0.420),
        (1.0, 1.0, 0.862, 1.0, 0.333),
        (2.0, 1.007, 1.0, 2.0, 0.268),
        (1.0, 4.0, 1.0, 4.0, 0.230),
    ],
)
def test_claims_and_errors_are_those_of_the_design(
    first: float, second: float, central: float, coalition: float, ratio: float
) -> None:
    """The weaker noise alone gives the coalition's claim, both together the central one."""
    one, two = (least_geometric(epsilon, 1e-6) for epsilon in (first, second))
    assert isinstance(one, GeometricNoise)
    assert isinstance(two, GeometricNoise)
    task = published(**chain(one, two), budget_epsilon=2.0).task

    assert central == pytest.approx(task.central_epsilon, rel=2e-3)
    assert coalition == pytest.approx(task.coalition_epsilon, rel=2e-3)
    assert ratio == pytest.approx(_ratio(task.shuffler.noises[0], task.central_epsilon), rel=5e-3)


@pytest.mark.parametrize(
    "fields", [chain(), chain(COINS, BinomialNoise(trials=150))], ids=["sageo", "sbin"]
)
def test_a_claim_that_either_noise_does_not_keep_is_refused(fields: dict[str, object]) -> None:
    """The central one rests on both noises, the coalition's on the weaker one alone."""
    task = published(**fields).task
    check_central_claim(task)
    check_coalition_claim(task)
    assert delta_at_claim(task) <= task.delta

    with pytest.raises(PolicyError, match="central epsilon"):
        check_central_claim(replace(task, central_epsilon=0.999 * task.central_epsilon))
    with pytest.raises(PolicyError, match="only one of its two shufflers is honest"):
        check_coalition_claim(replace(task, coalition_epsilon=0.999 * task.coalition_epsilon))
    weaker = max(
        ItemNoiseRelease.of_shuffler(task.hop(hop).by_view[0]).epsilon(task.delta) for hop in (0, 1)
    )
    assert weaker <= task.coalition_epsilon <= weaker * 1.001


def test_coins_of_two_shufflers_add_up() -> None:
    """The claim is that of as many coins of one."""
    both = published(**chain(BinomialNoise(trials=300), BinomialNoise(trials=700))).task
    release = claimed_release(both, 10)

    assert ItemNoiseRelease.of_shuffler(ShufflerSpec(noise=BinomialNoise(trials=1000))) == release


def test_a_sum_that_is_too_dear_to_check_is_refused() -> None:
    """Each of two noises has more likely values than the square root of the limit."""
    ratio = RATIO_SUM - 2**16
    wide = GeometricNoise(peak=9000, left_weight=ratio, right_weight=ratio, most=18_000)
    release = ItemNoiseRelease(noise=SummedNoise((wide, wide)))

    with pytest.raises(AccountingError, match=r"take 324,036,001 likely pairs of values; a device"):
        release.delta(1.0)


def test_every_coalition_of_two_shufflers_has_a_row() -> None:
    """Either one may be dishonest; against both nothing is promised once there is a result."""
    task = published(**chain(), tokens=TOKENS, assumed_honest_fraction=0.9).task
    rows = guarantees(task, 1000, 30)
    by_name = {row.coalition: row for row in rows}
    coalition, central = (by_name[name].epsilon for name in ("analyzer+first-shuffler", "analyzer"))

    assert [
        ("analyzer", central),
        ("analyzer+users", central),
        ("analyzer+first-shuffler", coalition),
        ("analyzer+second-shuffler", coalition),
        ("either-shuffler", coalition),
        ("both-shufflers+analyzer", math.inf),
        ("issuer+analyzer", central),
        ("both-shufflers", 0.0),
        ("issuer", 0.0),
        ("network", 0.0),
    ] == [(row.coalition, row.epsilon) for row in rows]
    assert central < task.central_epsilon < coalition < task.coalition_epsilon
    for name, honest, other in (("first", "second", "first"), ("second", "first", "second")):
        said = " ".join(by_name[f"analyzer+{name}-shuffler"].assumptions)  # type: ignore[index]
        assert f"at least one of {honest}.example and {other}.example is honest" in said
        assert f"{other}.example may drop, repeat or invent reports" in said
        assert f"{honest}.example adds dummies that name each item" in said
    assert "the result may be published" in by_name["either-shuffler"].assumptions
    assert "first.example and second.example permute uniformly, and neither colludes with" in str(
        by_name["analyzer"].assumptions
    )
    assert "two shufflers" in published_claim(task, 1000, 30, Waived())


def test_where_sentinels_are_missing_one_honest_shuffler_still_suffices() -> None:
    """The release is charged the coalition's figure, whichever shuffler lost them."""
    strong, weak = geometric_noise(30, 0.5, 0.5, 60), geometric_noise(20, 0.5, 0.25, 40)
    task = published(**chain(strong, weak), delta=1e-4).task
    waived = Waived(("sentinels",))
    first, *others = guarantees(task, 1000, 0, waived)
    charged = claimed_release(task, 1000, waived=waived)

    assert "analyzer" == first.coalition
    assert max(row.epsilon for row in others[:2]) == first.epsilon > others[1].epsilon
    assert charged.epsilon(task.delta) == pytest.approx(first.epsilon, rel=1e-4)
    assert any(row.startswith("at least one of") for row in first.assumptions)
    assert PrivacyParameters.of(task).either_alone == charged
