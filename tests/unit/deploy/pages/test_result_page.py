import dataclasses
import re

import numpy as np
import pytest

from common.errors import WireError
from common.protocols import PROTOCOLS, protocols_of
from common.task_digest import TaskDigest
from deploy.pages import collection_story
from deploy.pages.collection_story import refinement_in_words, story
from deploy.pages.parameters import parameter_groups
from deploy.pages.result_page import result_page
from deploy.results.histogram_table import TOO_FEW
from tests.support.result_pages import collected
from tests.support.tasks import published

_COLLECTED = collected(size=100)


def test_every_parameter_of_the_task_is_on_the_page() -> None:
    """By the name that it has in the task; of keys, the fingerprint."""
    page = result_page(_COLLECTED.result, _COLLECTED.task, version="1")

    for field in dataclasses.fields(_COLLECTED.task):
        if field.name not in {"mechanism", "dummies", "shuffler"}:
            assert f">{field.name}</code>" in page, field.name
    for part in ("true_weight", "other_weight", "dummies.law", "shuffler.law", "suite"):
        assert part in page
    assert _COLLECTED.result.task_digest.hex() in page


def test_a_page_can_be_made_without_the_task() -> None:
    """Then it says that the parameters are missing."""
    page = result_page(_COLLECTED.result, None, version="1")

    assert "was not at hand" in page


def test_a_result_is_not_shown_under_another_task() -> None:
    """Its labels and its promises would be wrong."""
    result = dataclasses.replace(_COLLECTED.result, task_digest=TaskDigest(bytes(32)))

    with pytest.raises(WireError, match="the task is"):
        result_page(result, _COLLECTED.task, version="1")


def test_a_truth_of_another_length_is_refused() -> None:
    """It belongs to another domain."""
    with pytest.raises(WireError, match="3 true shares"):
        result_page(_COLLECTED.result, _COLLECTED.task, truth=np.zeros(3), version="1")


@pytest.mark.parametrize("protocol", protocols_of("categorical"))
def test_every_protocol_has_words(protocol: str) -> None:
    """For its mechanisms, with noise or without, and for its refinement."""
    row = PROTOCOLS[protocol]
    for mechanism in row.mechanisms:
        epsilon = float("inf") if row.local_noise == "none" else 4.0
        result = dataclasses.replace(
            _COLLECTED.result, protocol=protocol, mechanism=mechanism, local_epsilon=epsilon
        )

        assert f"by {mechanism}." not in story(result, None)
        assert refinement_in_words(result)


def test_no_words_are_for_what_no_protocol_does() -> None:
    """Of refinements, and of mechanisms with noise and without."""
    rows = PROTOCOLS.values()
    refinements = {row.refinement_for(name) for row in rows for name in row.mechanisms} - {None}
    noisy = {name for row in rows if row.local_noise != "none" for name in row.mechanisms}
    noiseless = {name for row in rows if row.local_noise != "required" for name in row.mechanisms}

    assert (refinements, noisy, noiseless) == (
        set(collection_story._REFINEMENTS),
        set(collection_story._NOISY),
        set(collection_story._NOISELESS),
    )


def test_nothing_is_charged_to_a_population_where_there_is_none() -> None:
    """The task then only claims it."""
    alone = published(domain_size=100, local_epsilon=4.0)
    result = dataclasses.replace(_COLLECTED.result, task_digest=alone.signed.digest())

    assert "charged to the population" in result_page(
        _COLLECTED.result, _COLLECTED.task, version="1"
    )
    page = result_page(result, alone.task, version="1")
    assert "charged to the population" not in page
    assert "what the task claims" in page


