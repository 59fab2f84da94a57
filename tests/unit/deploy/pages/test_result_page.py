"""The pages of a result, of every kind of value, and of the ledger."""

import base64
import dataclasses
import re
from functools import partial
from html import unescape
from typing import Any, Final, get_args

import numpy as np
import pytest
from syrupy.assertion import SnapshotAssertion

from shuffledp.common.accounting.guarantees import guarantees
from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.messages.guarantee import rounded_up
from shuffledp.common.messages.ledger_entry import ChainedEntry, verify
from shuffledp.common.messages.result import (
    BitTable,
    Histogram,
    KeyValues,
    Means,
    Result,
    interval_half_width,
)
from shuffledp.common.protocols import Kind, Refinement
from shuffledp.common.task.canonical import to_json
from shuffledp.common.task.draft import PairDraft, TableDraft, TextDraft
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.pages import result_page as module
from shuffledp.deploy.pages.page import fragment, macros
from shuffledp.deploy.pages.result_page import histogram_data, plotted, releases_page, result_page
from shuffledp.deploy.results.estimate_table import EstimateTable, ResultView
from shuffledp.deploy.results.ledger import LedgerView
from shuffledp.deploy.results.result_view import print_result, result_view
from tests.support.chains import chain
from tests.support.kind_results import CANDIDATES, kind_collected, result_of, share_tables
from tests.support.kind_tasks import ATTRIBUTES, OF_OTHER_KINDS, OTHER_KINDS, kind_task
from tests.support.ledger_entries import decision_entry, first_entry, next_entry, population_budgets
from tests.support.page_text import of_any_version, page_text
from tests.support.printing import printed
from tests.support.protocol_tasks import ITEM_PROTOCOLS, protocol_task
from tests.support.result_pages import collected, page_of
from tests.support.results import guarantee
from tests.support.tasks import published

_COLLECTED: Final = collected(size=100)
_HOSTILE: Final = "<script>alert(1)</script>\"'&{{7*7}}"


def _page(result: Result, task: Task, **changes: Any) -> str:
    view = result_view(result.estimate, task, **{"most": 99, **changes})
    return result_page(result, task, view)


def _of_kind(kind: Kind, labels: tuple[str, ...] = (), **changes: Any) -> str:
    found = kind_collected(kind, labels)
    asked = {"candidates": CANDIDATES} if kind == "string" else {}
    return _page(found.result, found.task, **asked, **changes)


def _items(**changes: Any) -> str:
    return _page(dataclasses.replace(_COLLECTED.result, **changes), _COLLECTED.task)


def _cited(page: str) -> list[str]:
    """Return the sentence and the BibTeX entry of a page."""
    found = re.findall(
        r'(?s)<p class="prose digest">(.*?)</p>|<pre tabindex[^>]*>(.*?)</pre>', page
    )
    return [of_any_version(unescape(sentence or entry)) for sentence, entry in found]


def _histogram(*shares: float) -> Histogram:
    array = np.array(shares)
    return Histogram(frequencies=array, standard_errors=array / 10, refined=array, mse_theory=0.01)


def _story(page: str) -> str:
    return page_text(page).partition("Each person")[2].partition("Protocol")[0]


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_a_page_of_every_kind_has_all_sections(kind: Kind, snapshot: SnapshotAssertion) -> None:
    """The page has estimates, guarantees, refused reports, parameters and a citation."""
    assert snapshot == page_text(_of_kind(kind))


def test_a_histograms_page_has_all_sections(snapshot: SnapshotAssertion) -> None:
    """The script draws its values."""
    assert snapshot == page_text(page_of(_COLLECTED, known=True))


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_only_histograms_and_tables_need_a_script(kind: Kind) -> None:
    """No other page runs one, and none fetches anything."""
    for page, scripts in ((_of_kind(kind), 2 * (kind == "table")), (_items(), 2)):
        assert scripts == page.count("<script")
        assert not re.search(r"""(src|href)\s*=\s*["'](https?:)?//""", page)
        assert not re.search(r"\son[a-z]+\s*=", page)


