"""Values of several users as one, encoded for a mechanism."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from common.mechanisms.key_value.pairs import Pairs


def joined(encoded: Sequence[Any]) -> Any:  # noqa: ANN401  # the type depends on the kind
    """Join several users' encoded values; at least one."""
    if not isinstance(encoded[0], Pairs):
        return np.concatenate(encoded)
    owned = np.cumsum([0, *(len(pairs.keys) for pairs in encoded)])
    return Pairs(
        offsets=owned.astype(np.int64),
        keys=np.concatenate([pairs.keys for pairs in encoded]),
        values=np.concatenate([pairs.values for pairs in encoded]),
    )
