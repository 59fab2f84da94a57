"""Tasks with a few fields changed at random: what one reader accepts, every reader accepts."""

import copy
import json
import random
from collections.abc import Iterator, Mapping
from typing import Any, Final

from shuffledp.common.errors import ShuffleDpError
from shuffledp.common.mechanisms.registry import randomizer_of
from shuffledp.common.task.task import Task

_VALUES: Final[tuple[Any, ...]] = (
    *(0, 1, 2, 3, 7, 13, 100, -1, 2**20, 2**20 + 1, 2**24, 2**24 + 1, 2**32, 2**40, 10**9 + 1),
    *("0", "1", "2", str(2**32), str(2**32 - 1), str(2**63), "x", "", "Aa", "aa" * 32, "inf"),
    *(0.0, 1.0, -0.0, 0.5, 1e-6, 1e-15, 9e-16, 1e300, 20.0, 20.1, None, True, False, [], {}),
    *("none", "fixed", "fractional", "binomial", "geometric", "each-item", "given", "clip"),
    *("\u00e9", "a / b", " a", "a\u0301", "\u200b", "\U0001f600"),
)
_NEAR: Final = (
    (841146804577, 113836841041),
    (569600638022431, 77087063678521),
    (8554542153507166, 1157731385304435),
)
"""Weights whose odds are below e^2: by a relative 8e-25, 2e-30 and 5e-32."""
_KEYS: Final = (
    *("title", "population", "series", "round", "labels", "edges", "breakdown", "tokens", "name"),
    *("one_length", "peak", "keep_weight", "unit", "outside", "spacing", "given", "trials"),
    *("most", "extra_weight", "proof", "buckets", "digits"),
)


def changed_tasks(texts: Mapping[str, str], number: int) -> list[dict[str, Any]]:
    """Return changes of tasks, each of one stretch of the text, and whether Python accepts it."""
    rng, found = random.Random(20), list[dict[str, Any]]()  # noqa: S311  # not for secrets
    parsed = {name: json.loads(text) for name, text in texts.items()}
    while len(found) < number:
        name = rng.choice(sorted(parsed))
        fields = copy.deepcopy(parsed[name])
        for _ in range(rng.choice((1, 1, 1, 2))):
            _change(fields, rng)
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        if text != texts[name]:
            found.append({"of": name, **difference(texts[name], text), **_judged(text)})
    return found


def near_promises(name: str, old: str) -> list[dict[str, Any]]:
    """Return changes of a task at e^2 whose odds are so near that doubles cannot tell them."""
    found = list[dict[str, Any]]()
    for true, other in _NEAR:
        fields = json.loads(old)
        fields["mechanism"] |= {"true_weight": str(true), "other_weight": str(other)}
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        found.append({"of": name, **difference(old, text), **_judged(text)})
    return found


def _judged(text: str) -> dict[str, Any]:
    try:
        task = Task.from_bytes(text.encode())
        return {"accepted": True, "keeps": randomizer_of(task).keeps_promise(task.local_epsilon)}
    except ShuffleDpError:
        return {"accepted": False}


def difference(old: str, new: str) -> dict[str, Any]:
    """Return the one stretch of a text that differs: its start and end, and what is new."""
    start = next((n for n, pair in enumerate(zip(old, new, strict=False)) if len({*pair}) > 1), 0)
    least = min(len(old), len(new)) - start
    end = next((n for n in range(least) if old[-1 - n] != new[-1 - n]), least)
    return {"start": start, "end": len(old) - end, "new": new[start : len(new) - end]}


def _places(fields: Any) -> Iterator[tuple[Any, Any]]:  # any JSON
    """Yield each table or list inside with each of its keys."""
    keys = fields if isinstance(fields, dict) else range(min(len(fields), 3))
    for key in keys:
        yield fields, key
        if isinstance(fields[key], dict | list):
            yield from _places(fields[key])


def _change(fields: dict[str, Any], rng: random.Random) -> None:
    parent, key = rng.choice(list(_places(fields)))
    old, kind = parent[key], rng.random()
    if kind < 0.35:  # shares of the kinds of changes
        parent[key] = copy.deepcopy(rng.choice(_VALUES))
    elif kind < 0.45:
        del parent[key]
    elif kind < 0.55 and isinstance(parent, dict):
        parent[rng.choice(_KEYS)] = copy.deepcopy(rng.choice(_VALUES))
    elif isinstance(old, bool):
        parent[key] = not old
    elif isinstance(old, int):
        parent[key] = old + rng.choice((-1, 1, 2, old, -old))
    elif isinstance(old, float):
        parent[key] = old * rng.choice((0.5, 2.0, 1.0001, 1 + 2**-52))
    elif isinstance(old, str) and old.isdigit():
        parent[key] = str(int(old) + rng.choice((-1, 1, int(old))))
    elif isinstance(old, str):
        parent[key] = old + rng.choice(("0", "a", " "))
    elif isinstance(old, list) and old:
        parent[key] = [*old, copy.deepcopy(rng.choice(old))]
