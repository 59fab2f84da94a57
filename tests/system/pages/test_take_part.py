"""The page to take part, in a real browser against the real services."""

import base64
import http.client
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, Route, ViewportSize, expect

from shuffledp.common.crypto.hpke import DEFAULT_SUITE
from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.task.domain_spec import BreakdownSpec, EdgesSpec
from tests.support.browser import PHONE, SCREENS, Scheme, Watched, check_shown, watch
from tests.support.page_parties import PageParties

_REFUSED_CALL: Final = (
    "Failed to load resource: the server responded with a status of 400 (Bad Request)"
)
_SECONDS: Final = 30
Fields = Any
"""An answer of a service in JSON."""


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageParties]:
    """The parties of this module."""
    started = PageParties(tmp_path_factory.mktemp("parties"))
    yield started
    started.stop()


@pytest.fixture
def visitor(browser: Browser) -> Iterator[Watched]:
    """A visitor with a phone in dark mode."""
    watched = watch(browser, size=PHONE, scheme="dark")
    yield watched
    watched.close()


def _is_headed(page: Page, text: str) -> None:
    expect(page.get_by_role("heading", level=1)).to_have_text(text, timeout=_SECONDS * 1000)


def _warns(page: Page, *sentences: str) -> None:
    for sentence in sentences:
        expect(page.get_by_role("alert")).to_contain_text(sentence, timeout=_SECONDS * 1000)


def _send(page: Page, label: str = "car") -> None:
    page.get_by_role("radio", name=label).check()
    page.get_by_role("button", name="Send my answer").click()


def test_a_visitor_takes_part_and_is_counted(parties: PageParties, visitor: Watched) -> None:
    """
    The task's texts and its guarantee are shown before, and the receipt after.

    The invitation does not stay in the address. No service is called but those
    of the page, and the browser complains of nothing but that there was no proof at first.
    """
    signed, page = parties.publish(), visitor.page
    page.goto(parties.invite(signed))
    _is_headed(page, "Ways to work")
    expect(page.get_by_role("main")).to_contain_text("2 of 10")  # the account comes last
    shown = page.get_by_role("main").inner_text()
    check_shown(visitor, "dark")

    assert parties.page == page.url
    for text in (
        *("How did you come to work today?", "A trial.", "Local epsilon", "Central epsilon"),
        *("2 of 2 witnesses", "recomputed both figures", "2 honest people"),
        *("With it go 3 dummy reports", "The issuer issuer.localhost", "not promise"),
        *("at the latest", "none of the analyzer, shuffler and issuer"),
    ):
        assert text in shown
    page.get_by_role("button", name="Send my answer").click()
    _warns(page, "Choose an answer first.")
    _send(page)
    _is_headed(page, "Received")
    parties.run(parties.parties.answer_for_another(signed))
    _is_headed(page, "Counted")
    expect(page.get_by_role("status")).to_contain_text("Your answer was counted")
    page.get_by_text("Receipt", exact=True).click()
    expect(page.get_by_role("main")).to_contain_text(signed.digest().hex())
    check_shown(visitor, "dark")
    origins = {re.sub(r"(?<=\d)/.*", "/", url) for url in visitor.requests}
    pins = parties.parties.pins
    assert {parties.page, f"{pins.shuffler}/", f"{pins.issuer}/"} == origins
    assert not any("/mod-" in url for url in visitor.requests)
    assert {_REFUSED_CALL} >= set(visitor.complaints)


def _flipped(text: str) -> str:
    raw = bytearray(base64.b64decode(text))
    raw[-1] ^= 1
    return base64.b64encode(raw).decode()


def _task(answer: Fields) -> None:
    answer["task"]["task"] = _flipped(answer["task"]["task"])


def _log(answer: Fields) -> None:
    answer["logProof"]["path"] = _flipped(answer["logProof"]["path"])


def _cosignatures(answer: Fields) -> None:
    note = base64.b64decode(answer["logProof"]["checkpoint"])
    head, lines = note.split(b"\n\n")
    kept = b"\n".join(lines.splitlines()[:1])
    answer["logProof"]["checkpoint"] = base64.b64encode(head + b"\n\n" + kept + b"\n").decode()


