"""What a second start in the same folder keeps."""

import socket
from pathlib import Path

from shuffledp.deploy.clients.issuer import draw_people
from shuffledp.deploy.clients.local_cluster import PageCluster, kept_address
from shuffledp.issuer.entitlements import parse_people


def test_a_port_is_kept_if_it_is_free(tmp_path: Path) -> None:
    """Also of a party that listened on all interfaces; a port in use is replaced."""
    file = tmp_path / "address"
    first = kept_address(file)
    file.write_text(first.replace("127.0.0.1", "0.0.0.0"), encoding="utf-8")  # noqa: S104  # no binding
    assert first == kept_address(file)
    with socket.create_server(("127.0.0.1", int(first.rpartition(":")[2]))):
        assert first != kept_address(file)


def test_a_page_that_must_move_says_so(tmp_path: Path) -> None:
    """A new one does not, nor one whose port is free."""
    assert not PageCluster(tmp_path, ["Ada"]).moved
    (tmp_path / "publisher").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        (tmp_path / "publisher" / "address").write_text(address, encoding="utf-8")
        assert PageCluster(tmp_path, ["Ada"]).moved
    assert not PageCluster(tmp_path, ["Ada"]).moved


def test_people_keep_their_secrets() -> None:
    """More people get new ones, and both files have everybody once."""
    first = draw_people(["Ada", "Bo Li"])
    more = draw_people(["Bo Li", "Cy"], first.credentials)

    assert more.credentials.startswith(first.credentials)
    assert more.listed.startswith(first.listed)
    assert ["Ada", "Bo Li", "Cy"] == sorted(parse_people(more.listed).values())
    assert first == draw_people(["Ada"], first.credentials)
