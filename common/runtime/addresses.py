"""Where an address leads."""

from ipaddress import ip_address


def is_local(address: str) -> bool:
    """Return whether an address stays on this machine: a Unix socket or a loopback address."""
    host = address.rpartition(":")[0].strip("[]").removesuffix(".")
    if address.startswith("unix:") or host.casefold() == "localhost":
        return True
    try:
        number = ip_address(host)
        return (getattr(number, "ipv4_mapped", None) or number).is_loopback
    except ValueError:
        return False