def test_a_hostile_label_candidate_or_population_is_text() -> None:
    """Such text is neither markup nor a template."""
    texts = kind_collected("string")
    task = dataclasses.replace(texts.task, population=_HOSTILE, title=_HOSTILE)
    pages = [_page(texts.result, task, candidates=(_HOSTILE, "Ohio"))]
    opened = kind_collected("open")
    found: Any = opened.result.estimate
    estimate = dataclasses.replace(found, values=(_HOSTILE.encode(), b"a", b"b"))
    pages.append(_page(dataclasses.replace(opened.result, estimate=estimate), opened.task))
    sizes: dict[Kind, int] = {"mean": 1, "vector": 5, "key-value": 6}
    for kind, size in sizes.items():
        pages.append(_of_kind(kind, (_HOSTILE, *map(str, range(1, size)))))

    for page in pages:
        assert "<script>alert" not in page
        assert f">{_HOSTILE}</th>" in unescape(page)
    assert f"<h1>{_HOSTILE}</h1>" in unescape(pages[0])
    assert f"Population: {_HOSTILE}." in unescape(pages[0])


@pytest.mark.parametrize("protocol", [*OF_OTHER_KINDS, *ITEM_PROTOCOLS])
def test_the_page_of_every_protocol_has_its_story_and_all_parameters(
    protocol: str, snapshot: SnapshotAssertion
) -> None:
    """Each field of the task has its name, and each of its mechanism that the mechanism uses."""
    if protocol in OF_OTHER_KINDS:
        task = kind_task(protocol)
        estimate = kind_collected(task.kind).result.estimate
        if isinstance(estimate, Means):
            estimate = dataclasses.replace(estimate, unbiased=protocol != "multi-rphm")
    else:
        task = protocol_task(protocol)
        estimate = _histogram(*np.ones(task.domain_size))
    page = _page(result_of(task, estimate=estimate), task)

    shown = set(re.findall(r"mechanism\.(\w+)</code>", page))
    fields = to_json(task.mechanism)
    unused = {("digits", 1), ("most_bytes", 64)}
    assert {(name, fields[name]) for name in fields.keys() - shown} <= unused
    assert task.kind != "mean" or not shown & {"sampled", "projected"}
    for field in dataclasses.fields(task):
        if field.name in {"edges", "breakdown"}:
            assert (getattr(task, field.name) is not None) == (f">{field.name}</code>" in page)
        elif field.name in {"title", "prompt", "purpose", "series", "round"}:
            assert f">{field.name}</code>" not in page
        elif field.name not in {"mechanism", "views", "shufflers"}:
            assert (task.kind not in {"string", "table"} or field.name != "labels") == (
                f">{field.name}</code>" in page
            )
    assert snapshot == _story(page)


def test_two_shufflers_are_named_on_the_page_and_in_print() -> None:
    """With the epsilon against either one, what each adds, and what the second one discarded."""
    task = published(**chain(), domain_size=6).task
    rows = guarantees(task, task.n_min, 3)
    result = result_of(
        task,
        estimate=_histogram(*np.ones(6)),
        guarantees=rows,
        refused={"discarded": 3, "malformed": 0},
    )
    html = _page(result, task)
    [either] = [row for row in rows if row.coalition == "either-shuffler"]
    page, epsilon = page_text(html), rounded_up(either.epsilon)
    view = result_view(result.estimate, task, most=9)
    text = printed(partial(print_result, result, view, guarantees=False, task=task), width=999)

    assert "first.example and then second.example, passed the sealed reports on" in page
    assert "If the analyzer and either shuffler pool what they saw, at most" in page
    assert "as long as the other shuffler is honest." in page
    assert "as long as the other adds its dummies and forgets which" in page
    for who in ("the first shuffler", "the second shuffler"):
        assert f"The analyzer and {who} together" in page
    assert re.search(r"Discarded the second shuffler discarded it: its layer .* twice \| 3", page)
    for place in ("first shuffler, first.example", "second shuffler, second.example"):
        assert f"What the {place}, adds" in page
    assert 2 == page.count("shufflers.noise.peak | 25")
    assert {"relay_key", "relay_key_proof"} <= {*re.findall(r">(\w+)</code>", html)}
    cited = f"epsilon = {epsilon} and delta = 1e-06 against the analyzer and either shuffler"
    sentence, entry = _cited(html)
    assert cited in sentence
    assert cited.replace("epsilon =", "$\\epsilon$ =").replace("delta", "$\\delta$") in entry
    assert "second.example discarded 3 of them: their layer of encryption did not open" in text
    assert f"epsilon {epsilon} against the analyzer with either shuffler" in text
    assert "The task has two shufflers, first.example and then second.example." in text
    assert "Either shuffler could falsify the result by dropping, repeating" in page
    assert "Both shufflers and the analyzer together | no limit" in page


