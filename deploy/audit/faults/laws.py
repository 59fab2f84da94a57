"""Faults of laws that no single report shows: of seeds, of answers, and of reports together."""

from contextlib import AbstractContextManager
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.mechanisms.base import Mechanism, Reports, Vector
from common.mechanisms.hashing.local_hashing import LocalHashing
from common.mechanisms.hashing.string_hashing import StringHashing
from common.mechanisms.weights import ResponseWeights
from common.task.dummy_spec import DummySpec
from deploy.audit.faults import planting
from deploy.audit.faults.fault import Fault
from deploy.audit.privacy.messages import Sent, scores
from user_agent.contribution import Answer, Contributor, draw_dummies


def even_seeds() -> AbstractContextManager[None]:
    """Plant seeds that are always even."""

    def other(self: LocalHashing, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return 2 * rng.integers(0, (self.family.seeds + 1) // 2, size=count, dtype=np.int64)

    return planting.attribute(LocalHashing, "_seeds", other)


def half_the_seeds() -> AbstractContextManager[None]:
    """Plant 64-bit seeds of which the first bit is never set."""

    def other(self: StringHashing, count: int, rng: np.random.Generator) -> NDArray[np.uint64]:
        del self
        return rng.integers(0, 2**63, size=count, dtype=np.uint64)

    return planting.attribute(StringHashing, "_seeds", other)


def low_wrong_answers() -> AbstractContextManager[None]:
    """Plant wrong answers of which a tenth are moved into the lower half."""
    honest = ResponseWeights.respond

    def other(
        self: ResponseWeights, truth: NDArray[np.int64], answers: int, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        said = honest(self, truth, answers, rng)
        half = answers // 2
        moved = (said >= half) & (said != truth) & (rng.integers(0, 10, size=said.shape) == 0)
        lower = np.where(said - half == truth, said, said - half)
        return np.where(moved, np.maximum(lower, 0), said)

    return planting.attribute(ResponseWeights, "respond", other)


def shared_coins() -> AbstractContextManager[None]:
    """Plant noise that every two neighbours in a call share."""
    honest = ResponseWeights.respond

    def other(
        self: ResponseWeights, truth: NDArray[np.int64], answers: int, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        if len(truth) % 2:
            return honest(self, truth, answers, rng)
        before = rng.bit_generator.state
        said = np.empty_like(truth)
        for first in (0, 1):
            rng.bit_generator.state = before
            said[first::2] = honest(self, truth[first::2], answers, rng)
        return said

    return planting.attribute(ResponseWeights, "respond", other)


def more_for_odd_values() -> AbstractContextManager[None]:
    """Plant drawn dummies that odd values alone get, twice as often, so that their law is right."""
    honest, held = Contributor.answer, list[int]()

    def answer(self: Contributor, value: int, rng: np.random.Generator) -> Answer:
        held[:] = [value]
        return honest(self, value, rng)

    def dummies(mechanism: Mechanism, law: DummySpec, rng: np.random.Generator) -> Reports:
        if law.law != "fractional" or not held:
            return draw_dummies(mechanism, law, rng)
        more = held[0] % 2 and rng.random() < 2 * law.extra_chance
        return mechanism.dummies(law.per_user + int(more), rng)

    return planting.both(
        planting.attribute(Contributor, "answer", answer), planting.function(draw_dummies, dummies)
    )


def blind_adversary() -> AbstractContextManager[None]:
    """Plant an adversary that looks at nothing."""

    def other(mechanism: Mechanism, sent: Sent, items: tuple[int, int]) -> Vector:
        del mechanism, items
        return np.zeros(sent.trials)

    return planting.function(scores, other)


LAWS: Final = (
    Fault(
        name="even-seeds",
        says="seeds are always even",
        scenario="randomizer",
        check="uniform seeds",
        plant=even_seeds,
    ),
    Fault(
        name="half-the-seeds",
        says="64-bit seeds lie in the lower half",
        scenario="mechanisms",
        check="seeds all over",
        plant=half_the_seeds,
    ),
    Fault(
        name="low-wrong-answers",
        says="a tenth of the wrong answers of the upper half is moved to the lower",
        scenario="mechanisms",
        check="every place as its law says",
        plant=low_wrong_answers,
    ),
    Fault(
        name="shared-coins",
        says="two neighbours that are randomized together share their noise",
        scenario="batches",
        check="of two values' counts",
        plant=shared_coins,
    ),
    Fault(
        name="dummies-by-value",
        says="devices with odd values add all of the drawn dummies, as many on average",
        scenario="devices",
        check="as many dummies whatever the value",
        plant=more_for_odd_values,
    ),
    Fault(
        name="blind-adversary",
        says="the adversary of the games looks at nothing, so that every claim passes",
        scenario="shuffler+analyzer",
        check="is known to succeed",
        plant=blind_adversary,
    ),
    Fault(
        name="blind-to-no-noise",
        says="nor at reports without noise",
        scenario="puredump",
        check="is known to succeed",
        plant=blind_adversary,
    ),
)
