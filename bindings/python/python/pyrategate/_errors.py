"""Exceptions: what a call can end with besides a grant."""

from __future__ import annotations


class Limited(Exception):
    """The limit did not let the call pass. Nothing was taken."""


class RateLimited(Limited):
    """A call that does not wait came too soon.

    ``retry_after_ns`` says when the same call would pass, if no other comes first. It is ``None``
    if no time helps.
    """

    def __init__(self, message: str = "rate limited", retry_after_ns: int | None = None) -> None:
        super().__init__(message, retry_after_ns)
        self.retry_after_ns = retry_after_ns

    @property
    def retry_after(self) -> float | None:
        """The seconds after which the same call would pass."""
        return None if self.retry_after_ns is None else self.retry_after_ns / 1e9

    def __str__(self) -> str:
        return str(self.args[0])


class TooLong(RateLimited, TimeoutError):
    """The start lies past the timeout. This is known, and raised, at once."""


class Full(Limited):
    """The wait queue, or the table of keys, is full."""


class Evicted(Full):
    """The wait queue was full, and a later caller took this one's place."""


class DeadlinePassed(TooLong):
    """The timeout passed during the wait, as could not be foreseen when it began."""


class TimeCannotHelp(Limited):
    """No wait ends in a grant: the rate is never, or permits come back only by a caller's act."""


class Unavailable(RateLimited):
    """The store of a shared limit is gone, and ``when_gone="deny"``.

    Also of ``acquire`` with ``"local"``, where this process's part does not begin within the
    timeout. The message says why: there is no connection, a password is wrong, a key holds the data of
    another program. ``retry_after_ns`` says when a call may go to the store again.
    """


class Closed(Limited):
    """The limiter has been closed, before the call or while it waited."""


class ExceedsCapacity(ValueError):
    """More permits than could ever be granted together, so no time and no retry helps."""