def _token(answer: Fields) -> None:
    answer["blindSignature"] = _flipped(answer["blindSignature"])


def _receipt(answer: Fields) -> None:
    answer["receipt"] = _flipped(answer["receipt"])


def _tamper(page: Page, method: str, change: Callable[[Fields], None]) -> None:
    """Change every answer to a method on its way."""

    def alter(route: Route) -> None:
        response = route.fetch()
        answer = response.json()
        change(answer)
        route.fulfill(response=response, json=answer)

    page.route(f"**/{method}", alter)


_UNSENT: Final = "Nothing of your answer was sent, and nothing is spent."


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_task, "The answer is not the requested task."),
        pytest.param(_log, "does not lead to the root of size", marks=pytest.mark.slow),
        pytest.param(_cosignatures, "0 of 2 pinned witnesses cosigned", marks=pytest.mark.slow),
    ],
)
def test_a_task_that_is_not_proven_is_not_shown(
    parties: PageParties, visitor: Watched, change: Callable[[Fields], None], sentence: str
) -> None:
    """The sentence says why, and that nothing was sent; later the question can be fetched."""
    signed, page = parties.publish(), visitor.page
    _tamper(page, "FetchTask", change)
    page.goto(parties.invite(signed))

    _warns(page, sentence, _UNSENT)
    expect(page.get_by_role("radio")).to_have_count(0)
    page.unroute_all(behavior="wait")
    if change is not _cosignatures:  # a quorum may come later, so the page asks again by itself
        page.get_by_role("button", name="Try again").click()
    _is_headed(page, "Ways to work")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "change", "sentence"),
    [
        ("IssueToken", _token, "The issuer's blind signature is not valid"),
        ("Submit", _receipt, "The receipt is not signed by the pinned shuffler identity."),
    ],
)
def test_an_answer_without_a_valid_token_or_receipt_is_sent_again(
    parties: PageParties,
    visitor: Watched,
    method: str,
    change: Callable[[Fields], None],
    sentence: str,
) -> None:
    """It stays saved, and arrives once nobody tampers any more."""
    page = visitor.page
    page.goto(parties.invite(parties.publish()))
    _tamper(page, method, change)
    _send(page)

    _warns(page, sentence)
    _is_headed(page, "Saved, not sent yet")
    page.unroute_all(behavior="wait")
    page.reload()
    _is_headed(page, "Received")
    expect(page.get_by_role("alert")).to_be_empty()


@pytest.mark.slow
@pytest.mark.parametrize("party", ["shuffler", "analyzer", "issuer"])
def test_a_task_of_another_party_is_refused(
    parties: PageParties, visitor: Watched, party: str
) -> None:
    """The pins are constants of the page."""
    sentences = {
        "shuffler": "The task's key is not signed by the shuffler identity",
        "analyzer": "The checkpoint is not signed by the log",
        "issuer": "The task's key is not signed by the issuer identity",
    }
    other = SigningIdentity.generate().public_identity().raw.hex()
    with parties.another_page(**{f"{party}_identity": other}) as address:
        visitor.page.goto(parties.invite(parties.publish(), address))
        _warns(visitor.page, sentences[party], _UNSENT)


@pytest.mark.slow
def test_an_answer_beyond_a_limit_is_refused(parties: PageParties, visitor: Watched) -> None:
    """The page says which limit; and that of a trial that one operator runs all parties."""
    with parties.another_page(total_local_epsilon_cap=1.5, trial=True) as address:
        signed = parties.publish(assumed_honest_fraction=0.4)
        visitor.page.goto(parties.invite(signed, address))
        main = visitor.page.get_by_role("main")
        expect(main).to_contain_text("one operator runs the analyzer")
        expect(main).to_contain_text("at least 1 honest person taking part")
        _send(visitor.page)
        _warns(visitor.page, "The limit of the total local epsilon is 1.5", _UNSENT)


