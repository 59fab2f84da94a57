import numpy as np
import pytest

from shuffledp.common.sorted_index import SortedIndex, Words


def _words(*numbers: int) -> Words:
    return np.array(numbers, dtype=np.uint64)


@pytest.mark.parametrize("together", [1, 7, 1000])
def test_it_finds_what_a_dictionary_finds(together: int) -> None:
    """5000 entries over 3000 keys, added in many sizes; half of the searched keys are absent."""
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 3000, 5000, dtype=np.uint64) * np.uint64(2**50 + 1)
    values = np.arange(5000, dtype=np.uint64)
    index, expected = SortedIndex(), dict[int, set[int]]()
    for start in range(0, 5000, together):
        part = slice(start, start + together)
        index.add(keys[part], values[part])
        for key, value in zip(keys[part].tolist(), values[part].tolist(), strict=True):
            expected.setdefault(key, set()).add(value)
        if start % 10 == 0:
            wanted = np.append(keys[rng.integers(0, 5000, 5)], rng.integers(0, 2**63, 5)).astype(
                np.uint64
            )
            places, found = index.find(wanted)
            for place, key in enumerate(wanted.tolist()):
                assert expected.get(key, set()) == set(found[places == place].tolist())


def test_few_runs_hold_many_entries() -> None:
    """There are about log2 of their number, however small the pieces; the largest key is found."""
    index = SortedIndex()
    index.add(_words(), _words())
    assert 0 == len(index.find(_words(1, 2))[0])
    largest = SortedIndex()
    largest.add(_words(2**64 - 1, 0), _words(1, 2))
    places, found = largest.find(_words(2**64 - 1, 0, 5))
    assert [(0, 1), (1, 2)] == sorted(zip(places.tolist(), found.tolist(), strict=True))
    for number in range(4096):
        index.add(_words(number * 7919 % 4099), _words(number))
        index.find(_words(0))

    assert len(index._runs) <= 12
