import numpy as np
import pytest

from common.errors import TaskError
from deploy.datasets.catalogue import IPUMS_1940_CITY, load


def test_the_city_histogram_is_whole() -> None:
    """602,156 people in 915 cities; code 4610 is the largest with 74,321."""
    cities = load(IPUMS_1940_CITY)

    assert (915, 602_156) == (len(cities.labels), int(cities.counts.sum()))
    assert ("4610", 74_321) == (cities.labels[cities.counts.argmax()], cities.counts.max())


def test_people_are_drawn_without_replacement() -> None:
    """Drawing everybody gives the histogram back."""
    cities = load(IPUMS_1940_CITY)
    everybody = cities.draw(602_156, np.random.default_rng(1))

    np.testing.assert_array_equal(np.bincount(everybody, minlength=915), cities.counts)
    with pytest.raises(TaskError, match="users is 602157"):
        cities.draw(602_157, np.random.default_rng(1))
