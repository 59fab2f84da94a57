"""Validate against JSON schemas; each is read and checked once."""

import json
import sys
from functools import cache
from importlib.resources import files
from typing import Any, Final

_KUBERNETES: Final = "1.37"


@cache
def _loaded() -> tuple[Any, Any]:
    """Load both libraries, which take a second, without a parser of IRIs, which takes another."""
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    import jsonschema  # noqa: PLC0415  # not in every process that collects
    import kubernetes_validate.utils as kubernetes  # noqa: PLC0415

    kubernetes.schema_contents = cache(kubernetes.schema_contents)
    return jsonschema, kubernetes


def validator(schema: Any) -> Any:
    """Return the validator of a schema, which is checked."""
    version = _loaded()[0].Draft202012Validator
    version.check_schema(schema)
    return version(schema)


def check_kubernetes(found: dict[str, Any]) -> None:
    """Validate an object against the schema of its kind, where unknown fields are errors."""
    _loaded()[1].validate(found, _KUBERNETES, strict=True)


@cache
def compose_specification() -> Any:
    """Return the validator of the Compose specification."""
    _loaded()  # before the package, which loads one of them itself
    schema = files("check_jsonschema.builtin_schemas.vendor").joinpath("compose-spec.json")
    return validator(json.loads(schema.read_text(encoding="utf-8")))
