"""Every form in which a task may state a mechanism: one for each kind of mechanism."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar, get_args

from common.errors import TaskError
from common.key_value_spec import KeyValueSpec
from common.mechanism_spec import MechanismSpec
from common.number_spec import NumberSpec
from common.protocols import (
    KeyValueMechanismName,
    MechanismName,
    NumberMechanismName,
    RapporMechanismName,
)
from common.rappor_spec import RapporSpec

AnySpec = MechanismSpec | RapporSpec | NumberSpec | KeyValueSpec

_FORMS: Final[Mapping[str, type[AnySpec]]] = MappingProxyType(
    {
        **dict.fromkeys(get_args(MechanismName), MechanismSpec),
        **dict.fromkeys(get_args(RapporMechanismName), RapporSpec),
        **dict.fromkeys(get_args(NumberMechanismName), NumberSpec),
        **dict.fromkeys(get_args(KeyValueMechanismName), KeyValueSpec),
    }
)
MECHANISMS: Final = tuple(_FORMS)
"""Names of all mechanisms."""


_WORDS: Final[Mapping[type[AnySpec], str]] = MappingProxyType(
    {
        MechanismSpec: "items",
        RapporSpec: "texts",
        NumberSpec: "numbers",
        KeyValueSpec: "pairs of a key and a number",
    }
)

S = TypeVar("S", MechanismSpec, RapporSpec, NumberSpec, KeyValueSpec)


def spec_as(spec: AnySpec, form: type[S]) -> S:
    """
    Give a mechanism's integers in the form of one kind of value.

    Raises:
        TaskError: They are of another kind.
    """
    if not isinstance(spec, form):
        raise TaskError(f"the mechanism {spec.name} is not for {_WORDS[form]}")
    return spec


def spec_from_fields(fields: dict[str, Any]) -> AnySpec:
    """
    Read a mechanism from the fields of a task's JSON.

    Raises:
        TaskError: There is no mechanism of this name, or a number is out of its range.
        TypeError, KeyError: The fields are not those of the mechanism.
    """
    form = _FORMS.get(fields["name"])
    if form is None:
        raise TaskError(f"there is no such mechanism; the known ones are {', '.join(_FORMS)}")
    if form is KeyValueSpec:
        fields = {**fields, "fakes": tuple(fields["fakes"])}
    return form(**fields)
