import pytest

from common.crypto.tokens import TOKEN_BYTES, TokenIdentity, TokenIssuer
from common.errors import WireError


def test_the_issuer_makes_tokens_that_its_identity_accepts() -> None:
    """80 bytes, no two alike; another issuer's identity accepts none of them."""
    issuer, other = TokenIssuer(TokenIssuer.generate()), TokenIssuer(TokenIssuer.generate())
    tokens = {issuer.issue() for _ in range(20)}

    assert 20 == len(tokens)
    for token in tokens:
        assert len(token) == TOKEN_BYTES
        assert issuer.identity().accepts(token)
        assert not other.identity().accepts(token)


def test_a_token_with_any_byte_changed_is_none() -> None:
    """Serial number and signature; nor one of another length."""
    issuer = TokenIssuer(TokenIssuer.generate())
    identity, token = issuer.identity(), issuer.issue()
    for place in range(TOKEN_BYTES):
        changed = token[:place] + bytes([token[place] ^ 1]) + token[place + 1 :]
        assert not identity.accepts(changed)
    for wrong in (b"", token[:-1], token + b"\0"):
        assert not identity.accepts(wrong)


@pytest.mark.parametrize("text", ["", "zz" * 32, "00" * 31, "00" * 33])
def test_an_identity_is_64_hexadecimal_digits(text: str) -> None:
    """Anything else stops the start."""
    with pytest.raises(WireError):
        TokenIdentity.from_hex(text, "token_identity")


def test_a_written_identity_reads_back() -> None:
    """As the command prints it and the settings hold it."""
    issuer = TokenIssuer(TokenIssuer.generate())

    assert TokenIdentity.from_hex(issuer.identity().raw.hex(), "it").accepts(issuer.issue())
