"""
Make tests/vectors/tasks.json: the canonical bytes of a task of every protocol, and refused ones.

Run as `python -m tests.vectors.make_task_vectors`. If the accepted bytes change, parties of
different versions no longer read the same tasks: do not.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any, Final

from common.crypto.signing import digest_of
from common.task.task import Task
from tests.support.kind_tasks import OF_OTHER_KINDS, kind_task, lasting_task
from tests.support.protocol_tasks import ITEM_PROTOCOLS, protocol_task

FILE: Final = Path(__file__).with_name("tasks.json")
_SHOWN: Final[dict[str, Any]] = {
    "title": "Commuting",
    "prompt": "How do you get to work — by car, bus or bike?",
    "purpose": "Planning of bus lines",
    "series": "commuting",
    "round": 3,
}


def accepted_tasks() -> dict[str, Task]:
    """Return a task of every protocol, with a fixed claim where it is computed, by name."""
    tasks = {name: protocol_task(name) for name in ITEM_PROTOCOLS}
    tasks |= {name: kind_task(name) for name in OF_OTHER_KINDS}
    tasks["lasting"] = lasting_task()
    tasks["shown"] = dataclasses.replace(tasks["puredump"], **_SHOWN)
    return {
        name: dataclasses.replace(task, central_epsilon=0.25) if task.amplified else task
        for name, task in tasks.items()
    }


def _refused(task: Task) -> dict[str, str]:
    """Return bytes that every reader must refuse, by the reason."""
    text = task.to_bytes().decode()
    fields = json.loads(text)

    def written(**changes: Any) -> str:
        return json.dumps(fields | changes, sort_keys=True, separators=(",", ":"))

    [shuffler], [view] = fields["shufflers"], fields["views"]
    weight = fields["mechanism"]["other_weight"]
    return {
        "task format 1": written(version=1),
        "a later format": written(version=3),
        "spaces": text.replace(",", ", ", 1),
        "another order of keys": '{"version":2,' + text[1:].replace(',"version":2', ""),
        "an unknown key": written(unknown=0),
        "a default value": written(title=""),
        "a weight as a number": text.replace(f'"{weight}"', weight),
        "a weight with a leading zero": text.replace(f'"{weight}"', f'"0{weight}"'),
        "a number with another exponent": text.replace('"delta":1e-06', '"delta":1e-6'),
        "a negative zero": written(central_epsilon=-0.0),
        "a repeated key": text.replace('"delta":', '"delta":1e-06,"delta":'),
        "levels in a view": written(
            views=[view | {"dummies": {"distribution": "levels", "levels": ["0"]}}]
        ),
        "an upper-case key": written(nonce=task.nonce.hex().upper()),
        "two shufflers": written(shufflers=[shuffler, shuffler]),
        "no shuffler": written(shufflers=[]),
        "two views": written(views=[view, view]),
        "noise of another number of views": written(
            shufflers=[shuffler | {"noise": shuffler["noise"] * 2}]
        ),
        "another claim of the coalition": written(coalition_epsilon=1.5),
        "an infinite delta": written(delta="inf"),
        "a round without a series": written(round=1),
    }


def main() -> None:
    """Write the vectors."""
    tasks = accepted_tasks()
    vectors = {
        "accepted": {
            name: {"bytes": (raw := task.to_bytes()).decode(), "digest": digest_of(raw).hex()}
            for name, task in tasks.items()
        },
        "refused": _refused(tasks["mixdump"]),
    }
    FILE.write_text(json.dumps(vectors, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
