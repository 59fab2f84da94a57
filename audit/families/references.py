"""Every family of this folder, by the class of each mechanism."""

import pkgutil
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from audit.families.family import Families, Family, ItemFamily
from common.mechanisms.registry import randomizer_of
from common.task.task import Task

_FOLDER: Final = Path(__file__).parent
FAMILIES: Final[Families] = {
    mechanism: family
    for module in pkgutil.iter_modules([str(_FOLDER)])
    if module.name not in {"references", "family", "noise"}
    for mechanism, family in import_module(f"audit.families.{module.name}").FAMILIES.items()
}


def family_of(task: Task) -> Family[Any]:
    """Return the reference for a task's mechanism; one without figures if it has none."""
    mechanism = randomizer_of(task)
    return FAMILIES.get(type(mechanism), ItemFamily)(task, mechanism)
