"""Tables, columns and JSON fields of a result on several attributes."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Final

import numpy as np

from shuffledp.common.messages import result
from shuffledp.common.messages.result import ShareTable, ShareTables
from shuffledp.common.task import spec_forms, view_specs
from shuffledp.common.task.domain_spec import GROUP_SEPARATOR, AttributeSpec
from shuffledp.common.task.task import Task
from shuffledp.deploy.results import association, estimate_table
from shuffledp.deploy.results.distribution_view import bucket_names
from shuffledp.deploy.results.estimate_table import EstimateTable, ResultView

_AGREE: Final = (
    "All tables agree where they have an attribute in common. Each interval by itself covers its "
    "true share with 95\N{NO-BREAK SPACE}% probability; among many, some miss."
)
_TESTED: Final = (
    "The tests ask whether two attributes are independent in a population of which the users are a "
    "random sample, and account for noise and sampling. If the users are all there are, the tables "
    "alone answer. Of {:,} p-values, expect {:.2g} below .05 by chance; multiply each by {:,} to "
    "test all at once. P-values below .001 are approximate where a table's rarest cells hold few "
    "people. The association is Cramér's V: 0 for independent attributes, 1 if one "
    "follows from the other. It leaves out values rarer than 5 standard errors; its interval is "
    "approximate."
)
_COLUMNS: Final = ("attribute", "value", "other_attribute", "other_value")


def names_of(attribute: AttributeSpec) -> Sequence[str]:
    """Return the names of an attribute's values: labels, or buckets."""
    return bucket_names(attribute.edges) if attribute.edges else attribute.labels


def table_view(estimate: ShareTables, task: Task, most: int, n_users: int | None) -> ResultView:
    """
    Return the view of a result, with at most `most` rows in each table.

    Columns have a row for each value of each attribute, then for each cell of each table of two.
    Associations stand first, if the number of users is known.
    """
    spec = spec_forms.spec_as(task.mechanism, view_specs.TableSpec)
    titles, names = spec.attribute_names, [*map(names_of, spec.attributes)]
    tables, rows = list[EstimateTable](), list[tuple[str, ...]]()
    for each, own, shares in zip(spec.attributes, names, estimate.attributes, strict=True):
        unit = f" in {each.edges.unit}" if each.edges and each.edges.unit else ""
        tables.append(_table(each.name, each.name + unit, own, shares, most))
        rows += [(each.name, value, "", "") for value in own]
    found = dict[tuple[int, ...], association.Association]()
    for pair, shares in zip(spec.tables, estimate.tables, strict=True):
        if len(pair) == 1:
            continue
        (one, of_one), (other, of_other) = ((titles[each], names[each]) for each in pair)
        crossed = [(a, b) for a in of_one for b in of_other]
        heading, cells = GROUP_SEPARATOR.join((one, other)), [*map(GROUP_SEPARATOR.join, crossed)]
        tables.append(_table(f"{one} and {other}", heading, cells, shares, most, listed=False))
        rows += [(one, a, other, b) for a, b in crossed]
        if n_users is not None:
            margins = [estimate.attributes[each] for each in pair]
            found[pair] = association.Association.of(shares, margins, n_users)
    confidence = result.simultaneous_confidence(result.CONFIDENCE, len(rows))
    figures = tables[0].columns()
    for table in tables[1:]:
        for name, column in table.columns().items():
            figures[name] = [*figures[name], *column]
    everything = (*estimate.attributes, *estimate.tables)
    informative = any((each.interval(confidence)[0] > 0).any() for each in everything)
    return ResultView(
        tables=(*_associations(found, titles, most), *tables),
        columns={**dict(zip(_COLUMNS, zip(*rows, strict=True), strict=True)), **figures},
        fields={
            "known_total": True,
            "attribute_names": titles,
            "attribute_values": names,
            "table_attributes": spec.tables,
            "associations": [{"attributes": pair, **asdict(each)} for pair, each in found.items()],
        },
        warning="" if informative else estimate_table.TOO_FEW_USERS,
    )


def _table(
    title: str,
    name: str,
    names: Sequence[str],
    table: ShareTable,
    most: int,
    *,
    listed: bool = True,
) -> EstimateTable:
    """Return a table of shares, in order if all are shown."""
    shown, errors = (
        estimate_table.largest(table.shares, most),
        np.full(len(names), table.standard_error),
    )
    return EstimateTable(
        title=f"Share of users by {title}",
        selection="{:,} largest",
        name=name,
        value="share",
        names=names,
        values=table.shares,
        errors=errors,
        shown=range(len(names)) if len(shown) == len(names) else shown,
        more={"standard error": errors.tolist()},
        given_ends=table.interval(result.CONFIDENCE),
        listed=listed,
    )


def _associations(
    found: Mapping[tuple[int, ...], association.Association], titles: Sequence[str], most: int
) -> list[EstimateTable]:
    """Return the table of all pairs' associations, the strongest first; none without pairs."""
    if not found:
        return []
    each, number = [*found.values()], len(found)
    strengths = np.array([one.cramers_v for one in each])
    low, high = np.array([one.interval for one in each]).T
    table = EstimateTable(
        title="Association of two attributes, for each table",
        selection="{:,} strongest",
        name="attributes",
        value="association",
        names=[GROUP_SEPARATOR.join(titles[place] for place in pair) for pair in found],
        values=strengths,
        errors=(high - low) / 4,  # for the number of decimals only
        given_ends=(low, high),
        shown=estimate_table.largest(strengths, most),
        more={
            "chi-squared": [f"{one.statistic:,.1f}" for one in each],
            "degrees": [f"{round(one.degrees, 1):,.12g}" for one in each],
            "p-value": [f"{one.p_value:.2g}" for one in each],
        },
        notes=(_TESTED.format(number, number / 20, number), _AGREE),
    )
    return [table]
