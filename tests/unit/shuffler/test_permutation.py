import numpy as np

from shuffler.permutation import permute


def test_every_report_leaves_as_it_came() -> None:
    """The same rows, each once, in another order."""
    reports = np.random.default_rng(1).integers(0, 256, (500, 60), dtype=np.uint8)
    permuted = permute(reports, np.random.default_rng(2))

    assert sorted(map(bytes, reports)) == sorted(map(bytes, permuted))
    assert (reports != permuted).any()


def test_one_report_and_none_are_permuted_too() -> None:
    """The smallest batches."""
    assert permute(np.zeros((1, 60), np.uint8), np.random.default_rng(1)).shape == (1, 60)
    assert permute(np.zeros((0, 60), np.uint8), np.random.default_rng(1)).shape == (0, 60)
