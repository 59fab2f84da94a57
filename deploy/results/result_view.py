"""Build the tables, columns and JSON fields of a result, for every kind of data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

import numpy as np
from rich.console import Console

from shuffledp.analyzer.finalize import mixture_of_result
from shuffledp.common.errors import SettingsError
from shuffledp.common.mechanisms import base, registry
from shuffledp.common.mechanisms.discovery.prefix_hashing import code_of
from shuffledp.common.mechanisms.key_value.privkv import PrivKv
from shuffledp.common.mechanisms.numeric.number import Moments
from shuffledp.common.messages import result
from shuffledp.common.messages.guarantee import claimed, rounded_up
from shuffledp.common.messages.result import CONFIDENCE
from shuffledp.common.task.spec_forms import spec_as
from shuffledp.common.task.specs import KeyValueSpec, OpenSpec, RangedSpec
from shuffledp.common.task.task import Task
from shuffledp.deploy.results import decoder, estimate_table, table_view
from shuffledp.deploy.results.distribution_view import Questions, distribution_view, item_names
from shuffledp.deploy.results.estimate_table import EstimateTable, ResultView
from shuffledp.deploy.terminal.escape import escaped
from shuffledp.deploy.terminal.tables import guarantee_summary, print_guarantees

MAX_ROWS: Final = 2000
"""Maximum rows of a table on a page."""
_SHRUNK_FROM: Final = 3
"""Minimum number of means for which shrinking helps; see analyzer/estimation/shrinkage.py."""
_TOO_WIDE: Final = (
    "Too few users for this much noise: {:,} of {:,} intervals are at least as wide as the range."
)
_TOO_FEW_TO_FIND: Final = "Too few users for this much noise: no value is found reliably."
_NO_CANDIDATES: Final = "To find texts, give a file of candidates, one per line, with --candidates."
_OWN_INTERVAL: Final = (
    "Each interval by itself covers its true {} with 95\N{NO-BREAK SPACE}% probability"
)
_SHARES_NOTE: Final = (
    "; among many, some miss. Refined shares are at least 0 and sum to 100\N{NO-BREAK SPACE}%."
)
_AS_ESTIMATED: Final = (
    "Shares stay as estimated: they are not corrected to a known total, since the {} here may not "
    "be all that users hold."
)
_FAKES_INCLUDED: Final = (
    "This task does not estimate shares of owners. Users without a key report a fake value; no "
    "interval includes the bias caused by fakes."
)
_OWN_TOTAL: Final = "Shares stay as estimated: a user may own any number of keys."
_ERROR_PARTS: Final = ("noise, exact", "random rounding, at its worst")
"""Headings of the two parts of a mean's standard error."""
_ROUNDED: Final = (
    " The square of its standard error is the sum of the squares of two parts: that of the noise, "
    "which is exact, and the largest that random rounding can have, which no report shows."
)
_OWNERS_MEAN: Final = "Mean of the owners' values"
_FAKES_REMOVED: Final = (
    "Users without a key sometimes report it with a fake value, which the estimate corrects. Means "
    "of rare keys stay biased towards the middle of the range, by up to this part of half of it in "
    "simulations: .1 where the share is 5 times its standard error, .2 at 3 times, .4 at 2 "
    "times and .8 below. Keys with shares below 5 standard errors are marked as biased: {:,}."
)
_PRECISE: Final = 5
"""Least share, in standard errors, for a mean of little bias: docs/theory/estimation.md#means."""
_DETECTED: Final = (
    "Candidates detected: {:,} of {:,}. The probability that any of them does not occur is "
    "at most 5\N{NO-BREAK SPACE}% (Bonferroni)."
)
_RARE: Final = (
    "Rare values are not found, by design: one that {:.3g}\N{NO-BREAK SPACE}% of users hold is "
    "found with {}95\N{NO-BREAK SPACE}% probability{}."
)
_LEAST: Final = (
    "; values below {:.3g}\N{NO-BREAK SPACE}% are rarely found, and then with too large a share. "
    "Expected number of values found that nobody holds, if all users are honest: at most {:.2g}"
)
_NONE_FOUND: Final = "No value was frequent enough to be found."
_OVERFULL: Final = (
    "Too many prefixes seemed frequent: dishonest users may have sent reports for all."
)

