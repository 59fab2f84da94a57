"""Choices that the planner offers."""

from typing import Literal

Prefix = Literal["average", "worst"]
Trust = Literal["shuffler-dummies", "anonymity", "none"]