@pytest.mark.slow
def test_two_tabs_give_one_answer(parties: PageParties, visitor: Watched) -> None:
    """The one that comes second says so; both show the receipt."""
    link, first = parties.invite(parties.publish()), visitor.page
    second = first.context.new_page()
    for page in (first, second):
        page.goto(link)
        page.get_by_role("radio", name="bus").check()
    for page in (first, second):
        page.evaluate("setTimeout(() => document.forms[0].requestSubmit(), 300)")
    for page in (first, second):
        _is_headed(page, "Received")

    alerts = sorted(page.get_by_role("alert").inner_text() for page in (first, second))
    assert ["", "This question was answered already; your choice was not used."] == alerts
    second.goto("about:blank")
    second.goto(link)
    _is_headed(second, "Received")
    expect(second.get_by_role("main")).to_contain_text("a second answer is not possible")
    expect(second.get_by_role("radio")).to_have_count(0)


@pytest.mark.slow
def test_an_answer_is_saved_offline_and_sent_later(parties: PageParties, visitor: Watched) -> None:
    """
    It is sent as soon as the browser is online, or at the next visit if a service was away.

    The cipher that WebCrypto lacks was loaded with the question.
    """
    page = visitor.page
    with parties.another_page(inclusion_check_seconds=3600.0) as address:  # 30 s between retries
        key = parties.parties.shuffler_key
        signed = parties.publish(suite=DEFAULT_SUITE, shuffler_key=key)
        page.goto(parties.invite(signed, address))
        page.get_by_role("radio", name="bus").check()
        page.context.set_offline(True)
        page.get_by_role("button", name="Send my answer").click()
        _warns(page, "The issuer does not answer.")
        _is_headed(page, "Saved, not sent yet")
        page.route("**/Submit", lambda route: route.abort())
        page.context.set_offline(False)

        alert = page.get_by_role("alert")
        expect(alert).to_contain_text("The shuffler does not answer.", timeout=20_000)
        page.unroute_all(behavior="wait")
        page.reload()
        _is_headed(page, "Received")


_CHANGE_RECORDS: Final = """([prefix, field, pattern, text]) => new Promise((resolve) => {
  const opening = indexedDB.open("shuffledp", 1);
  opening.onsuccess = () => {
    const records = opening.result.transaction("records", "readwrite").objectStore("records");
    const cursor = records.openCursor(IDBKeyRange.bound(prefix, prefix + "z"));
    cursor.onsuccess = () => {
      if (!cursor.result) return resolve();
      const { value } = cursor.result;
      const isEncoded = field === "checkpoint";
      const old = isEncoded ? atob(value[field]) : value[field];
      const changed = old.replace(new RegExp(pattern), text);
      cursor.result.update({ ...value, [field]: isEncoded ? btoa(changed) : changed });
      cursor.result.continue();
    };
  };
})"""


@pytest.mark.slow
def test_evidence_of_a_fork_or_of_a_lost_answer_can_be_saved(
    parties: PageParties, visitor: Watched
) -> None:
    """It holds what the browser saw of the log, and the receipt; no secret."""
    page, signed = visitor.page, parties.publish()
    page.goto(parties.invite(signed))
    _send(page)
    _is_headed(page, "Received")
    page.evaluate(_CHANGE_RECORDS, ["answer ", "inclusion", ".+", "missing"])
    page.reload()
    _is_headed(page, "Lost")
    lost = _saved(page)
    page.evaluate(_CHANGE_RECORDS, ["log ", "checkpoint", "[^\\n]{43}=", f"{'A' * 43}="])
    page.goto(parties.invite(parties.publish()))
    _warns(page, "shows others a different history", _UNSENT)
    forked = _saved(page)

    assert (signed.digest().hex(), "") == (lost["answer"]["digest"], lost["answer"]["credential"])
    assert lost["answer"]["receipt"]
    assert [False] == [entry["refused"] for entry in lost["log"]]
    assert {False, True} == {entry["refused"] for entry in forked["log"]}


