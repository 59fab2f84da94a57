"""The distributions of users' dummies by name; one is added as CONTRIBUTING.md says."""

from collections.abc import Mapping
from typing import Final

from shuffledp.common.task import cluster_dummies, named_dummies, uniform_dummies

AnyDummies = (
    uniform_dummies.FixedDummies
    | uniform_dummies.FractionalDummies
    | uniform_dummies.BinomialDummies
    | uniform_dummies.NegativeBinomialDummies
    | named_dummies.ItemDummies
    | cluster_dummies.ClusterDummies
    | named_dummies.ViewDummies
)
DUMMIES: Final[Mapping[str, type[AnyDummies]]] = {
    each.distribution: each for each in AnyDummies.__args__
}