_DISCARDED: Final = (
    "{} discarded {:,} of them: their layer of encryption did not open, or they arrived twice."
)
_TWO_SHUFFLERS: Final = (
    "The task has two shufflers, {} and then {}. Each is to add dummies and permute, which nobody "
    "can check. The coalition epsilon holds while either one is honest; against both with the "
    "analyzer, or with a published result, there is no bound."
)


class _Asked(NamedTuple):
    """The arguments of `result_view` but for the estimate."""

    task: Task
    most: int
    candidates: Sequence[str]
    questions: Questions | None


def result_view(
    estimate: result.Estimate,
    task: Task,
    *,
    most: int,
    candidates: Sequence[str] = (),
    questions: Questions | None = None,
) -> ResultView:
    """
    Build the view of a result, with at most `most` rows in each table.

    The default of `candidates`, for texts, are the task's labels. Without `questions`, only the
    histogram of a task with edges or a breakdown is shown. Raises SettingsError if candidates are
    given for other data; ReportError, TaskError or ValueRangeError if they cannot be decoded.
    """
    if candidates and not isinstance(estimate, result.BitTable):
        raise SettingsError(f"candidates are for texts; this task collects {task.kind} data")
    return _VIEWS[type(estimate)](estimate, _Asked(task, most, candidates, questions))


def _found_values(estimate: result.FoundValues, asked: _Asked) -> ResultView:
    task = asked.task
    spec, values = spec_as(task.mechanism, OpenSpec), estimate.values
    if spec.encoding == "code":
        names = [str(int.from_bytes(value, "big")) for value in values]
    elif spec.encoding == "hash":
        names = [value.hex() for value in values]
    else:
        names = [value.rstrip(b"\0").decode(errors="replace") for value in values]
    spelled = {code_of(value, spec.code_bytes).hex() for value in values}
    missing = [label for label in task.labels if label not in spelled]
    least, at_least = _LEAST.format(100 * estimate.least_share, estimate.expected_false), ""
    if spec.encoding == "spell":
        least, at_least = "", "at least "
    too_few = estimate.sure_share == 1
    notes = [_RARE.format(100 * estimate.sure_share, at_least, least)]
    if too_few:
        notes = [f"With so few users no value is found reliably{least}."]
    if missing:
        notes.append(f"Texts of {len(missing):,} of {task.domain_size:,} hashes were not found.")
    notes.append(_AS_ESTIMATED.format("values"))
    table = EstimateTable(
        title=f"Values found: {len(names):,}",
        name="value",
        value="share",
        names=names,
        values=estimate.shares,
        errors=estimate.standard_errors,
        shown=range(min(asked.most, len(names))),
        notes=notes,
    )
    return ResultView(
        tables=(table,),
        columns={"label": names, **table.columns()},
        warning=_OVERFULL * estimate.overfull
        or _TOO_FEW_TO_FIND * too_few
        or _NONE_FOUND * (not names),
        fields={
            "encoding": spec.encoding,
            "most_bytes": spec.most_value_bytes,
            "texts": names,
            "not_spelled_labels": missing,
            "known_total": False,
        },
    )


def _histogram(estimate: result.Histogram, asked: _Asked) -> ResultView:
    task, view = asked.task, ResultView()
    if asked.questions is not None and (task.edges or task.breakdown):
        view = distribution_view(estimate, asked.questions)
    shares, size = estimate.frequencies, len(estimate.frequencies)
    labels, refined = item_names(task), estimate.refined.tolist()
    shown = estimate_table.largest(shares, asked.most)
    informative = estimate.any_share_above_zero(CONFIDENCE)
    # Of many buckets each share may be lost in noise, and the quantiles be precise all the same.
    informative = informative or any(each.locates_median for each in view.groups.values())
    table = EstimateTable(
        title=f"Share of users with each of {size:,} values",
        listed=False,
        selection="{:,} largest",
        name=f"value in {task.edges.unit}" if task.edges and task.edges.unit else "value",
        value="share",
        names=labels,
        values=shares,
        errors=estimate.standard_errors,
        shown=sorted(shown) if task.edges else shown,
        more={"refined": refined},
        given_ends=estimate.interval(CONFIDENCE),
        notes=(_OWN_INTERVAL.format("share") + _SHARES_NOTE,),
    )
    columns = {"item": range(size), "label": labels, **table.columns(), "refined": refined}
    return replace(
        view,
        tables=(table, *view.tables),
        columns={**columns, **view.columns},
        fields={"known_total": True, **view.fields},
        warning="" if informative else estimate_table.TOO_FEW_USERS,
    )


