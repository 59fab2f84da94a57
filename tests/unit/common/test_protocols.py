import pytest

from shuffledp.common.errors import TaskError
from shuffledp.common.protocols import PROTOCOLS, protocol_named

_NAMES = (
    "ldp-warner ldp-grr ldp-sue ldp-oue ldp-blh ldp-olh ldp-olh-strings ldp-sw "
    "sh murs hp-sdp ddps aue puredump signed hierarchy mixdump od-hp fe1 sbin sageo hybrid "
    "rappor discover laplace duchi piecewise hybrid-mean harmony mean-est multi-hm multi-rphm "
    "digits geo-digits vector-digits geo-vector-digits priv-kv tables geo-tables"
)


def test_every_protocol_is_found_by_its_name() -> None:
    """The list is complete."""
    assert _NAMES.split() == list(PROTOCOLS)
    for name, protocol in PROTOCOLS.items():
        assert name == protocol.name
        assert protocol is protocol_named(name)
    with pytest.raises(TaskError, match=", ".join(_NAMES.split())):
        protocol_named("OD-HP")


@pytest.mark.parametrize("name", ["sh", "puredump", "mixdump"])
def test_buckets_are_not_silently_ignored(name: str) -> None:
    """Protocols that hash do so with fewer buckets than items; others refuse buckets."""
    for buckets, mechanism in ((13, "local-hashing"), (0, "grr"), (100, "grr"), (101, "grr")):
        assert mechanism == protocol_named("od-hp").mechanism_for(domain_size=100, buckets=buckets)
    with pytest.raises(TaskError, match=f"the protocol {name} does not hash; buckets is 13"):
        protocol_named(name).mechanism_for(domain_size=100, buckets=13)
