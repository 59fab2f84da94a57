"""
One-hot randomized response, as an application of RAPPOR prints it [HZ22]: every bit of a one-hot
code is kept with chance p.

It is symmetric unary encoding under another name. Its ε is printed as ln(p / (1-p)), as of one
bit; two values differ in two bits, and it is 2·ln(p / (1-p)).
"""

from fractions import Fraction

from common.mechanisms.unary import SymmetricUnary
from common.mechanisms.warner import keep_weights


def one_hot(domain_size: int, chance: Fraction) -> SymmetricUnary:
    """
    Keep every bit with this chance, exactly.

    Args:
        domain_size: Items, at least 2.
        chance: p, above 1/2 and below 1.

    Raises:
        TaskError: p is out of range, or there are more items than a report has bits.
    """
    return SymmetricUnary(domain_size, keep_weights(chance))