@pytest.mark.parametrize("labels", [(), ("a", "b", "c")])
@pytest.mark.parametrize(
    "chances",
    [
        {},
        {"question": "state"},
        {"question": "state", "unset": 0.0, "set": 1.0},
        {"unset": 0.0, "set": 1.0},
        {"permanent": 0.0},
    ],
)
def test_each_variant_of_rappor_has_its_story_and_is_cited(
    labels: tuple[str, ...], chances: dict[str, Any], snapshot: SnapshotAssertion
) -> None:
    """Reports hold filters or labels, with noise once, twice or permanent."""
    cohorts, bits = (1, 3) if labels else (1 if "set" in chances else 64, 32)
    texts = TextDraft(**{"cohorts": cohorts, **({} if labels else {"bits": bits}), **chances})
    task = kind_task("rappor", labels=labels, texts=texts, population="staff")
    table = BitTable(
        cohort_sizes=np.full(cohorts, 1000, dtype=np.int64),
        bit_counts=np.full((cohorts, bits), 300, dtype=np.int64),
    )
    page = _page(result_of(task, estimate=table), task)

    assert snapshot == _story(page)
    assert snapshot == _cited(page)[0].partition(", differentially")[0]


def _of_tables(*pairs: tuple[str, ...], **changes: Any) -> str:
    """Return the text of a page on three attributes: illness, age and smokes."""
    form = TableDraft(attributes=ATTRIBUTES, tables=pairs)
    task = kind_task("tables", tables=form, **changes)
    return page_text(_page(result_of(task, estimate=share_tables(task)), task))


def test_a_page_states_the_dummies_that_a_user_always_adds_to_all_views() -> None:
    """A mean of 12.5 over tables of 9, 6 and 6 cells: 5, 3 and 3 dummies for certain."""
    page = _of_tables()

    assert "Dummies that each user always adds | dummies.per_user | 11" in page
    assert "dummies.averages | 5.357, 3.571, 3.571 per user on average, by view" in page


def test_intervals_of_tables_are_exact_with_and_without_pairs() -> None:
    """A page without a heat map has no associations, and states the number of its tables."""
    for names in ([("illness",), ("age",), ("smokes",)], [("illness", "age"), ("smokes",)]):
        page = _of_tables(*names)
        assert "Intervals follow the exact distribution of a count" in page
        assert (len(names) == 2) == ("those of associations are approximate" in page)
        assert f"Tables | {len(names)}" in page


