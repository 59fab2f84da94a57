"""`shuffledp tokens`: user tokens for shufflers that require them."""

from pathlib import Path
from typing import Annotated, Final

import typer

from common.crypto.signing import TokenIssuer
from common.errors import SettingsError
from common.runtime.state_directory import StateDirectory, atomic_write
from deploy.commands.options import AsJson
from deploy.terminal.console import terminal
from deploy.terminal.files import check_folder, writing
from deploy.terminal.help_examples import example
from deploy.terminal.json_output import print_json

MAX_TOKENS: Final = 1_000_000
_EXAMPLE: Final = example("shuffledp tokens make 500 --out tokens.txt --key-directory issuer")

app = typer.Typer()
tokens_app = typer.Typer(
    help="Tokens: each lets one person submit once to each task.",
    no_args_is_help=True,
    epilog=_EXAMPLE,
)
app.add_typer(tokens_app, name="tokens")


@tokens_app.command("make", epilog=_EXAMPLE)
def make(
    count: Annotated[int, typer.Argument(min=1, max=MAX_TOKENS, help="Number of tokens.")],
    out: Annotated[Path, typer.Option(help="New file for the tokens, one per line.")],
    key_directory: Annotated[
        Path, typer.Option(help="Folder of the token key, which is created on first use.")
    ],
    json: AsJson = False,
) -> None:
    """
    Create tokens to hand out, one per person.

    A person stores theirs in their agent's token_file. Tokens are valid for all tasks of shufflers
    with the printed token_identity.
    """
    check_folder(out)
    if out.exists():
        raise SettingsError(f"{out} already exists and may hold tokens in use")
    issuer = TokenIssuer(
        StateDirectory.open(key_directory).secret("token.key", TokenIssuer.generate)
    )
    lines = "".join(f"{issuer.issue().hex()}\n" for _ in range(count))
    with writing(out):
        atomic_write(out, lines.encode(), 0o600)
    identity = issuer.identity().raw.hex()
    if json:
        print_json({"tokens": count, "file": str(out), "token_identity": identity})
        return
    terminal().print(
        f"{count} tokens written to {out}. For the shuffler's settings:\n"
        f'token_identity = "{identity}"',
        markup=False,
        soft_wrap=True,
    )