def _means(estimate: result.Means, asked: _Asked) -> ResultView:
    task = asked.task
    means, size, shrunk = estimate.means, len(estimate.means), estimate.shrunk.tolist()
    more: dict[str, Sequence[str | float]] = {"standard error": estimate.standard_errors.tolist()}
    note, parts = f"{_OWN_INTERVAL.format('mean')}.", dict[str, list[float]]()
    fields: dict[str, Any] = {}
    if worst := estimate.rounding_error:
        noise = np.sqrt(np.maximum(estimate.standard_errors**2 - worst**2, 0.0))
        fields = {"noise_errors": noise.tolist()}
        parts = {"noise_error": noise.tolist(), "rounding_error": [worst] * size}
        for heading, figures in zip(_ERROR_PARTS, parts.values(), strict=True):
            more[heading] = [f"{figure:.3g}" for figure in figures]
        note += _ROUNDED
    if size >= _SHRUNK_FROM:
        more["shrunk"] = shrunk
        note += " Shrunk means have a smaller total error, but are biased."
    if not estimate.unbiased:
        note = "Means are biased: no interval includes the error of the projection."
    spec = spec_as(task.mechanism, RangedSpec)
    table = EstimateTable(
        title=f"Mean of {'a number' if size == 1 else f'each of {size:,} numbers'}",
        name="number",
        value="mean",
        biased=not estimate.unbiased,
        names=["mean"] if size == 1 and not task.labels else _labels(task, size, "number "),
        values=means,
        errors=estimate.standard_errors,
        shown=range(min(asked.most, size)),
        more=more,
        given_ends=_mean_ends(estimate, task, spec),
        notes=(note,),
    )
    return ResultView(
        tables=(table,),
        columns={
            "number": range(size),
            "label": _labels(task, size),
            **table.columns(),
            **parts,
            "shrunk": shrunk,
        },
        warning=_too_wide(table, spec.high - spec.low),
        fields={"low": spec.low, "high": spec.high, **fields},
    )


def _mean_ends(estimate: result.Means, task: Task, spec: RangedSpec) -> result.Interval | None:
    """Return the ends of the means' intervals in the task's units; None for normal ones."""
    half, middle = (spec.high - spec.low) / 2, (spec.high + spec.low) / 2
    means, errors = (estimate.means - middle) / half, estimate.standard_errors / half
    mechanism = registry.mean_mechanism_of(task)
    ends = mechanism.interval(Moments(means=means, variances=errors**2), CONFIDENCE)
    return ends and (middle + half * ends[0], middle + half * ends[1])


def _key_values(estimate: result.KeyValues, asked: _Asked) -> ResultView:
    task, reports = asked.task, estimate.reports.tolist()
    spec = spec_as(task.mechanism, KeyValueSpec)
    own = _with_fakes if estimate.owners is None else _owners
    view = own(estimate, asked, spec)
    return replace(
        view,
        columns={
            "key": range(len(reports)),
            "label": _labels(task, len(reports)),
            **view.columns,
            "mean_with_fakes": estimate.means_with_fakes.tolist(),
            "error_with_fakes": estimate.errors_with_fakes.tolist(),
            "reports": reports,
        },
        fields={"low": spec.low, "high": spec.high, "population": task.population, **view.fields},
    )


def _with_fakes(estimate: result.KeyValues, asked: _Asked, spec: KeyValueSpec) -> ResultView:
    """Return the means of the reports on each key, of a task that does not estimate owners."""
    table = _key_table(
        *(estimate, asked, estimate.means_with_fakes, estimate.errors_with_fakes),
        title=f"Mean of the reports on each of {len(estimate.reports):,} keys, fakes included",
        value="mean with fakes",
        biased=True,
        notes=(_FAKES_INCLUDED, *_without_reports(estimate)),
    )
    warning = _too_wide(table, spec.high - spec.low, every=True)
    return ResultView(tables=(table,), columns={}, warning=warning)


