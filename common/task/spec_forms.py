"""The specifications of all mechanisms, by name."""

from collections.abc import Mapping
from typing import Final, TypeVar, get_args

from shuffledp.common import errors, protocols
from shuffledp.common.task.specs import (
    KeyValueSpec,
    MechanismSpec,
    NumberSpec,
    OpenSpec,
    RangedSpec,
    RapporSpec,
)
from shuffledp.common.task.view_specs import DigitSpec, TableSpec

AnySpec = MechanismSpec | RapporSpec | OpenSpec | NumberSpec | DigitSpec | KeyValueSpec | TableSpec

FORMS: Final[Mapping[str, type[AnySpec]]] = {
    **dict.fromkeys(get_args(protocols.MechanismName), MechanismSpec),
    **dict.fromkeys(get_args(protocols.RapporMechanismName), RapporSpec),
    **dict.fromkeys(get_args(protocols.OpenMechanismName), OpenSpec),
    **dict.fromkeys(get_args(protocols.NumberMechanismName), NumberSpec),
    **dict.fromkeys(get_args(protocols.DigitMechanismName), DigitSpec),
    **dict.fromkeys(get_args(protocols.KeyValueMechanismName), KeyValueSpec),
    **dict.fromkeys(get_args(protocols.TableMechanismName), TableSpec),
}
"""The class of each mechanism's integers, by the mechanism's name."""
MECHANISMS: Final = tuple(FORMS)
"""Names of all mechanisms."""
_WORDS: Final[Mapping[type, str]] = {
    MechanismSpec: "items",
    RapporSpec: "texts",
    OpenSpec: "open dictionaries",
    NumberSpec: "numbers with local noise",
    DigitSpec: "digits of numbers",
    RangedSpec: "numbers",
    KeyValueSpec: "pairs of a key and a number",
    TableSpec: "several attributes",
}

S = TypeVar("S", bound=AnySpec | RangedSpec)


def spec_as(spec: AnySpec, form: type[S]) -> S:
    """Return a spec of type `form`; raise TaskError if it is of another type."""
    if not isinstance(spec, form):
        raise errors.TaskError(f"the mechanism {spec.name} is not for {_WORDS[form]}")
    return spec