@pytest.mark.parametrize(("most", "held"), [(21, 3), (20, 2), (8, 1), (5, 0)])
def test_a_page_holds_every_table_that_fits(
    most: int, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that is too large leaves room for smaller ones, and a notice counts them."""
    monkeypatch.setattr(module, "MAX_CELLS", most)
    page = _of_tables()

    assert ("point at one" in page) == (held > 0)
    assert (f"This page holds {held} of 3 tables." in page) == (held < 3)


_NO_CENTRAL: Final = (guarantee("analyzer", np.inf, 1e-6),)


@pytest.mark.parametrize("changes", [{}, {"local_epsilon": np.inf}, {"guarantees": _NO_CENTRAL}])
def test_a_result_is_cited_with_both_epsilons(
    changes: dict[str, Any], snapshot: SnapshotAssertion
) -> None:
    """The citation has task, size and protocol, and no date, which a result lacks."""
    digest = {"task_digest": TaskDigest(b"\xd1" * 32)}

    assert snapshot == _cited(_items(**digest | changes))


@pytest.mark.parametrize("name", ["a\\}", "}}, evil = {", "100%", "~^_#$", "staff & {guests}"])
def test_a_population_cannot_leave_its_field_of_the_citation(name: str) -> None:
    """Nor can a title: braces stay paired, and no percent sign begins a comment."""
    task = dataclasses.replace(_COLLECTED.task, population=name, title=name)
    _, written = _cited(_page(_COLLECTED.result, task))

    bare = written.replace("\\{", "").replace("\\}", "")
    assert bare.count("{") == bare.count("}")
    assert not set("%&") & set(written.replace("\\%", "").replace("\\&", ""))
    assert "evil = {" not in written


def test_every_kind_has_its_words_and_a_new_one_has_defaults() -> None:
    """A word that a row lacks, or of a kind without a row, is the default."""
    words = macros("kind_words.html")

    assert {*get_args(Kind)} == words.WORDS.keys()
    assert "Histogram of {} values" == str(words.word("categorical", "title"))
    assert "values" == str(words.word("categorical", "named"))
    for name, default in words.DEFAULTS.items():
        assert default == str(words.word("angle", name))


def test_the_page_of_a_later_iteration_has_no_owners() -> None:
    """Neither story nor title mentions them, and there are no shares."""
    pairs = PairDraft(low=0.0, high=5.0, key_share=0.0)
    task, estimate = kind_task("priv-kv", pairs=pairs), kind_collected("key-value").result.estimate
    assert isinstance(estimate, KeyValues)
    later = result_of(task, estimate=dataclasses.replace(estimate, owners=None))
    text = page_text(_page(later, task))

    assert "Means of 6 keys" in text
    assert "the mean of the reports about each key, fakes included." in text
    assert "how many people own" not in text
    assert "share of users" not in text


_NOISY: Final = dataclasses.replace(
    _COLLECTED.result.histogram,
    standard_errors=np.full(100, _COLLECTED.result.histogram.frequencies.max() / 2.5),
)
_ALONE: Final = published(domain_size=100, local_epsilon=4.0).task
_LOCAL: Final = published(domain_size=100, protocol="ldp-oue", buckets=0, dummies_per_user=0).task
_TEXTS: Final = kind_collected("string")


@pytest.mark.parametrize(
    ("result", "task", "there", "missing"),
    [
        (_COLLECTED.result, _COLLECTED.task, "charged to the population", "Too few users"),
        (_COLLECTED.result, _COLLECTED.task, "finds it within the claim", "what the task"),
        (_COLLECTED.result, _ALONE, "what the task claims", "charged to the population"),
        (_COLLECTED.result, _LOCAL, "what the task claims", "finds it within the claim"),
        (
            dataclasses.replace(_COLLECTED.result, estimate=_NOISY),
            *(_COLLECTED.task, "Too few users", "what the task"),
        ),
        (_TEXTS.result, _TEXTS.task, "--candidates", '<table class="estimates">'),
    ],
)
def test_a_page_explains_its_claim_and_what_it_lacks(
    result: Result, task: Task, there: str, missing: str
) -> None:
    """A claim above the computed figure, a charged population, too few users, no candidates."""
    page = _page(result, task)

    assert there in page
    assert missing not in page


@pytest.mark.parametrize(
    ("value", "values", "reaches", "truth", "drawn"),
    [
        ("mean", [0.0, 2.0], [1.0, 1.0], None, ([(0.0, 50.0, 25.0), (50.0, 100.0, 75.0)], 25.0)),
        ("mean", [7.5], [0.5], None, ([(0.0, 100.0, 50.0)], None)),
        ("mean", [1.0], [0.0], None, ([(0.0, 0.0, 0.0)], None)),
        ("mean", [1.0], [3.0], [6.0], ([(0.0, 75.0, 37.5, 100.0)], 25.0)),
        ("mean", [1.0, 1.0], [np.inf, 2.0], None, ([(0.0, 100.0, 50.0)] * 2, 25.0)),
        ("share", [0.75], [0.25], None, ([(50.0, 100.0, 75.0)], 0.0)),
    ],
)
def test_every_row_lies_on_the_axis(  # a row's
    value: str,
    values: list[float],
    reaches: list[float],
    truth: list[float] | None,
    drawn: tuple[list[tuple[float, ...]], float | None],
) -> None:
    """The axis goes from the least finite end, 0 for shares, to the largest; 0 is drawn on it."""
    table = EstimateTable(
        title="t",
        name="n",
        value=value,
        names="ab",
        values=np.array(values),
        errors=np.array(reaches) / interval_half_width(0.95),
        shown=range(len(values)),
        truth=None if truth is None else np.array(truth),
    )
    found = plotted(table)

    assert drawn == (found["marks"], found["zero"])


def _unpacked(data: dict[str, Any], name: str, dtype: str = "<f4") -> list[float]:
    numbers: list[float] = np.frombuffer(base64.b64decode(data[name]), dtype=dtype).tolist()
    return numbers


def test_a_histogram_for_scripts_holds_the_largest_values_as_floats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Values come with their numbers, in ascending order, and with two widths of intervals."""
    histogram, view, labels = _histogram(0.125, 0.5, -0.5, 0.25), ResultView(columns={}), "abcd"
    every = histogram_data(histogram, {}, view, labels)
    monkeypatch.setattr(module, "MAX_VALUES", 2)
    data = histogram_data(histogram, {}, view, labels)

    assert [0.125, 0.5, -0.5, 0.25] == _unpacked(every, "estimate")
    assert (["a", "b", "c", "d"], None) == (every["labels"], every["items"])
    assert [0.5, 0.25] == _unpacked(data, "estimate")
    assert ([1, 3], ["b", "d"]) == (_unpacked(data, "items", "<u4"), data["labels"])
    assert data["truth"] is None
    for name, factor in (("own", 1.959964), ("all", 2.497705)):
        for packed, sign in zip(data["intervals"][name], (-1, 1), strict=True):
            ends = np.frombuffer(base64.b64decode(packed), dtype="<f4")
            reach = sign * factor * histogram.standard_errors[[1, 3]]
            assert ends == pytest.approx(np.array([0.5, 0.25]) + reach, rel=1e-3)


def test_every_refinement_is_described() -> None:
    """Each in its own words."""
    names = get_args(Refinement)
    words = {fragment("refinement.html", task={"refinement": name}) for name in names}
    assert len(names) == len(words)


def _releases(*entries: ChainedEntry, population: str = "") -> str:
    budgets = [population_budgets(population)] if population else ()
    return releases_page(LedgerView(entries, verify(entries), budgets))


def test_releases_without_a_population_are_counted() -> None:
    """Beside others, as more of them; a chain of one entry is described in the singular."""
    unnamed = first_entry(population="")
    alone = page_text(_releases(unnamed))
    both = _releases(unnamed, next_entry(unnamed, population="staff"), population="staff")

    assert "removal of the entry:" in alone
    assert "No release names a population: the operator states" in alone
    assert "1 more" not in alone
    assert "1 more release names no population" in page_text(both)


def test_a_page_shows_every_release_and_the_head(snapshot: SnapshotAssertion) -> None:
    """Spent figures are rounded up, remaining ones down; a name is text."""
    first = first_entry(population="<staff>")
    changes = {"epsilon": 0.123_456, "composed_epsilon": 0.700_01}
    second = next_entry(first, population="<staff>", **changes)
    page = _releases(first, second, population="<staff>")

    assert snapshot == page_text(page)
    assert second.entry_hash.hex() in page
    assert "<staff>" not in page


def test_a_page_shows_decisions_apart_from_releases(snapshot: SnapshotAssertion) -> None:
    """They are no releases; check and note are text."""
    first, identity = first_entry(population=""), SigningIdentity(bytes(32))
    junk = decision_entry(identity, first, note="<junk>")
    page = _releases(first, junk, decision_entry(identity, junk, decision="drop"))

    assert "<title>1 release" in page
    assert "<junk>" not in page
    assert snapshot == page_text(page).partition("Decisions on")[2]


def test_a_large_delta_is_warned_of_on_the_page_and_in_print() -> None:
    """Results whose δ times the users is at least 1 say that somebody may be published."""
    warning = "delta allows publishing one of these people in the clear"
    task, result = _COLLECTED.task, _COLLECTED.result
    rows = tuple(dataclasses.replace(row, delta=0.5) for row in result.guarantees)
    large = dataclasses.replace(result, guarantees=rows)
    view = result_view(result.estimate, task, most=9)
    for found, warned in ((result, False), (large, True)):
        text = printed(partial(print_result, found, view, guarantees=False, task=task))
        assert warned == (warning in page_text(_page(found, task)))
        assert warned == (warning in " ".join(text.split()))
