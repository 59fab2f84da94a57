"""The heat maps of a result's page in a real browser, at desktop and phone width."""

import re
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from playwright.sync_api import Browser, ViewportSize, expect

from shuffledp.common.mechanisms.tables import Tables
from shuffledp.common.messages.result import ShareTables
from shuffledp.deploy.pages.result_page import result_page
from shuffledp.deploy.results.distribution_view import Questions
from shuffledp.deploy.results.estimate_table import ResultView
from shuffledp.deploy.results.export import write_csv
from shuffledp.deploy.results.result_view import result_view
from tests.support.browser import SCREENS, Scheme, check_page, show
from tests.support.kind_results import N_USERS, result_of
from tests.support.kind_tasks import kind_task

_PEOPLE: Final = np.repeat([[0, 0, 0], [1, 2, 1], [2, 2, 0]], [2000, 1600, 400], axis=0)


@cache
def _shown() -> tuple[ShareTables, ResultView, str]:
    """Return an estimate of seed 3, its view, and its page."""
    task, rng = kind_task("tables"), np.random.default_rng(3)
    mechanism = Tables.of(task)
    own = mechanism.tally(mechanism.randomize(_PEOPLE, rng))
    estimate = mechanism.estimate(own + mechanism.sample_dummies(N_USERS, rng), N_USERS)
    found = result_of(task, estimate=estimate)
    view = result_view(estimate, task, most=99, questions=Questions(batch=found, task=task))
    return estimate, view, result_page(found, task, view)


@pytest.mark.parametrize(("size", "scheme"), SCREENS)
def test_the_page_is_self_contained_fits_and_is_accessible(
    browser: Browser, tmp_path: Path, size: ViewportSize, scheme: Scheme
) -> None:
    """The check passes at each size and colour scheme."""
    check_page(browser, _shown()[2], tmp_path, size=size, scheme=scheme)


def test_a_cell_is_read_with_pointer_and_keyboard(browser: Browser, tmp_path: Path) -> None:
    """The tooltip and the name for screen readers have both values, share and interval."""
    watched = show(browser, _shown()[2], tmp_path)
    page, canvas = watched.page, watched.page.locator("#heat-map")
    tooltip = page.get_by_role("tooltip")
    expect(canvas).to_have_attribute("data-drawn", "9")
    canvas.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    expect(tooltip).to_contain_text("illness: flu")
    expect(tooltip).to_contain_text("age: 60 to 90")
    expect(tooltip).to_contain_text("95\u202f% interval")
    label = re.compile(r"illness flu, age 60 to 90, Share 3\d\.\d+\u202f%")
    expect(canvas).to_have_attribute("aria-label", label)
    box = canvas.bounding_box()
    assert box is not None
    canvas.hover(position={"x": box["width"] - 5, "y": 40})
    expect(tooltip).to_contain_text("illness: none")
    below = _shown()[0].tables[0].shares[2] < 0
    expect(tooltip).to_contain_text("Below 0 by noise" if below else "Share")
    watched.close()


def test_another_table_is_chosen_and_turned(browser: Browser, tmp_path: Path) -> None:
    """The menu has all tables; turned, rows are columns, and the picture differs."""
    watched = show(browser, _shown()[2], tmp_path)
    page, canvas = watched.page, watched.page.locator("#heat-map")
    expect(canvas).to_have_attribute("data-drawn", "9")
    options = page.get_by_label("Table", exact=True).locator("option").all_inner_texts()
    page.get_by_label("Table", exact=True).select_option("1")
    expect(canvas).to_have_attribute("data-drawn", "6")
    before = canvas.evaluate("x => x.toDataURL()")
    page.get_by_label("Swap rows and columns").check()
    changed = "before => document.querySelector('#heat-map').toDataURL() !== before"
    page.wait_for_function(changed, arg=before)

    assert ["illness × age", "illness × smokes", "age × smokes"] == options
    watched.close()


def test_the_download_has_the_lines_of_the_csv_file(browser: Browser, tmp_path: Path) -> None:
    """It has the chosen table's cells, in single precision."""
    watched = show(browser, _shown()[2], tmp_path)
    with watched.page.expect_download() as download:
        watched.page.get_by_role("button", name="Download CSV").click()
    lines = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    write_csv(tmp_path / "all.csv", _shown()[1].columns)
    exported = (tmp_path / "all.csv").read_text(encoding="utf-8").splitlines()
    rows = [line.rsplit(",", 4) for line in exported if line.startswith('"illness"')]
    expected = [row for row in rows if '"age"' in row[0]]

    assert exported[0] == lines[0]
    name = r"illness-age-4000-users-epsilon-[\d.]+-task-\w{12}\.csv"
    assert re.fullmatch(name, download.value.suggested_filename)
    assert 9 == len(lines[1:]) == len(expected)
    for line, (names, *figures) in zip(lines[1:], expected, strict=True):
        own = line.rsplit(",", 4)
        assert names == own[0]
        assert [*map(float, figures)] == pytest.approx([*map(float, own[1:])], rel=1e-5)
    watched.close()
