"""Generators: those of production pass; weak, constant and shared ones do not."""

from collections.abc import Callable

import numpy as np
import pytest
from randomgen import ChaCha

from common.crypto.randomness import secure_generator
from deploy.audit.finding import Finding
from deploy.audit.services.sources import Asked, Sources, finding
from deploy.audit.services.tape import METHODS

Factory = Callable[[], np.random.Generator]


def _found(factory: Factory) -> Finding:
    """Let the three services ask twice each, the shuffler's by another factory."""
    sources = Sources(np.random.default_rng(1))
    for party in METHODS:
        make = sources.instead_of(factory if party == "shuffler" else secure_generator, party)
        make(), make()
    return finding(sources.made, sources.asked, [])


def test_generators_of_production_are_as_they_must_be() -> None:
    """Six that services asked for, and a second of each. Fails by chance below 1e-6."""
    row = _found(secure_generator)

    assert "holds" == row.verdict
    assert 12 == row.trials


@pytest.mark.parametrize(
    ("factory", "named"),
    [
        (lambda: np.random.Generator(np.random.MT19937()), "the generator of the shuffler is Cha"),
        (lambda: np.random.Generator(np.random.PCG64(1)), "the generator of the shuffler is Cha"),
        (lambda: np.random.Generator(ChaCha(rounds=8)), "the generator of the shuffler has 20 rou"),
        (
            lambda: np.random.Generator(ChaCha(key=2**200 + 5, rounds=20)),
            "no two generators have the same key",
        ),
        (
            lambda: np.random.Generator(ChaCha(key=int(np.random.default_rng().integers(2**40)))),
            "bits set in key",
        ),
    ],
)
def test_weak_generators_are_seen(factory: Factory, named: str) -> None:
    """Another cipher, none, fewer rounds, one key for all, and a key of few bits."""
    row = _found(factory)

    assert "broken" == row.verdict
    assert named in row.sentence


def test_a_stream_that_others_know_is_seen() -> None:
    """The shuffler draws from the generator that it was handed by somebody else."""
    shared = secure_generator()

    assert "the same key" in _found(lambda: shared).sentence


def test_what_is_handed_out_repeats_with_the_seed_alone() -> None:
    """The same seed gives the same draws; each generator draws something else."""

    def drawn(seed: int) -> list[int]:
        make = Sources(np.random.default_rng(seed)).instead_of(secure_generator, "analyzer")
        return [int(make().integers(2**62)) for _ in range(3)]

    assert drawn(1) == drawn(1)
    assert 6 == len({*drawn(1), *drawn(2)})


def test_a_generator_that_is_examined_and_not_used_is_seen() -> None:
    """An order was sent for which the generator was never asked."""
    sources = Sources(np.random.default_rng(1))
    make = {party: sources.instead_of(secure_generator, party) for party in METHODS}
    drawing = [make[party]() for party in METHODS][1]
    drawing.permutation(7)
    drawing.permutation(np.arange(5))
    drawing.bytes(16)
    sent = [
        Asked(party="shuffler", what="permutation", size=7),
        Asked(party="shuffler", what="permutation", size=5),
        Asked(party="shuffler", what="bytes", size=16),
    ]

    assert "holds" == finding(sources.made, sources.asked, sent).verdict
    more = Asked(party="shuffler", what="permutation", size=7)
    assert "orders of the shuffler come from" in (
        finding(sources.made, sources.asked, [*sent, more]).sentence
    )


def test_the_order_that_was_handed_out_is_known() -> None:
    """What is asked is the same, whatever was drawn."""
    sources = Sources(np.random.default_rng(1))
    order = sources.instead_of(secure_generator, "shuffler")().permutation(7)
    [asked] = sources.asked

    assert asked.order is not None
    assert order.tolist() == asked.order.tolist()
    assert Asked(party="shuffler", what="permutation", size=7) == asked