def _saved(page: Page) -> Fields:
    with page.expect_download() as download:
        page.get_by_role("link", name="Save the evidence").click()
    return json.loads(download.value.path().read_text(encoding="utf-8"))


@pytest.mark.slow
def test_a_person_whose_storage_was_cleared_answers_no_second_time(
    parties: PageParties, visitor: Watched
) -> None:
    """The issuer remembers, and the page says it in words."""
    page, link = visitor.page, parties.invite(parties.publish())
    page.goto(link)
    _send(page)
    _is_headed(page, "Received")
    browser = page.context.new_cdp_session(page)
    page.goto("about:blank")
    cleared = {"origin": parties.page.rstrip("/"), "storageTypes": "all"}
    browser.send("Storage.clearDataForOrigin", cleared)
    page.goto(link)
    _send(page)

    _warns(page, "This answer cannot be sent", "before the storage was cleared")
    _is_headed(page, "Refused")


@pytest.mark.slow
def test_another_persons_link_takes_over_no_answer(
    parties: PageParties, visitor: Watched, browser: Browser
) -> None:
    """A saved answer keeps its own invitation, and the other person can answer elsewhere."""
    signed, page = parties.publish(target_size=3), visitor.page
    own, other = parties.invite(signed), parties.invite(signed)
    page.route("**/IssueToken", lambda route: route.abort())
    page.goto(own)
    _send(page)
    _is_headed(page, "Saved, not sent yet")
    expect(page.get_by_role("main")).not_to_contain_text("with another invitation")
    page.unroute_all(behavior="wait")
    for link in (f"{parties.page}#task={signed.digest().hex()}&credential={'ab' * 32}", other):
        page.goto(link)
        expect(page.get_by_role("main")).to_contain_text("with another invitation")
        _is_headed(page, "Received")
    for link, heading in ((other, "Received"), (own, "Refused")):
        elsewhere = watch(browser)
        elsewhere.page.goto(link)
        _send(elsewhere.page)
        _is_headed(elsewhere.page, heading)
        elsewhere.close()


@pytest.mark.slow
def test_a_cut_link_costs_nothing_and_the_whole_one_answers(
    parties: PageParties, visitor: Watched
) -> None:
    """The answer, which only asked for a token, is withdrawn, and the question is shown again."""
    page, link = visitor.page, parties.invite(parties.publish())
    page.route("**/IssueToken", lambda route: route.abort())
    page.goto(link[:-5])
    _send(page)
    _is_headed(page, "Saved, not sent yet")
    page.unroute_all(behavior="wait")
    page.reload()

    _warns(page, "The issuer does not accept this invitation", _UNSENT)
    _is_headed(page, "Ways to work")
    expect(page.get_by_role("main")).to_contain_text("You have given no answer")
    page.goto(link)
    expect(page.get_by_role("alert")).to_be_empty()
    _send(page)
    _is_headed(page, "Received")


@pytest.mark.slow
def test_a_closed_question_takes_no_answer(
    parties: PageParties, visitor: Watched, browser: Browser
) -> None:
    """It is not shown; an answer to one that closed meanwhile is refused by the same sentence."""
    signed, closed = parties.publish(), "This question is closed"
    slow, late = watch(browser), watch(browser)
    slow.page.goto(parties.invite(signed))
    _is_headed(slow.page, "Ways to work")
    visitor.page.goto(parties.invite(signed))
    _send(visitor.page)
    _is_headed(visitor.page, "Received")
    parties.run(parties.parties.answer_for_another(signed))
    _is_headed(visitor.page, "Counted")
    late.page.goto(parties.invite(signed))
    _warns(late.page, closed, _UNSENT)
    expect(late.page.get_by_role("radio")).to_have_count(0)
    _send(slow.page)
    _warns(slow.page, closed)
    _is_headed(slow.page, "Refused")
    expect(slow.page.get_by_role("main")).to_contain_text("You have given 1 answer")
    for watched in (slow, late):
        watched.close()