def _owners(estimate: result.KeyValues, asked: _Asked, spec: KeyValueSpec) -> ResultView:
    """Return the shares of owners, and the means of their values, with the fakes removed."""
    owners, size = cast("result.Owners", estimate.owners), len(estimate.reports)
    priv_kv, reached = PrivKv.of(asked.task), (owners.frequencies, estimate.reports)
    half, middle = (spec.high - spec.low) / 2, (spec.high + spec.low) / 2
    with_fakes, noise = estimate.means_with_fakes - middle, estimate.errors_with_fakes
    down, up = priv_kv.stretch(with_fakes / half, noise / half, CONFIDENCE)
    biased = owners.frequencies < _PRECISE * owners.frequency_errors
    marks = ["yes" if each else "no" for each in biased]
    shares = _key_table(
        estimate,
        asked,
        owners.frequencies,
        owners.frequency_errors,
        title=f"Share of users who own each of {size:,} keys",
        value="share",
        notes=(f"{_OWN_INTERVAL.format('share')}.", _OWN_TOTAL, *_without_reports(estimate)),
        given_ends=priv_kv.share_interval(*reached, CONFIDENCE),
    )
    means = _key_table(
        estimate,
        asked,
        owners.means,
        owners.mean_errors,
        title=_OWNERS_MEAN,
        value="mean",
        notes=(_FAKES_REMOVED.format(int(biased.sum())),),
        given_ends=(
            owners.means - down * owners.mean_errors,
            owners.means + up * owners.mean_errors,
        ),
    )
    means = replace(means, more={**means.more, "biased": marks})
    confidence = result.simultaneous_confidence(CONFIDENCE, size)
    above = priv_kv.share_interval(*reached, confidence)[0] > 0
    return ResultView(
        tables=(shares, means),
        columns=shares.columns() | means.columns("mean_") | {"mean_biased": marks},
        warning="" if above.any() else estimate_table.TOO_FEW_USERS,
        fields={"known_total": False, "mean_biased": biased.tolist()},
    )


def _key_table(
    estimate: result.KeyValues,
    asked: _Asked,
    values: base.Vector,
    errors: base.Vector,
    **others: Any,  # noqa: ANN401  # other fields
) -> EstimateTable:
    """Return a table of the keys with reports, by the share of their owners if it is known."""
    reports = [f"{n:,}" for n in estimate.reports.tolist()]
    reported = np.flatnonzero(estimate.reports)
    if estimate.owners is not None:
        others["selection"] = "{:,} most owned"
        order = np.argsort(-estimate.owners.frequencies[reported], kind="stable")
        reported = reported[order]
    return EstimateTable(
        name="key",
        names=_labels(asked.task, len(reports), "key "),
        values=values,
        errors=errors,
        shown=reported[: asked.most].tolist(),
        more={"standard error": errors.tolist(), "reports": reports},
        **others,
    )


def _without_reports(estimate: result.KeyValues) -> list[str]:
    """Return a note on the number of keys without reports, if there are any."""
    number = int((estimate.reports == 0).sum())
    return [f"Keys without reports, which have no estimates: {number:,}."] * (number > 0)


def _texts(bit_table: result.BitTable, asked: _Asked) -> ResultView:
    task, candidates = asked.task, asked.candidates or asked.task.labels
    cohorts, bits = bit_table.bit_counts.shape
    columns: estimate_table.Columns = {
        "cohort": np.repeat(np.arange(cohorts), bits).tolist(),
        "bit": np.tile(np.arange(bits), cohorts).tolist(),
        "set": bit_table.bit_counts.ravel().tolist(),
        "reports": np.repeat(bit_table.cohort_sizes, bits).tolist(),
    }
    if not candidates:
        return ResultView(columns=columns, warning=_NO_CANDIDATES)
    cells = np.concatenate([bit_table.cohort_sizes, bit_table.bit_counts.ravel()])
    decoding, size = decoder.decode(registry.rappor_of(task), cells, candidates), len(candidates)
    shares, p_values = decoding.shares, decoding.p_values.tolist()
    detected, n_detected = decoding.detected.tolist(), int(decoding.detected.sum())
    fields = {
        "candidates": list(candidates),
        "shares": shares.tolist(),
        "standard_errors": decoding.share_errors.tolist(),
        "p_values": p_values,
        "detected": detected,
        "known_total": False,
    }
    note = (
        "Every text is one of the task's labels, but shares stay as estimated: they sum to "
        "100\N{NO-BREAK SPACE}% only up to noise."
    )
    if not decoding.exhaustive:
        half_width = result.interval_half_width(CONFIDENCE) * decoding.unexplained_error
        note = (
            f"Unexplained: {100 * decoding.unexplained:.2f} ± {100 * half_width:.2f}"
            "\N{NO-BREAK SPACE}% of users hold a text that is not a candidate. "
            + _AS_ESTIMATED.format("candidates")
        )
        fields |= {
            "explained": 1 - decoding.unexplained,
            "unexplained": decoding.unexplained,
            "unexplained_standard_error": decoding.unexplained_error,
        }
    table = EstimateTable(
        title=f"Share of users who hold each of {size:,} candidates",
        selection="{:,} largest",
        name="text",
        value="share",
        names=candidates,
        values=shares,
        errors=decoding.share_errors,
        given_ends=decoding.interval(CONFIDENCE),
        shown=estimate_table.largest(shares, asked.most),
        more={
            "p-value": [f"{p_value:.2g}" for p_value in p_values],
            "detected": ["yes" if found else "no" for found in detected],
        },
        notes=(_DETECTED.format(n_detected, size), note),
    )
    if asked.candidates:
        columns = {"text": candidates, **table.columns(), "p_value": p_values, "detected": detected}
    low, _ = decoding.interval(result.simultaneous_confidence(CONFIDENCE, size))
    warning = "" if (low > 0).any() else estimate_table.TOO_FEW_USERS
    return ResultView(tables=(table,), columns=columns, warning=warning, fields=fields)