def test_the_claim_is_said_to_be_more_than_is_computed() -> None:
    """Two figures for one promise are explained; a claim of the local epsilon has no room."""
    local = published(domain_size=100, protocol="ldp-oue", buckets=0, dummies_per_user=0)
    result = dataclasses.replace(
        _COLLECTED.result,
        task_digest=local.signed.digest(),
        protocol=local.task.protocol,
        mechanism=local.task.mechanism.name,
        buckets=local.task.item_mechanism.buckets,
        local_epsilon=local.task.local_epsilon,
        n_reports=_COLLECTED.result.n_users,
        n_dummies=0,
    )

    words = "a little more than the one that is computed"
    assert words in result_page(_COLLECTED.result, _COLLECTED.task, version="1")
    assert words not in result_page(_COLLECTED.result, None, version="1")
    assert words not in result_page(result, local.task, version="1")


def test_few_users_are_said_to_be_too_few() -> None:
    """Where no value is distinguishable from none, of all at once; and elsewhere not."""
    histogram = _COLLECTED.result.histogram
    noisy = dataclasses.replace(
        histogram, standard_errors=np.full(100, histogram.frequencies.max() / 2.5)
    )
    few = dataclasses.replace(_COLLECTED.result, estimate=noisy)

    assert (noisy.interval(0.95)[0] > 0).any()  # by itself, as some are by chance
    assert TOO_FEW in result_page(few, _COLLECTED.task, version="1")
    assert TOO_FEW not in result_page(_COLLECTED.result, _COLLECTED.task, version="1")


def test_a_sum_of_more_than_all_is_explained_and_no_percent_sign_is_alone() -> None:
    """A sum of 129 % is no mistake; and a number stays beside its unit."""
    page = result_page(_COLLECTED.result, _COLLECTED.task, truth=_COLLECTED.truth, version="1")

    assert "need not add up to 100" in page
    assert re.search(r"of 100 \(\d+\.\d\N{NO-BREAK SPACE}%\)", page)
    assert not re.search(r"\d %", page.partition("<main")[2].partition("<script")[0])


def test_theorems_and_papers_are_there_for_who_opens_them() -> None:
    """What they say means nothing to most readers."""
    page = result_page(_COLLECTED.result, _COLLECTED.task, version="1")

    assert page.count("<summary>Theorem</summary>") == len(_COLLECTED.result.guarantees)
    assert "would claim epsilon" in page.partition("<summary>For researchers</summary>")[2]
    assert "would claim epsilon" not in page.partition("<summary>For researchers</summary>")[0]


def test_an_interval_below_0_is_not_said_to_include_it() -> None:
    """Neither lies above 0, and that is what sets a share apart from none."""
    page = result_page(_COLLECTED.result, _COLLECTED.task, version="1")

    assert "the interval does not lie above 0" in page
    assert "the interval includes 0" not in page


def test_that_the_shuffler_forgets_is_told_as_trust() -> None:
    """Nobody can see whether it did."""
    told = story(_COLLECTED.result, _COLLECTED.task)

    assert "It is trusted to forget who sent which." in told
    assert "forgot" not in told


@pytest.mark.parametrize("population", ["panel 2.0", "v1.0"])
def test_a_name_that_ends_like_a_number_is_whole(population: str) -> None:
    """Only of numbers `.0` says nothing."""
    task = dataclasses.replace(_COLLECTED.task, population=population)
    shown = {row.name: row.value for _, rows in parameter_groups(task) for row in rows}

    assert population == shown["population"]
    assert "4" == shown["local_epsilon"]


def test_delta_is_told_as_what_is_added_not_as_the_chance_of_failing() -> None:
    """P[S] ≤ e^ε P'[S] + δ; the bound of e^ε alone may fail more often than with probability δ."""
    page = result_page(_COLLECTED.result, _COLLECTED.task, version="1")

    assert "times</strong> as likely" in page
    assert "plus at most 0.000001" in page.partition("pool what they saw")[0]
    assert "except with probability" not in page
    assert "nobody becomes more certain" not in page


@pytest.mark.parametrize("mechanism", ["{buckets.__class__}", "{", "{0}", "%s"])
def test_no_text_of_a_result_is_a_template(mechanism: str) -> None:
    """An unknown mechanism's name is shown as it is."""
    result = dataclasses.replace(_COLLECTED.result, mechanism=mechanism)

    assert f"reported its value by {mechanism}. Dummy" in story(result, None)
