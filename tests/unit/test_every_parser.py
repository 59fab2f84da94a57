"""Any bytes give a value or an error of the family: nothing else, and within bounds."""

import os

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz.fuzz import failure, given_seed
from tests.support.fuzzing import fuzz
from tests.support.parsers import Parser, parsers

_SHORT = 1_500
_LONG = 1_000_000
_SHARDS = min(2, os.cpu_count() or 1)


@pytest.mark.parametrize("parser", parsers().values(), ids=lambda parser: parser.name)
def test_every_example_is_read(parser: Parser) -> None:
    """Mutation starts from what is valid; an example that is refused would test next to nothing."""
    for example in parser.seeds:
        assert failure(parser, example) is None
        parser.read(example)


@pytest.mark.parametrize("parser", parsers().values(), ids=lambda parser: parser.name)
@seed(given_seed())
@settings(
    max_examples=25,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors],
)
@given(raw=st.binary(max_size=300) | st.text(max_size=80).map(str.encode))
def test_any_bytes_are_a_value_or_a_foreseen_error(parser: Parser, raw: bytes) -> None:
    """Bytes without any structure, and text."""
    assert failure(parser, raw) is None


def test_hostile_variants_of_valid_inputs_are_a_value_or_a_foreseen_error() -> None:
    """Some thousand of them, in a process whose memory is limited, each within its time."""
    assert fuzz(_SHORT)["inputs"] >= _SHORT * 0.9


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(_SHARDS))
def test_a_million_hostile_variants_are_a_value_or_a_foreseen_error(shard: int) -> None:
    """
    The same over a million inputs, a process for each of two cores.

    SHUFFLEDP_FUZZ_SEED runs other ones; it is the seed of the short form too.
    """
    share = _LONG // _SHARDS
    assert fuzz(share, shard=shard, shards=_SHARDS)["inputs"] >= share * 0.99
