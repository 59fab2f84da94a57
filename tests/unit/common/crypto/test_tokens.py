from common.crypto.tokens import TOKEN_BYTES, TokenIdentity, TokenIssuer


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


def test_a_written_identity_reads_back() -> None:
    """As the command prints it and the settings hold it."""
    issuer = TokenIssuer(TokenIssuer.generate())

    assert TokenIdentity.from_hex(issuer.identity().raw.hex(), "it").accepts(issuer.issue())
