"""The issuer's answers and its metrics."""

import pytest

from shuffledp.audit.harness.clock import ManualClock
from shuffledp.common.errors import WireError
from shuffledp.common.runtime.metrics import WINDOW, ProcessMetrics
from shuffledp.issuer.metrics import METRICS, IssuanceMetrics
from shuffledp.issuer.servicer import IssuerServicer
from shuffledp.protos.shuffledp.v1 import issuer_pb2
from tests.support.issuers import ISSUER_NAME, IssuerCore
from tests.support.scrapes import series_of
from tests.support.tokens import ISSUER


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"key_id": bytes(31)}, "key_id has 31 bytes; it must have 32"),
        ({"blinded": bytes(257)}, "blinded has 257 bytes; it must have 256"),
        ({"credential": bytes(8193)}, "credential has 8193 bytes; it may have at most 8192"),
    ],
)
async def test_a_request_of_wrong_length_is_refused(
    core: IssuerCore, changes: dict[str, bytes], rule: str
) -> None:
    """Before the core sees it."""
    fields = {"key_id": bytes(32), "blinded": bytes(256), "credential": b""} | changes
    servicer = IssuerServicer(core.issuance, ISSUER_NAME, ISSUER)
    with pytest.raises(WireError, match=rule):
        await servicer.IssueToken(issuer_pb2.IssueTokenRequest(**fields), None)
    for end in (0, 2**63):
        with pytest.raises(WireError, match="end is"):
            await servicer.CreateTokenKey(issuer_pb2.CreateTokenKeyRequest(end=end), None)
    for name in ("p" * 65, "K\u00f6ln", "a\tb"):
        request = issuer_pb2.CreateTokenKeyRequest(end=2**33, population=name)
        with pytest.raises(WireError, match="population"):
            await servicer.CreateTokenKey(request, None)


def test_answers_are_counted_in_whole_windows() -> None:
    """No reading shows a single call; keys are counted at once."""
    clock, keys = ManualClock(WINDOW * 10), [1]
    process = ProcessMetrics("issuer", METRICS, clock)
    metrics = IssuanceMetrics(process, lambda: len(keys))

    def shown() -> dict[str, float]:
        found = series_of(process.metrics)
        return {
            name.removeprefix("shuffledp_token") + "".join(value for _, value in labels): number
            for (name, labels), number in found.items()
            if name.startswith("shuffledp_token") and number
        }

    for outcome in ("issued", "issued", "repeated", "credential", "second message"):
        metrics.record(outcome)
    keys.append(2)
    assert {"_keys": 2} == shown()
    clock.seconds += WINDOW
    counted = {"_keys": 2, "s_issued_total": 2, "s_repeated_total": 1}
    counted |= {"s_refused_totalcredential": 1, "s_refused_totalsecond message": 1}
    assert counted == shown()
    metrics.record("issued")
    assert counted == shown()
    clock.seconds += 5 * WINDOW
    metrics.record("key")
    assert counted | {"s_issued_total": 3} == shown()