def _share_tables(estimate: result.ShareTables, asked: _Asked) -> ResultView:
    batch = asked.questions and asked.questions.batch
    # Shares are of the users whose reports were counted.
    n_users = round(mixture_of_result(asked.task, batch).n_real) if batch else None
    return table_view.table_view(estimate, asked.task, asked.most, n_users)


_VIEWS: Final[Mapping[type[result.Estimate], Callable[[Any, _Asked], ResultView]]] = {
    result.BitTable: _texts,
    result.FoundValues: _found_values,
    result.Histogram: _histogram,
    result.KeyValues: _key_values,
    result.Means: _means,
    result.ShareTables: _share_tables,
}


def _too_wide(table: EstimateTable, width: float, *, every: bool = False) -> str:
    """Return a warning if an interval, or `every` one, is at least as wide as the range."""
    low, high = table.ends
    wide = high - low >= width
    return _TOO_WIDE.format(wide.sum(), wide.size) if (wide.all() if every else wide.any()) else ""


def _labels(task: Task, size: int, prefix: str = "") -> Sequence[str]:
    """Return a task's labels, or the prefix and a number for each value."""
    return task.labels or [f"{prefix}{index}" for index in range(size)]


def print_result(
    found: result.Result, view: ResultView, console: Console, *, guarantees: bool, task: Task
) -> None:
    """Print a result, with untrusted text escaped."""
    console.print(f"Task {found.task_digest.hex()}", soft_wrap=True)
    n_refused = sum(found.refused.values())
    causes = ", ".join(f"{n:,} {escaped(cause)}" for cause, n in found.refused.items() if n)
    console.print(
        f"Users: {found.n_users:,}, by {escaped(found.protocol)}. Reports: {found.n_reports:,}, of "
        f"them refused: {n_refused:,}{f' ({causes})' * bool(n_refused)}."
    )
    for warning in found.all_warnings:
        console.print(f"Warning: {escaped(warning)}.", style="bold")
    if (n_discarded := found.refused.get("discarded", 0)) and task.relay:
        console.print(_DISCARDED.format(escaped(task.relay.name), n_discarded))
    print_released(found, view, console, guarantees=guarantees, task=task)


def print_released(
    found: result.Result, view: ResultView, console: Console, *, guarantees: bool, task: Task
) -> None:
    """Print the guarantee that is charged for and the estimates; or all guarantees, at the end."""
    if not guarantees:
        rows, local = found.guarantees, rounded_up(found.local_epsilon)
        summary = guarantee_summary(claimed(rows), rows, local)
        console.print(f"Guarantee for each user: {summary}")
    if task.relay:
        first, second = (escaped(each.name) for each in task.shufflers)
        console.print(_TWO_SHUFFLERS.format(first, second))
    print_estimates(view, console)
    if guarantees:
        print_guarantees(found.guarantees, "Guarantees for each user", console)


def print_estimates(view: ResultView, console: Console) -> None:
    """Print a view's warning and tables."""
    if view.warning:
        console.print(view.warning, style="bold")
    for table in view.tables:
        estimate_table.print_table(table, console)