@pytest.mark.slow
def test_a_link_to_no_question_is_not_kept(parties: PageParties, visitor: Watched) -> None:
    """
    Another website can leave nothing here: the next visit asks for an invitation again.

    Nor does the tab's Back list hold the link.
    """
    page = visitor.page
    page.goto(f"{parties.page}#task={'00' * 32}&credential=ab")
    _warns(page, "This link names no question of this service.", _UNSENT)
    page.goto(f"{parties.page}#task={parties.publish().digest().hex()}")
    _warns(page, "The invitation link is incomplete", _UNSENT)
    _is_headed(page, "This question cannot be answered now")
    page.goto("about:blank")
    page.go_back()
    assert parties.page == page.url

    _is_headed(page, "You need an invitation")


@pytest.mark.slow
@pytest.mark.parametrize("days", [-1, 30])
def test_a_wrong_clock_is_named(parties: PageParties, visitor: Watched, days: int) -> None:
    """It is no fork."""
    page = visitor.page
    page.add_init_script(f"const now = Date.now; Date.now = () => now() + {days * 86_400_000};")
    page.goto(parties.invite(parties.publish()))

    _warns(page, "This device's clock differs from the shuffler's by", "set the clock")


@pytest.mark.slow
def test_a_browser_without_storage_or_cryptography_says_so(
    parties: PageParties, browser: Browser
) -> None:
    """A private window may lack the first, a page from an insecure address the second."""
    for script, sentence in (
        ("Object.defineProperty(window, 'indexedDB', {value: undefined})", "offers no storage"),
        ("Object.defineProperty(window, 'isSecureContext', {value: false})", "come over HTTPS"),
        ("SubtleCrypto.prototype.generateKey = () => Promise.reject()", "lacks Ed25519"),
    ):
        watched = watch(browser)
        watched.page.add_init_script(script)
        watched.page.goto(parties.invite(parties.publish()))
        _warns(watched.page, sentence)
        watched.close()


@pytest.mark.slow
def test_a_browser_that_promises_to_keep_the_account_is_believed(
    parties: PageParties, visitor: Watched
) -> None:
    """The page waits for no answer to its request, which may ask the person."""
    page, asked = visitor.page, "navigator.storage.persist = () => new Promise((resolve) => {"
    page.add_init_script(f"{asked} window.promise = () => resolve(true); }});")
    page.goto(parties.invite(parties.publish()))
    _is_headed(page, "Ways to work")
    expect(page.get_by_role("main")).to_contain_text("does not promise to keep this account")
    page.evaluate("window.promise()")

    expect(page.get_by_role("main")).not_to_contain_text("does not promise to keep this account")


@pytest.mark.slow
def test_without_an_invitation_the_page_shows_earlier_answers(
    parties: PageParties, visitor: Watched
) -> None:
    """A malformed invitation gets a sentence."""
    page = visitor.page
    page.goto(parties.page)
    _is_headed(page, "You need an invitation")
    expect(page.get_by_role("main")).to_contain_text("You have given no answer")
    page.goto(f"{parties.page}#task=12&credential=34")
    _warns(page, "The invitation link is incomplete")
    assert parties.page == page.url
    page.goto(parties.invite(parties.publish(title="First")))
    _send(page)
    _is_headed(page, "Received")
    page.goto(parties.invite(parties.publish(title="Second")))
    _is_headed(page, "Second")

    expect(page.get_by_role("main")).to_contain_text("Earlier answers")
    expect(page.get_by_role("main")).to_contain_text(re.compile("First\\s*Received"))
    expect(page.get_by_role("main")).to_contain_text("You have given 1 answer")


