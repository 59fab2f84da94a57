"""What is typed on a command line or given by the environment."""

import re
from collections.abc import Callable
from functools import partial
from typing import Final

from common.crypto.signing import PublicIdentity
from common.errors import TaskError
from common.protocols import Kind
from common.runtime.settings import load
from deploy.accountant.query import numbers_in, parse_epsilon, parse_law
from deploy.commands.options import hexadecimal
from deploy.datasets.choice import dataset
from deploy.planning.plan_view import parse_cap, parse_head, parse_trust
from deploy.tasks.value_parser import parse_kind, parse_value
from shuffler.settings import ShufflerSettings
from tests.support.parsers import Parser

_PREFIX: Final = "SHUFFLEDP_SHUFFLER"
_ENVIRONMENT: Final = (
    b"STATE_DIRECTORY=state\nANALYZER=127.0.0.1:1\nANALYZER_IDENTITY=00\nPLAINTEXT=true\n"
    b"MINIMUM_BATCH=3\nMOST_DUMMIES=10\nOPENING_PROCESSES=2\nLOG_LEVEL=DEBUG\nLISTEN=127.0.0.1:0"
)


def _data_set(name: str) -> object:
    """Not of millions of items: those take the hundreds of megabytes that they should."""
    if re.search(r"\d{6}", name):
        raise TaskError("a data set of too many items for a test")
    return dataset(name, 100)


def _typed(
    name: str,
    read: Callable[[str], object],
    seeds: tuple[str, ...],
    *covers: str,
    share: float = 16.0,
) -> Parser:
    """Text as the operating system gives it: bytes that are no UTF-8 become lone surrogates."""
    return Parser(
        name=name,
        read=lambda raw: read(raw.decode("utf-8", "surrogateescape")),
        seeds=tuple(seed.encode() for seed in seeds),
        form="text",
        covers=covers,
        share=share,
    )


def _environment(text: str) -> object:
    """Read settings from variables, a line each."""
    variables = (line.partition("=") for line in text.split("\n"))
    environment = {f"{_PREFIX}_{name}": value for name, _, value in variables}
    return load(ShufflerSettings, None, environment, _PREFIX)


_VALUES: Final[dict[Kind, tuple[str, ...]]] = {
    "categorical": ("0", "41269\n"),
    "string": ("", "Ohio\n"),
    "mean": ("36.6", "-1e3"),
    "vector": ("1, 2.5", "0"),
    "key-value": ("3:0.5, 17:1", ""),
}

TEXT_PARSERS: Final = (
    _typed(
        "identity in hexadecimal",
        lambda text: PublicIdentity.from_hex(text, "the identity"),
        ("00" * 32, "ab" * 32),
        "common.crypto.signing.PublicIdentity.from_hex",
    ),
    _typed(
        "hexadecimal argument",
        lambda text: hexadecimal("the task's digest", text, 32),
        ("00" * 32,),
        "deploy.commands.options.hexadecimal",
    ),
    _typed(
        "kind of value", parse_kind, ("mean", "key-value"), "deploy.tasks.value_parser.parse_kind"
    ),
    *(
        _typed(
            f"{kind} value",
            partial(parse_value, kind=kind),
            seeds,
            "deploy.tasks.value_parser.parse_value",
        )
        for kind, seeds in _VALUES.items()
    ),
    _typed(
        "environment",
        _environment,
        (_ENVIRONMENT.decode(),),
        "common.runtime.settings.load",
        "common.runtime.validation.from_text",
    ),
    _typed("epsilon", parse_epsilon, ("1.5", "inf"), "deploy.accountant.query.parse_epsilon"),
    _typed(
        "law of dummies",
        parse_law,
        ("binomial:10,0.5", "poisson:3", "negative-binomial:2,5.5", "groups:2,10,0.5"),
        "deploy.accountant.query.parse_law",
    ),
    _typed("numbers", numbers_in, ("0.5,0.3,0.7,2",), "deploy.accountant.query.numbers_in"),
    _typed("head", parse_head, ("0.05,0.03",), "deploy.planning.plan_view.parse_head"),
    _typed("cap", parse_cap, ("3", "none", "inf"), "deploy.planning.plan_view.parse_cap"),
    _typed("trust", parse_trust, ("anonymity",), "deploy.planning.plan_view.parse_trust"),
    _typed(
        "data set by name",
        _data_set,
        ("zipf:20", "zipf:20,1.5", "uniform:30", "covid_us_states"),
        "deploy.datasets.choice.dataset",
        "deploy.datasets.catalogue.load",
        share=1,
    ),
)
