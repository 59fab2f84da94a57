"""The heat maps of a result's page in a real browser, at desktop and phone width."""

import re
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from playwright.sync_api import Browser, ViewportSize, expect

from shuffledp.common.mechanisms.tables import Tables
from shuffledp.deploy.pages.result_page import result_page
from shuffledp.deploy.results.distribution_view import Questions
from shuffledp.deploy.results.export import write_csv
from shuffledp.deploy.results.result_view import result_view
from tests.support.browser import SCREENS, Scheme, check_page, show
from tests.support.kind_results import N_USERS, result_of
from tests.support.kind_tasks import kind_task

_TASK: Final = kind_task("tables")
_MECHANISM: Final = Tables.of(_TASK)
_PEOPLE: Final = np.repeat([[0, 0, 0], [1, 2, 1], [2, 2, 0]], [2000, 1600, 400], axis=0)
_RNG: Final = np.random.default_rng(3)
_CELLS: Final = _MECHANISM.tally(_MECHANISM.randomize(_PEOPLE, _RNG)) + _MECHANISM.sample_dummies(
    N_USERS, _RNG
)
_ESTIMATE: Final = _MECHANISM.estimate(_CELLS, N_USERS)
_RESULT: Final = result_of(_TASK, estimate=_ESTIMATE)


_ASKED: Final = Questions(batch=_RESULT, task=_TASK)
_VIEW: Final = result_view(_ESTIMATE, _TASK, most=99, questions=_ASKED)
_PAGE: Final = result_page(_RESULT, _TASK, _VIEW)


@pytest.mark.parametrize(("size", "scheme"), SCREENS)
def test_the_page_is_self_contained_fits_and_is_accessible(
    browser: Browser, tmp_path: Path, size: ViewportSize, scheme: Scheme
) -> None:
    """The check passes at each size and colour scheme."""
    check_page(browser, _PAGE, tmp_path, size=size, scheme=scheme)


def test_a_cell_is_read_with_pointer_and_keyboard(browser: Browser, tmp_path: Path) -> None:
    """The tooltip and the name for screen readers have both values, share and interval."""
    watched = show(browser, _PAGE, tmp_path)
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
    expect(tooltip).to_contain_text(
        "Below 0 by noise" if _ESTIMATE.tables[0].shares[2] < 0 else "Share"
    )
    watched.close()


def test_another_table_is_chosen_and_turned(browser: Browser, tmp_path: Path) -> None:
    """The menu has all tables; turned, rows are columns, and the picture differs."""
    watched = show(browser, _PAGE, tmp_path)
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
    watched = show(browser, _PAGE, tmp_path)
    with watched.page.expect_download() as download:
        watched.page.get_by_role("button", name="Download CSV").click()
    lines = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    write_csv(tmp_path / "all.csv", _VIEW.columns)
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
