"""Wrong types of every mechanism's fields and arguments, and users who are no whole number."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

import numpy as np
import pytest

from shuffledp.common.accounting.anonymity_set import AnonymitySet
from shuffledp.common.accounting.guarantees import guarantees
from shuffledp.common.errors import AccountingError, TaskError, UsageError, ValueRangeError
from shuffledp.common.mechanisms.base import Mechanism, Randomizer
from shuffledp.common.mechanisms.discovery.prefix_hashing import PrefixHashing
from shuffledp.common.mechanisms.hierarchy import Hierarchy
from shuffledp.common.mechanisms.key_value.privkv import PrivKv
from shuffledp.common.mechanisms.numeric.laplace import Laplace
from shuffledp.common.mechanisms.randomized_response import Grr
from shuffledp.common.mechanisms.registry import MEAN_MECHANISMS, randomizer_of
from shuffledp.common.mechanisms.square_wave import SquareWave
from shuffledp.common.mechanisms.unary import OptimizedUnary, SymmetricUnary
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.task.draft import PairDraft
from shuffledp.deploy.datasets.sources import dataset
from shuffledp.lab.planning.requirements import Requirements
from shuffledp.user_agent.contribution import encoder_for
from tests.support.kind_tasks import OF_OTHER_KINDS, VALUES, kind_task
from tests.support.mechanisms import EXAMPLES, example
from tests.support.protocol_tasks import protocol_task, unclaimed_task
from tests.support.tables import table

_RNG: Final = np.random.default_rng(1)
_NO_GENERATORS: Final[tuple[Any, ...]] = (7, None, np.random, np.random.RandomState(1))
_WEIGHTS: Final = ResponseWeights(true=3, other=1)
_FLOATS: Final = (4, np.int64(4), np.float32(4), np.float64(4))


def _items() -> list[tuple[str, Mechanism]]:
    trees = cast("Mechanism", Hierarchy.of(unclaimed_task("hierarchy")))
    return [*((name, example(name)) for name in EXAMPLES), ("hierarchy", trees)]


@table(("name", "mechanism"), _items())
def test_items_are_whole_numbers_of_any_integer_type(name: str, mechanism: Mechanism) -> None:
    """A list is an array; nothing is truncated or converted from another type."""
    found, again = (mechanism.randomize(items, np.random.default_rng(5)) for items in _ALIKE)

    assert found.tobytes() == again.tobytes()
    assert 0 == len(mechanism.randomize(cast("Any", []), _RNG)), name
    for wrong in ([1.0], np.array([1.7]), ["1"], [True], [None], 1, None, [[1], [1, 0]], [2**70]):
        with pytest.raises(TypeError, match="array of whole numbers"):
            mechanism.randomize(cast("Any", wrong), _RNG)
    with pytest.raises(ValueRangeError, match="a value must lie between 0 and"):
        mechanism.randomize(np.array([2**64 - 1], dtype=np.uint64), _RNG)


_ALIKE: Final[tuple[Any, ...]] = ([1, 0], np.array([1, 0], dtype=np.uint8))


@pytest.mark.parametrize("generator", _NO_GENERATORS, ids=str)
def test_what_is_no_generator_is_refused_by_every_method(generator: Any) -> None:
    """Of mechanisms for every kind of value."""
    calls: list[Callable[[], object]] = []
    for _, mechanism in _items():
        users = np.ones(mechanism.domain_size, dtype=np.int64)
        calls += [
            partial(mechanism.randomize, np.array([1, 0]), generator),
            partial(mechanism.dummies, 2, rng=generator),
            partial(mechanism.sample_cells, users, 0, generator),
        ]
    for protocol in OF_OTHER_KINDS:
        task = kind_task(protocol)
        encoded = encoder_for(task, None)(VALUES[task.kind], _RNG)
        calls.append(partial(randomizer_of(task).randomize, encoded, generator))
    for call in calls:
        with pytest.raises(TypeError, match=r"rng has the type \w+; it must be numpy's Generator"):
            call()


@table(("name", "mechanism"), _items())
def test_numbers_of_people_and_dummies_are_whole(name: str, mechanism: Mechanism) -> None:
    """Nothing is truncated; a list is an array; none is negative."""
    users: Any = [1] * mechanism.domain_size
    found = mechanism.sample_cells(users, 0, np.random.default_rng(5))
    again = mechanism.sample_cells(np.array(users, np.uint8), 0, np.random.default_rng(5))

    assert found.tolist() == again.tolist(), name
    wrong: Any
    for wrong in (1.5, 2.0, np.float64(2), "1", None, True, [1]):
        with pytest.raises(TypeError, match=r"count has the type \w+; it must be a whole number"):
            mechanism.dummies(cast("Any", wrong), _RNG)
        with pytest.raises(TypeError, match="n_dummies has the type"):
            mechanism.sample_cells(users, cast("Any", wrong), _RNG)
    for wrong in (np.array(users) * 1.5, np.array(users, bool), 3, None, ["1"]):
        with pytest.raises(TypeError, match="array of whole numbers"):
            mechanism.sample_cells(cast("Any", wrong), 0, _RNG)
    calls: list[Callable[[], object]] = [
        partial(mechanism.dummies, -1, _RNG),
        partial(mechanism.sample_cells, users, -1, _RNG),
        partial(mechanism.sample_cells, -np.array(users), 0, _RNG),
        partial(mechanism.sample_cells, np.array([users]), 0, _RNG),
    ]
    for call in calls:
        with pytest.raises(ValueRangeError, match="0 or more"):
            call()


@table(("name", "mechanism"), _items())
def test_an_item_is_whole_and_reports_are_those_of_the_mechanism(
    name: str, mechanism: Mechanism
) -> None:
    """Where they are read; nothing is truncated or compared with a text."""
    reports = mechanism.randomize(np.array([1, 0]), _RNG)
    wrong: Any
    for wrong in (1.7, "1", None, True, [1]):
        with pytest.raises(TypeError, match=r"item has the type \w+; it must be a whole number"):
            mechanism.supports(reports, wrong)
    assert len(reports) == len(mechanism.supports(reports, cast("Any", np.int64(1)))), name
    for wrong in ([1, 2], "x", None, np.array([1.5]), reports[0]):
        for read in (mechanism.tally, mechanism.valid, partial(mechanism.supports, item=1)):
            with pytest.raises(TypeError, match="reports must be an array of shape"):
                read(wrong)


@table("protocol", OF_OTHER_KINDS)
def test_values_of_other_kinds_have_their_types(protocol: str) -> None:
    """A text is no array of numbers, responses or elements, and is not taken apart."""
    randomizer: Randomizer = randomizer_of(kind_task(protocol))
    for wrong in ("text", ["text"], [["text"]], None):
        with pytest.raises(TypeError, match=r"(array|responses)"):
            randomizer.randomize(wrong, _RNG)


def test_numbers_may_be_whole() -> None:
    """A list of rows of them is an array of floats."""
    laplace = Laplace.for_epsilon(1, 4)
    rows: tuple[Any, ...] = ([[1], [0]], np.array([[1.0], [0.0]]))
    whole, floats = (laplace.randomize(each, np.random.default_rng(5)) for each in rows)

    assert whole.tobytes() == floats.tobytes()


@pytest.mark.parametrize("epsilon", _FLOATS)
def test_a_local_epsilon_may_be_any_number(epsilon: Any) -> None:
    """Texts and truth values are none."""
    assert ResponseWeights.for_epsilon(4.0) == ResponseWeights.for_epsilon(epsilon)
    assert SymmetricUnary.weights_for(4.0) == SymmetricUnary.weights_for(epsilon)
    assert Laplace.for_epsilon(1, 4.0) == Laplace.for_epsilon(1, epsilon)
    assert PrivKv.specify(PairDraft(), 4.0) == PrivKv.specify(PairDraft(), epsilon)
    for name in ("piecewise", "hybrid", "harmony", "multi-hm", "mean-est"):
        made = cast("Any", MEAN_MECHANISMS[name]).for_epsilon
        assert made(1, 4.0) == made(1, epsilon)
    for wrong in ("4", True, None):
        with pytest.raises(TaskError, match="local_epsilon must be a number"):
            ResponseWeights.for_epsilon(cast("Any", wrong))


@table(
    ("build", "field"),
    [
        (lambda: Grr(50, cast("Any", 4.0)), "weights of Grr has the type float"),
        (lambda: Grr(cast("Any", 50.0), _WEIGHTS), "domain_size of Grr has the type float"),
        (lambda: Grr(cast("Any", "50"), _WEIGHTS), "domain_size of Grr has the type str"),
        (lambda: OptimizedUnary(5, cast("Any", 4.0)), "weights of OptimizedUnary"),
        (lambda: SymmetricUnary(5, cast("Any", 4.0)), "weights of SymmetricUnary"),
        (lambda: SquareWave(5, 1, cast("Any", 4.0)), "weights of SquareWave"),
        (lambda: PrefixHashing(257, (), cast("Any", 4.0)), "weights of PrefixHashing"),
        (lambda: Laplace(cast("Any", 2.0), 4), "steps of Laplace has the type float"),
    ],
)
def test_a_mechanism_is_built_from_the_right_types(build: Callable[[], object], field: str) -> None:
    """The sentence names the field and both types."""
    with pytest.raises(TypeError, match=f"{field}.*; it must be"):
        build()


def test_numpys_whole_numbers_cannot_overflow_a_sum_of_weights() -> None:
    """They become Python's."""
    assert type(Grr(cast("Any", np.int32(50)), _WEIGHTS).domain_size) is int


@pytest.mark.parametrize("users", [1000.5, 1000.0])
def test_users_are_a_whole_number(users: Any) -> None:
    """For the accountant, the planner and the simulator."""
    with pytest.raises(AccountingError, match=r"users is 1000.*; it must be a whole number"):
        AnonymitySet(users=users)
    with pytest.raises(AccountingError, match=r"n_users is 1000.*; it must be a whole number"):
        guarantees(protocol_task("mixdump"), users, 0)
    with pytest.raises(UsageError, match=r"users is 1000.*; it must be a whole number"):
        Requirements(n_users=users, n_min=900, domain_size=50, central_epsilon=1.0, delta=1e-6)
    with pytest.raises(TaskError, match=r"users is 1000.*; for zipf:50,1\.1 it must be"):
        dataset("zipf:50").sample_counts(users, _RNG)
