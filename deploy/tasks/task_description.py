"""A task's question in a phrase."""

from common.task.specs import INSTANT_SUM, PERMANENT_SUM, KeyValueSpec, NumberSpec, RapporSpec
from common.task.task import Task


def describe_question(task: Task) -> str:
    """Return the kind of value, how many there are, and their range."""
    spec, size = task.mechanism, task.domain_size
    labelled = ", labelled" * bool(task.labels)
    if isinstance(spec, RapporSpec):
        return _texts(spec)
    if isinstance(spec, NumberSpec):
        numbers = "a number" if size == 1 else f"{size:,} numbers, each"
        return f"{numbers} from {spec.low:g} to {spec.high:g}{labelled}"
    if isinstance(spec, KeyValueSpec):
        within = f"from {spec.low:g} to {spec.high:g}"
        return f"a number {within} for each owned key of {size:,}{labelled}"
    return f"one of {size:,} items{labelled}"


def _texts(spec: RapporSpec) -> str:
    what = f"one of {spec.bits:,} texts"
    if spec.encoding != "labels":
        hashes = "1 hash" if spec.hashes == 1 else f"{spec.hashes} hashes"
        what = (
            f"a text of up to {spec.most_bytes:,} bytes; filters of {spec.bits:,} bits, {hashes}, "
            f"{spec.cohorts:,} cohorts"
        )
    f = spec.permanent_weight / PERMANENT_SUM
    p, q = spec.unset_weight / INSTANT_SUM, spec.set_weight / INSTANT_SUM
    return f"{what}; f {f:.4g}, p {p:.4g}, q {q:.4g}"
