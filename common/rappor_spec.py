"""RAPPOR as a task states it: the filter, the cohorts, and every chance as an integer."""

from dataclasses import dataclass
from typing import Final, Literal, get_args

from common.errors import TaskError
from common.mechanism_spec import MAX_REPORT_BYTES
from common.protocols import RapporMechanismName
from common.ranges import one_of, within

MAX_BITS: Final = 2048
MAX_HASHES: Final = 16
MAX_COHORTS: Final = 4096
MAX_TEXT_BYTES: Final = 1024
"""Longest text, as UTF-8, that a task may allow."""
MAX_QUESTION_CHARACTERS: Final = 64
PERMANENT_SUM: Final = 128
"""Denominator of f: the client decides a permanent bit by seven bits of a hash."""
INSTANT_SUM: Final = 2**16
"""Denominator of p and q."""

Encoding = Literal["bloom", "labels"]
"""Which bits a text sets: those that hashes name, or the one of the label that it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RapporSpec:
    """RAPPOR with the letters of its paper in words: k, h, m, f, p and q [EPK14]."""

    name: RapporMechanismName
    encoding: Encoding
    bits: int
    """k: length of the filter; with `labels`, one a label."""
    hashes: int
    """h: bits that a text sets; 1 with `labels`."""
    cohorts: int
    """m: a power of two; 1 with `labels`."""
    permanent_weight: int
    """f, of PERMANENT_SUM: how often a bit is replaced by a fair coin for good."""
    unset_weight: int
    """p, of INSTANT_SUM: how often a report shows an unset permanent bit as set."""
    set_weight: int
    """q, of INSTANT_SUM: how often it shows a set one as set. 0 and all: no instantaneous noise."""
    most_bytes: int
    """Longest text, as UTF-8; what is longer is refused on the device."""
    question: str
    """What is asked, if it may be asked again: a population's permanent response to it is the same
    in all its tasks. Nothing: the response is the task's own."""
    report_bytes: int

    def __post_init__(self) -> None:
        one_of("mechanism", self.name, get_args(RapporMechanismName))
        one_of("encoding", self.encoding, get_args(Encoding))
        within("bits", self.bits, 2, MAX_BITS)
        within("hashes", self.hashes, 1, MAX_HASHES)
        within("cohorts", self.cohorts, 1, MAX_COHORTS)
        if self.cohorts & (self.cohorts - 1):
            raise TaskError(f"cohorts is {self.cohorts}; it must be a power of two")
        if self.encoding == "bloom" and self.bits > 32 and self.bits % 8:  # noqa: PLR2004  # bytes
            raise TaskError(f"bits is {self.bits}; above 32 it must be divisible by 8")
        if self.encoding == "labels" and (self.hashes, self.cohorts) != (1, 1):
            raise TaskError(
                f"hashes is {self.hashes} and cohorts {self.cohorts}; one bit a label takes 1 and 1"
            )
        within("permanent_weight", self.permanent_weight, 0, PERMANENT_SUM - 1)
        within("unset_weight", self.unset_weight, 0, INSTANT_SUM - 1)
        within("set_weight", self.set_weight, self.unset_weight + 1, INSTANT_SUM)
        within("most_bytes", self.most_bytes, 1, MAX_TEXT_BYTES)
        name = self.question
        if type(name) is not str or not (name.isascii() and name.isprintable()):
            raise TaskError("question must be printable ASCII text")
        if len(name) > MAX_QUESTION_CHARACTERS:
            raise TaskError(
                f"question has {len(name)} characters; "
                f"it may have at most {MAX_QUESTION_CHARACTERS}"
            )
        if name != name.strip():
            raise TaskError("question begins or ends with a blank")
        if name and self.permanent_weight == 0:
            raise TaskError(
                "permanent_weight is 0, and question is named: there is no permanent noise "
                "that its tasks could share"
            )
        within("report_bytes", self.report_bytes, 1, MAX_REPORT_BYTES)
        if self.noiseless:
            raise TaskError(
                "permanent_weight is 0, and a report shows every bit as it is: there is no noise"
            )

    @property
    def one_time(self) -> bool:
        """Whether reports are the permanent response itself."""
        return (self.unset_weight, self.set_weight) == (0, INSTANT_SUM)

    @property
    def noiseless(self) -> bool:
        """Whether one side of a bit is certain: then a report may give everything away."""
        certain = self.unset_weight == 0 or self.set_weight == INSTANT_SUM
        return self.permanent_weight == 0 and certain