@pytest.mark.slow
def test_a_number_with_a_group_is_answered(parties: PageParties, visitor: Watched) -> None:
    """A number outside the range is refused, and not repeated."""
    edges = EdgesSpec(low=0.0, high=100.0, buckets=10, unit="km")
    groups = BreakdownSpec(attribute="country", groups=("DE", "FR"))
    signed = parties.publish(edges=edges, breakdown=groups, labels=(), domain_size=1)
    page, send = visitor.page, visitor.page.get_by_role("button", name="Send my answer")
    page.goto(parties.invite(signed))
    expect(page.get_by_role("main")).to_contain_text("the range that your number is in")
    page.get_by_label("Your answer").fill("4321")
    send.click()
    _warns(page, "Choose an answer first.")
    page.get_by_label("Your group: country").select_option("FR")
    send.click()

    _warns(page, "A number must lie between 0 and 100 km.", _UNSENT)
    expect(page.get_by_role("alert")).not_to_contain_text("4321")
    page.get_by_label("Your answer").fill("12.5")
    send.click()
    _is_headed(page, "Received")


@pytest.mark.slow
def test_a_long_list_is_searched(parties: PageParties, visitor: Watched) -> None:
    """The cipher that WebCrypto lacks is loaded for a task that names it, and has its hash."""
    labels = tuple(f"city {item}" for item in range(300))
    key = parties.parties.shuffler_key
    changes = {"labels": labels, "domain_size": 300, "protocol": "od-hp"}
    signed = parties.publish(**changes, suite=DEFAULT_SUITE, shuffler_key=key)
    page = visitor.page
    page.goto(parties.invite(signed))
    search, main = page.get_by_label("Search the answers"), page.get_by_role("main")
    expect(main).to_contain_text("300 possible answers found; 200 are listed.")
    search.fill("TY 25")
    expect(main).to_contain_text("11 possible answers found.")
    search.fill("ty 250")
    search.press("Enter")
    expect(page.get_by_label("Your answer")).to_be_focused()
    expect(page.get_by_label("Your answer")).to_have_value("250")
    expect(page.get_by_role("alert")).to_be_empty()
    page.get_by_role("button", name="Send my answer").click()

    _is_headed(page, "Received")
    assert any("/mod-" in url for url in visitor.requests)
    assert [] == visitor.complaints


@pytest.mark.slow
def test_only_the_page_and_its_names_are_served(parties: PageParties, browser: Browser) -> None:
    """A rebound name gets 403 everywhere, and a page of another origin no answer."""
    pins = parties.parties.pins
    for url, method, path in (
        (parties.page, "GET", "/"),
        (pins.shuffler, "POST", "/shuffledp.v1.Shuffler/FetchTask"),
        (str(pins.issuer), "POST", "/shuffledp.v1.Issuer/IssueToken"),
    ):
        connection = http.client.HTTPConnection(url.removeprefix("http://").rstrip("/"))
        connection.request(method, path, headers={"Host": "evil.example"})
        assert 403 == connection.getresponse().status
        connection.close()
    with parties.another_page(listen="127.0.0.1:0") as address:
        watched = watch(browser)
        watched.page.goto(parties.invite(parties.publish(), address))
        _warns(watched.page, "The shuffler does not answer.", _UNSENT)
        watched.close()


@pytest.mark.slow
def test_the_page_works_with_the_keyboard_alone(parties: PageParties, visitor: Watched) -> None:
    """The focus goes to the outcome."""
    page = visitor.page
    page.goto(parties.invite(parties.publish()))
    _is_headed(page, "Ways to work")
    for key in ("Tab", "ArrowDown", "Tab", "Enter"):
        page.keyboard.press(key)

    _is_headed(page, "Received")
    expect(page.get_by_role("heading", level=1)).to_be_focused()


@pytest.mark.slow
@pytest.mark.parametrize(("size", "scheme"), SCREENS)
def test_the_question_fits_and_is_accessible(
    parties: PageParties, browser: Browser, size: ViewportSize, scheme: Scheme
) -> None:
    """At every width and colour, with a long word and a long list."""
    labels = tuple(f"{'w' * 60} {item}" for item in range(300))
    signed = parties.publish(domain_size=300, labels=labels, title="W" * 80, protocol="od-hp")
    watched = watch(browser, size=size, scheme=scheme)
    watched.page.goto(parties.invite(signed))
    _is_headed(watched.page, "W" * 80)
    check_shown(watched, scheme)
    watched.close()
