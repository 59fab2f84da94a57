"""`shuffledp tokens`: users' tokens, for shufflers that ask for them."""

from pathlib import Path
from typing import Annotated, Final

import typer

from common.crypto.signing import TokenIssuer
from common.errors import SettingsError
from common.runtime.state_directory import StateDirectory, atomic_write
from deploy.commands.example import example
from deploy.commands.options import AsJson
from deploy.terminal.console import terminal
from deploy.terminal.json_output import print_json
from deploy.terminal.output_file import check_folder

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
    count: Annotated[int, typer.Argument(min=1, max=MAX_TOKENS, help="How many.")],
    out: Annotated[Path, typer.Option(help="A new file for them, a token a line.")],
    key_directory: Annotated[
        Path, typer.Option(help="Where the token key is; it is made there on first use.")
    ],
    json: AsJson = False,
) -> None:
    """
    Make tokens to hand out, one a person.

    A person puts theirs into the file that their agent's token_file names. Tokens of one key stay
    valid for all tasks of shufflers with its token_identity, which is printed.
    """
    check_folder(out)
    if out.exists():
        raise SettingsError(f"{out} exists already: tokens that were handed out may be in it")
    issuer = TokenIssuer(
        StateDirectory.open(key_directory).secret("token.key", TokenIssuer.generate)
    )
    lines = "".join(f"{issuer.issue().hex()}\n" for _ in range(count))
    try:
        atomic_write(out, lines.encode(), 0o600)
    except OSError as error:
        raise SettingsError(f"{out} cannot be written: {error.strerror}") from error
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
