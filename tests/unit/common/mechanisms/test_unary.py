import numpy as np
import pytest

from shuffledp.common.errors import TaskError
from shuffledp.common.mechanisms.base import Counts, Reports
from shuffledp.common.mechanisms.bits import chunks
from shuffledp.common.mechanisms.unary import MAX_BITS, OptimizedUnary, SymmetricUnary
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.lab.bounds.randomizers import optimized_unary, symmetric_unary
from tests.support.reference_bounds import unary

_3_TO_1 = ResponseWeights(true=3, other=1)
_BOTH = pytest.mark.parametrize("encoding", [SymmetricUnary, OptimizedUnary])


def _counts(reports: Reports, domain_size: int) -> Counts:
    bits = np.unpackbits(reports["bits"], axis=1, bitorder="little")
    return np.asarray(bits[:, :domain_size].sum(axis=0), dtype=np.int64)


def test_many_users_are_drawn_and_counted_in_pieces() -> None:
    """The reports of 30,000 users with 300 bits each take three pieces."""
    mechanism, rng = OptimizedUnary(300, _3_TO_1), np.random.default_rng(1)
    reports = mechanism.randomize(np.full(30_000, 7), rng)
    cells = mechanism.tally(reports)

    assert [0, 13_981, 27_962] == [part.start for part in chunks(30_000, 300)]
    assert _counts(reports, 300).tolist() == cells.tolist()
    shares = cells / 30_000
    assert shares[7] == pytest.approx(0.5, abs=0.03)
    assert np.delete(shares, 7) == pytest.approx(0.25, abs=0.03)
    last = reports[27_962:]
    assert _counts(last, 300)[8] / len(last) == pytest.approx(0.25, abs=0.1)


@_BOTH
def test_too_many_bits_and_no_noise_are_refused(
    encoding: type[SymmetricUnary | OptimizedUnary],
) -> None:
    """The largest report has 65,536 bytes, one bit of which is spare."""
    assert 524_287 == MAX_BITS
    assert 65_536 == encoding(MAX_BITS, _3_TO_1).report_dtype.itemsize
    with pytest.raises(TaskError, match="domain_size is 524288; it must be at most 524287"):
        encoding(MAX_BITS + 1, _3_TO_1)


@pytest.mark.parametrize("local_epsilon", [1e-6, 0.5, 4.0, 20.0])
def test_the_reduction_matches_the_one_from_floats(local_epsilon: float) -> None:
    """The reduction agrees with those computed in floats from ε, and from p and q."""
    for encoding, described in (
        (SymmetricUnary, symmetric_unary),
        (OptimizedUnary, optimized_unary),
    ):
        mechanism = encoding(5, encoding.weights_for(local_epsilon))
        found, expected = mechanism.reduction, described(local_epsilon)
        assert expected.answers == pytest.approx(found.answers, rel=1e-8)
        assert expected.blanket == pytest.approx(found.blanket, rel=1e-8)
        assert expected.signal == pytest.approx(found.signal, rel=1e-3)
        assert expected.third_value == found.third_value
        assert found.pairwise_independent
        assert found.blanket + found.signal == pytest.approx(1, abs=1e-15)
        assert mechanism.local_epsilon == found.local_epsilon
        general = unary(mechanism.p, mechanism.q)
        assert general.signal == pytest.approx(found.signal, rel=1e-8, abs=1e-15)
