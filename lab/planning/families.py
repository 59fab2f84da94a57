"""
The families of protocols: where each protocol is planned. Pure.

A new family is a small class in a file of its own, and a row here. A protocol without a row is
planned with one noisy report, or, if it relies on no shuffler, with the target as its local ε.
"""

from typing import Final

from shuffledp.common.protocols import PROTOCOLS
from shuffledp.lab.planning.attribute_tables import AttributeTables
from shuffledp.lab.planning.blankets import Blankets
from shuffledp.lab.planning.clusters import Clusters
from shuffledp.lab.planning.digits import DigitDummies, DigitNoise
from shuffledp.lab.planning.each_item import EachItem
from shuffledp.lab.planning.hierarchies import Hierarchies
from shuffledp.lab.planning.noisy_reports import LocalReports, NoisyReports, NoisyTexts
from shuffledp.lab.planning.protocol_family import ProtocolFamily
from shuffledp.lab.planning.shuffler_noise import ShufflerNoise

_ROWS: Final[tuple[ProtocolFamily, ...]] = (
    NoisyTexts("rappor"),
    Hierarchies("hierarchy"),
    Blankets("sh", "mixdump", "puredump", "murs", "od-hp", "fe1", by_name=("hp-sdp", "ddps")),
    EachItem(by_name=("aue",)),
    ShufflerNoise("hybrid", "sageo", "sbin"),
    Clusters("signed"),
    DigitDummies("digits", "vector-digits"),
    DigitNoise("geo-digits", "geo-vector-digits"),
    AttributeTables("tables", "geo-tables"),
)
_OTHERS: Final = PROTOCOLS.keys() - {name for family in _ROWS for name in family.names}
_NOISY, _LOCAL = (
    [name for name, row in PROTOCOLS.items() if name in _OTHERS and row.amplified == amplified]
    for amplified in (True, False)
)
FAMILIES: Final[tuple[ProtocolFamily, ...]] = (
    NoisyReports(*_NOISY),
    LocalReports(by_name=tuple(_LOCAL)),
    *_ROWS,
)
"""All families, in the order in which they are planned."""
