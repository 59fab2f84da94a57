"""Draft a second task from the values that an open dictionary's task found."""

from typing import Literal

from pydantic.dataclasses import dataclass

from common.errors import SettingsError, TaskError
from common.task.specs import check_labels, check_new_labels
from deploy.tasks.drafts import literal


@dataclass(frozen=True, kw_only=True)
class FoundTexts:
    """The fields of a result that a second task needs."""

    kind: Literal["open"]
    encoding: str
    most_bytes: int
    texts: tuple[str, ...]


def labels_fragment(found: FoundTexts, *, spell: bool) -> str:
    """
    Return the part of a draft in TOML that lists the found values as labels.

    With `spell`, the second task spells the texts whose hashes were found. Values that cannot be
    labels, because no device would send them, are left out. Raises SettingsError if none is left,
    or if `spell` does not fit the result.
    """
    if spell != (found.encoding == "hash"):
        rule = "needs" if spell else "must be set for"
        raise SettingsError(f"--spell {rule} a result of hashes; its encoding is {found.encoding}")
    kept = tuple(text for text in dict.fromkeys(found.texts) if _is_label(text))
    if not kept:
        raise SettingsError(f"none of the {len(found.texts)} values found can be a label")
    comment = f"""\
# {len(kept)} of the {len(found.texts)} values found. Ask other users: the same ones pay again.
# Add the draft's other fields, at least n_min, target_size, delta, deadline and local_epsilon.
"""
    if not spell:
        comment += "# Devices refuse other values: add a label such as other for them.\n"
    labels = f"{comment}labels = {literal(kept)}\n"
    if not spell:
        return labels
    form = f'encoding = "spell"\ncode_bytes = {len(kept[0]) // 2}\nmost_bytes = {found.most_bytes}'
    return f'{labels}protocol = "discover"\n\n[open]\n{form}\n'


def _is_label(text: str) -> bool:
    try:
        check_labels((text,), 1)
        check_new_labels((text,))
    except TaskError:
        return False
    return bool(text)
