"""Laws of single reports that small batches are listed of, beside those that the audit lists."""

import itertools
import math

from tests.support.exhaustive_delta import Law


def unary_law(value: int | None, bits: int, p: float, q: float) -> Law:
    """Law of one unary encoding: its own bit set with chance p, every other (of None: all) q."""
    chances = [p if bit == value else q for bit in range(bits)]
    return {
        report: math.prod(
            chance if bit else 1 - chance for bit, chance in zip(report, chances, strict=True)
        )
        for report in itertools.product((0, 1), repeat=bits)
    }


def duchi_law(value: float, local_epsilon: float) -> Law:
    """Law of Duchi's bit of a number in -1 .. 1."""
    up = 0.5 + value * math.tanh(local_epsilon / 2) / 2
    return {(1,): up, (0,): 1 - up}


def every_function_law(value: int, values: int, buckets: int, local_epsilon: float) -> Law:
    """Law of one report of local hashing whose seed names any function from values to buckets."""
    functions = list(itertools.product(range(buckets), repeat=values))
    total = (math.exp(local_epsilon) + buckets - 1) * len(functions)
    return {
        (seed, bucket): (math.exp(local_epsilon) if bucket == function[value] else 1) / total
        for seed, function in enumerate(functions)
        for bucket in range(buckets)
    }
