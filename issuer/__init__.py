"""The issuer: knows who asks for a token, and never which token, task answer or batch is whose."""

from shuffledp import check_name

check_name(__name__)
