"""The address of a client in the header fields by which a trusted proxy forwards its requests."""

from collections.abc import Mapping, Sequence

from common.runtime.peer import Address, Networks, is_within, parse_address


def forwarded_address(fields: Mapping[bytes, bytes], proxies: Networks) -> Address | None:
    """
    Return the client's address in the header fields of a request that a trusted proxy forwards.

    It is the last hop that is no trusted proxy; earlier ones are the client's own word. None if
    there is none, it is no address, or X-Forwarded-For and Forwarded differ: of these a proxy may
    set one, and pass on the other as it came.
    """
    found = set()
    if (listed := fields.get(b"x-forwarded-for")) is not None:
        found.add(_last_stranger(listed.decode("latin-1").split(","), proxies))
    if (listed := fields.get(b"forwarded")) is not None:
        hops = [_for(element) for element in listed.decode("latin-1").split(",")]
        found.add(_last_stranger(hops, proxies))
    return found.pop() if len(found) == 1 else None


def _for(element: str) -> str:
    """Return the value of `for` in an element of Forwarded; empty if there is none."""
    pairs = (pair.partition("=") for pair in element.split(";"))
    return next((value for name, _, value in pairs if name.strip().lower() == "for"), "")


def _last_stranger(hops: Sequence[str], proxies: Networks) -> Address | None:
    """Return the last hop that is no proxy, or the first if all are; None for no address."""
    found = None
    for hop in reversed(hops):
        text = hop.strip().strip('"')
        if text.startswith("["):
            text = text[1:].partition("]")[0]
        elif text.count(":") == 1:
            text = text.partition(":")[0]
        found = parse_address(text)
        if found is None or not is_within(found, proxies):
            break
    return found
