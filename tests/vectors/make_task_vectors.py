"""
Make tests/vectors/tasks.json: the canonical bytes of a task of every protocol, and refused ones.

Run as `python -m tests.vectors.make_task_vectors`. If the accepted bytes change, parties of
different versions no longer read the same tasks: do not.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from shuffledp.common.crypto.signing import digest_of
from shuffledp.common.task.shuffler_spec import KEEP_SUM
from shuffledp.common.task.task import Task
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
    tasks = {
        name: dataclasses.replace(task, central_epsilon=0.25) if task.amplified else task
        for name, task in tasks.items()
    }
    return tasks | {
        f"two-{name}": _with_two(tasks[name])
        for name in ("geo-digits", "geo-tables", "sageo", "sbin")
    }


def _with_two(task: Task) -> Task:
    """Add a second shuffler, with the same noise."""
    [first] = (
        dataclasses.replace(each, name="first.example", keep_weight=KEEP_SUM)
        for each in task.shufflers
    )
    second = dataclasses.replace(first, name="second.example", key=bytes(range(32)))
    return dataclasses.replace(task, shufflers=(first, second), coalition_epsilon=0.5)


def _refused_chains(chained: Task, others: Iterable[Task]) -> dict[str, str]:
    """Return bytes of tasks with two shufflers that every reader must refuse, by the reason."""
    text = chained.to_bytes().decode()
    fields = json.loads(text)
    first, second = fields["shufflers"]

    def written(task: dict[str, Any] = fields, **changes: Any) -> str:
        return json.dumps(task | changes, sort_keys=True, separators=(",", ":"))

    assert text == written()
    noise = {
        "relay without noise": [{"distribution": "none"}],
        "two distributions of noise": 2 * second["noise"],
    }
    noise["relay with noise of another kind"] = [{"distribution": "binomial", "trials": 8}]
    shufflers = {
        "three shufflers": [first, second, second | {"name": "third.example", "key": "11" * 32}],
        "two shufflers of one name": [first, second | {"name": first["name"]}],
        "a relay without a name": [first, {key: second[key] for key in ("key", "noise")}],
        "two shufflers with one key": [first, second | {"key": first["key"]}],
        "a relay whose key is short": [first, second | {"key": "00"}],
        "a relay with a short proof": [first, second | {"proof": "00"}],
        "a relay whose key was signed until 1970": [first, second | {"proof": "00" * 72}],
        "a relay that drops reports": [first, second | {"keep_weight": "5"}],
        "a first shuffler that drops reports": [first | {"keep_weight": "5"}, second],
        **{name: [first, second | {"noise": each}] for name, each in noise.items()},
    }
    return {
        **{name: written(shufflers=each) for name, each in shufflers.items()},
        "a coalition's claim below the central one": written(coalition_epsilon=0.125),
        "an infinite claim of the coalition": written(coalition_epsilon="inf"),
        "a coalition's claim of zero": written(coalition_epsilon=0.0),
        **{
            f"two shufflers of {other['protocol']}": written(
                other,
                shufflers=[
                    {**each, "name": name, "key": key * 32}
                    for [each] in [other["shufflers"]]
                    for name, key in (("a", "00"), ("b", "11"))
                ],
                coalition_epsilon=max(other["central_epsilon"], 0.5),
            )
            for other in (json.loads(each.to_bytes()) for each in others)
        },
    }


def _refused(task: Task) -> dict[str, str]:
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
            views=[view | {"dummies": {"distribution": "views", "averages": ["0"]}}]
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


def _refused_digits(task: Task) -> dict[str, str]:
    """Return bytes of tasks of two digits of a number that every reader must refuse."""
    fields = json.loads(task.to_bytes())
    spec, (one, other) = fields["mechanism"], fields["views"]

    def written(views: list[Any] | None = None, **changes: Any) -> str:
        changed = {"mechanism": spec | changes, "views": views or fields["views"]}
        return json.dumps(fields | changed, sort_keys=True, separators=(",", ":"))

    assert task == Task.from_bytes(written().encode())
    return {
        "digits in the other order": written([other, one]),
        "a digit too many": written([one, other, other]),
        "other radices than views": written(radices=[2, 3]),
        "a digit with one value": written([one, other | {"domain_size": 1}], radices=[3, 1]),
        "no digits": written(radices=[]),
        "too many points": written(radices=[2**12, 2**13]),
        "one number, stated": written(numbers=1),
        "two numbers of a mean": written(2 * [one, other], numbers=2),
        "an empty range": written(low=24.0),
        "weights of digits": written(true_weight="1", other_weight="0"),
    }


def _refused_tables(task: Task) -> dict[str, str]:
    """Return bytes of tasks for tables that every reader must refuse, by the reason."""
    fields = json.loads(task.to_bytes())
    spec, views = fields["mechanism"], fields["views"]
    first, second, third = spec["attributes"]

    def written(**changes: Any) -> str:
        return json.dumps(fields | changes, sort_keys=True, separators=(",", ":"))

    def changed(**changes: Any) -> str:
        return written(mechanism=spec | changes)

    return {
        "a table of three attributes": changed(views=[[0, 1, 2]]),
        "a table of no attribute": changed(views=[*spec["views"][:2], []]),
        "a table of one attribute twice": changed(views=[*spec["views"][:2], [2, 2]]),
        "a table of descending attributes": changed(views=[*spec["views"][:2], [2, 1]]),
        "one table twice": changed(views=[[0, 1], [0, 1], [1, 2]]),
        "a table of an unknown attribute": changed(views=[*spec["views"][:2], [1, 3]]),
        "an attribute in no table": changed(views=[[0, 1], [0], [1]]),
        "tables of other sizes": changed(views=[[0, 1], [1, 2], [0]]),
        "one attribute": changed(attributes=[first], views=[[0]]),
        "two attributes of one name": changed(
            attributes=[first, second, third | {"name": first["name"]}]
        ),
        "an attribute without a name": changed(attributes=[first, second, third | {"name": ""}]),
        "an attribute with labels and edges": changed(
            attributes=[first, second, third | {"edges": second["edges"]}]
        ),
        "an attribute without labels": changed(attributes=[first, second, {"name": "smokes"}]),
        "an attribute with one label": changed(
            attributes=[first, second, third | {"labels": ["no"]}]
        ),
        "a label of an attribute with a separator": changed(
            attributes=[first, second, third | {"labels": ["no", "yes / no"]}]
        ),
        "attributes with weights": changed(true_weight="1", other_weight="0"),
        "a table with labels beside": written(labels=["a", "b", "c"]),
        "a table with edges beside": written(edges=second["edges"]),
        "tables of another kind": written(kind="categorical"),
        "a table too few": written(views=views[:2]),
        "a table with binomial dummies": written(
            views=[
                *views[:2],
                views[2]
                | {
                    "dummies": {
                        "distribution": "binomial",
                        "extra_weight": "5",
                        "per_user": 1,
                        "trials": 3,
                    }
                },
            ]
        ),
    }


def refused_tasks(tasks: Mapping[str, Task]) -> dict[str, str]:
    """Return bytes that every reader must refuse, by the reason."""
    others = [tasks[name] for name in ("hybrid", "puredump", "mixdump", "sh")]
    return (
        _refused(tasks["mixdump"])
        | _refused_chains(tasks["two-sageo"], others)
        | _refused_digits(tasks["digits"])
        | _refused_tables(tasks["tables"])
    )


def main() -> None:
    """Write the vectors."""
    tasks = accepted_tasks()
    vectors = {
        "accepted": {
            name: {"bytes": (raw := task.to_bytes()).decode(), "digest": digest_of(raw).hex()}
            for name, task in tasks.items()
        },
        "refused": refused_tasks(tasks),
    }
    FILE.write_text(json.dumps(vectors, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
