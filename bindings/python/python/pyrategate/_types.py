"""Types of arguments."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Union

from ._policy import Policy

# Seconds, a timedelta, or a text such as "1.5s".
Span = Union[float, timedelta, str]
Limit = Union[str, Policy, Iterable[Union[str, Policy]]]
Key = Union[str, bytes, int]
