"""
Feed every parser hostile inputs, and list the contracts that break. In its own process:

    python -m tests.fuzz.fuzz --seed 7 --inputs 500000 --shard 0 --shards 2
    python -m tests.fuzz.fuzz --seed 7 --parser task --number 1234

It prints a JSON line: inputs, seconds, how far memory grew, and every failure with what repeats it.
The promise: a value or a ShuffleDpError, in bounded time and memory.
"""

import argparse
import json
import os
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

from shuffledp.common.errors import ShuffleDpError
from tests.support.mutation import mutated
from tests.support.parsers import Parser, parsers

DEFAULT_SEED: Final = 20261121
SEED_VARIABLE: Final = "SHUFFLEDP_FUZZ_SEED"

MAX_BYTES: Final = 512 * 1024 * 1024
"""Limit on the growth of the address space while inputs are read."""
MAX_RESIDENT_BYTES: Final = 128 * 1024 * 1024
"""Limit on the growth of the resident memory."""
_MAX_FAILURES: Final = 40
_MAX_ALIKE: Final = 2
_SHOWN: Final = 400


class TooSlowError(BaseException):
    """An input took longer than its parser may; not an Exception, so that no parser catches it."""


def given_seed() -> int:
    """Return the seed that the environment names, or the usual one."""
    return int(os.environ.get(SEED_VARIABLE, DEFAULT_SEED))


def hostile_input(parser: Parser, seed: int, number: int) -> bytes:
    """Return the input with this number; it depends on no other input."""
    return mutated(Random(f"{seed} {parser.name} {number}"), parser.seeds, parser.form)  # noqa: S311  # not a secret


def failure(parser: Parser, raw: bytes) -> str | None:
    """Read one input; return what went wrong, or None for a value or a ShuffleDpError."""
    signal.signal(signal.SIGPROF, _too_slow)
    signal.setitimer(signal.ITIMER_PROF, parser.most_seconds)
    try:
        parser.read(raw)
    except ShuffleDpError:
        return None
    except (Exception, TooSlowError) as error:  # noqa: BLE001  # what must not happen
        return f"{type(error).__name__}: {error}"[:_SHOWN]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return None


def _too_slow(_number: int, _frame: object) -> None:
    raise TooSlowError("took longer than its parser may")


def hostile(inputs: int, shard: int, shards: int) -> Iterator[tuple[Parser, int]]:
    """Divide `inputs` among all parsers; each of `shards` processes reads its own."""
    total = sum(parser.share for parser in parsers().values())
    for parser in parsers().values():
        count = max(1, round(inputs * parser.share / total))
        yield from ((parser, number) for number in range(shard, count * shards, shards))


def feed(chosen: Iterable[tuple[Parser, int]], seed: int) -> dict[str, Any]:
    """Read inputs by parser and number; count them, and report failures, few that look alike."""
    failures: list[dict[str, str]] = []
    alike: Counter[tuple[str, str]] = Counter()
    inputs = 0
    for parser, number in chosen:
        raw = hostile_input(parser, seed, number)
        broke = failure(parser, raw)
        inputs += 1
        if broke is None:
            continue
        alike[parser.name, broke[:30]] += 1
        if alike[parser.name, broke[:30]] <= _MAX_ALIKE and len(failures) < _MAX_FAILURES:
            repeat = f"--seed {seed} --parser {parser.name!r} --number {number}"
            failures.append(
                {
                    "error": broke,
                    "repeat": f"python -m tests.fuzz.fuzz {repeat}",
                    "input": repr(raw[:_SHOWN]),
                }
            )
    return {"inputs": inputs, "failures": failures}


def fed_in_bounds(chosen: Iterable[tuple[Parser, int]], seed: int) -> dict[str, Any]:
    """Feed inputs like `feed`, with memory limited, and also report how far it grew."""
    for parser in parsers().values():
        for example in parser.seeds:
            parser.read(example)  # load everything, so that only inputs can make memory grow below
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak is now's
    before, limits = _kilobytes("VmRSS"), resource.getrlimit(resource.RLIMIT_AS)
    space = _kilobytes("VmSize") * 1024 + MAX_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (space, limits[1]))
    try:
        found = feed(chosen, seed)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    return found | {"grown_bytes": max(0, _kilobytes("VmHWM") - before) * 1024}


def main() -> None:
    """Run one shard, and print what was found."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--seed", type=int, default=given_seed())
    arguments.add_argument("--inputs", type=int, default=10_000)
    arguments.add_argument("--shard", type=int, default=0)
    arguments.add_argument("--shards", type=int, default=1)
    arguments.add_argument("--parser")
    arguments.add_argument("--number", type=int, default=0)
    asked = arguments.parse_args()
    started = time.perf_counter()
    chosen = hostile(asked.inputs, asked.shard, asked.shards)
    if asked.parser:
        chosen = iter([(parsers()[asked.parser], asked.number)])
    found = fed_in_bounds(chosen, asked.seed)
    found |= {"seed": asked.seed, "seconds": round(time.perf_counter() - started, 1)}
    sys.stdout.write(json.dumps(found) + "\n")


def _kilobytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    main()
