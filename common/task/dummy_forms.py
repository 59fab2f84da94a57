"""The distributions of users' dummies by name; one is added as CONTRIBUTING.md says."""

from collections.abc import Mapping
from typing import Final

from shuffledp.common.task.cluster_dummies import ClusterDummies
from shuffledp.common.task.named_dummies import ItemDummies, ViewDummies
from shuffledp.common.task.uniform_dummies import (
    BinomialDummies,
    FixedDummies,
    FractionalDummies,
    NegativeBinomialDummies,
)

AnyDummies = (
    FixedDummies
    | FractionalDummies
    | BinomialDummies
    | NegativeBinomialDummies
    | ItemDummies
    | ClusterDummies
    | ViewDummies
)
DUMMIES: Final[Mapping[str, type[AnyDummies]]] = {
    each.distribution: each for each in AnyDummies.__args__
}
