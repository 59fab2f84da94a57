"""Where the services draw from: what their own factories made, examined before it is replaced."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from randomgen import ChaCha
from scipy import stats

from deploy.audit.checks import Checks
from deploy.audit.finding import Finding
from deploy.audit.fit import of_chance
from deploy.audit.services.tape import Party

_ROUNDS: Final = 20
_KEY_BITS: Final = 256
_MADE_EACH_TIME: Final = 2
"""Generators that are examined for each that a service asks for: a constant key comes again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A generator that a party's factory made. It was never drawn from."""

    party: Party
    name: str
    """Of its bit generator."""
    chacha: bool
    rounds: int
    """Of ChaCha; 0 of another."""
    key: bytes
    """Of ChaCha; of another its first words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a service asked of a generator that it was handed."""

    party: Party
    what: Literal["permutation", "bytes"]
    size: int
    order: NDArray[np.int64] | None = field(default=None, compare=False, repr=False)
    """What it was given, where it asked for an order of so many places."""


class Sources:
    """Stands before the factories of the three services."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self.made: list[Source] = []
        self.asked: list[Asked] = []

    def instead_of(
        self, factory: Callable[[], np.random.Generator], party: Party
    ) -> Callable[[], np.random.Generator]:
        """Give a factory that examines what this one makes, and hands out a seeded generator."""

        def make() -> np.random.Generator:
            self.made += [examined(factory(), party) for _ in range(_MADE_EACH_TIME)]
            bits = np.random.PCG64(self._rng.integers(0, 2**63, size=4).tolist())
            return _Noting(bits, party, self.asked)

        return make


class _Noting(np.random.Generator):
    """A generator that notes for what it is asked, so that one that is not used is seen."""

    def __init__(self, bits: np.random.BitGenerator, party: Party, asked: list[Asked]) -> None:
        super().__init__(bits)
        self._party, self._asked = party, asked

    def permutation(self, x: Any, axis: int = 0) -> Any:  # noqa: ANN401  # as numpy's
        """Draw an order."""
        number = isinstance(x, int | np.integer)
        drawn = super().permutation(x, axis)
        order = np.array(drawn, dtype=np.int64) if number else None
        size = int(x) if number else len(x)
        self._asked.append(Asked(party=self._party, what="permutation", size=size, order=order))
        return drawn

    def bytes(self, length: int) -> bytes:
        """Draw some bytes."""
        self._asked.append(Asked(party=self._party, what="bytes", size=length))
        return super().bytes(length)


def examined(generator: np.random.Generator, party: Party) -> Source:
    """Look at a generator, without drawing from it."""
    bits = generator.bit_generator
    state = bits.state["state"] if isinstance(bits.state, dict) else {}
    chacha = isinstance(bits, ChaCha)
    words = state.get("keysetup" if chacha else "key", ()) if isinstance(state, dict) else ()
    return Source(
        party=party,
        name=type(bits).__name__,
        chacha=chacha,
        rounds=int(state["rounds"]) if chacha else 0,
        key=np.asarray(words, dtype=np.uint32)[:8].tobytes(),
    )


def finding(made: Sequence[Source], asked: Sequence[Asked], expected: Sequence[Asked]) -> Finding:
    """
    Say whether the services draw from generators that nobody can foretell.

    Args:
        made: What their factories made.
        asked: For what the generators were asked that stood in place of these.
        expected: For what they must have been, as is known from what was sent and published.
    """
    checks, keys = Checks(), [source.key for source in made]
    parties = {source.party for source in made}
    checks.must("each of the three services draws", len(parties) == 3)  # noqa: PLR2004  # all
    for number, source in enumerate(made, start=1):
        of = f"of the {source.party.replace('_', ' ')}"
        checks.must(f"the generator {of} is ChaCha", source.chacha)
        checks.must(f"the generator {of} has {_ROUNDS} rounds", source.rounds == _ROUNDS)
        checks.must(f"the key {of} has {_KEY_BITS} bits", len(source.key) * 8 == _KEY_BITS)
        ones = int.from_bytes(source.key).bit_count()
        checks.test(f"bits set in key {number}, {of}", of_chance(ones, _KEY_BITS, 0.5))
    for wanted in dict.fromkeys((one.party, one.what) for one in expected):
        party, what = wanted
        drawn, known = (
            sorted(one.size for one in part if (one.party, one.what) == wanted)
            for part in (asked, expected)
        )
        thing = "orders" if what == "permutation" else "names and salts"
        checks.must(
            f"{thing} of the {party.replace('_', ' ')} come from the generator examined",
            not Counter(known) - Counter(drawn),
        )
    checks.must("no two generators have the same key", len(set(keys)) == len(keys))
    if len(set(keys)) == len(keys) > 1:
        checks.test("keys differ in half of their bits", _of_distances(keys))
    return checks.finding(
        scenario="services",
        title="Generators of the running services",
        heading="correctness",
        sentence=(
            f"All {len(made)} generators examined, {_MADE_EACH_TIME} of what the services make for "
            f"each that they ask for, were ChaCha with {_ROUNDS} rounds, each under a 256-bit key "
            "of its own: nobody can foretell an order, a report "
            "or an identifier without breaking the cipher."
        ),
        trials=len(made),
    )


def _of_distances(keys: list[bytes]) -> float:
    """Test the least and the greatest distance of any two keys, in bits."""
    distances = [
        (int.from_bytes(one) ^ int.from_bytes(other)).bit_count()
        for place, one in enumerate(keys)
        for other in keys[:place]
    ]
    low = float(stats.binom.cdf(min(distances), _KEY_BITS, 0.5))
    high = float(stats.binom.sf(max(distances) - 1, _KEY_BITS, 0.5))
    return min(1.0, 2 * len(distances) * min(low, high))
