"""One limit for several processes, with what Python does as well as Rust."""

from __future__ import annotations

import asyncio
from typing import cast

from . import _core
from ._core import SharedDecision, SharedGrant, _Replies
from ._loop import library, replies_of
from ._types import Key, Span


def _loop() -> asyncio.AbstractEventLoop:
    if library() != "asyncio":
        raise RuntimeError(
            "a shared limit awaits its store on asyncio alone: call check() or acquire() in a "
            "thread, in trio by trio.to_thread.run_sync"
        )
    return asyncio.get_running_loop()


class Shared(_core.Shared):
    """A limit for each key that all processes with the same store and limit keep together.

    ``url`` is ``"redis://user:password@host:port/database"`` or ``"unix:/path"``, of Redis 7 or
    Valkey; ``limit`` a text, a `Policy`, or a list of these. It connects at its first call, in the
    background.

    ``mode="exact"``: the store decides each call. ``mode="leased"``: each process borrows up to
    ``lease_permits`` permits of a key for the time ``lease``, and grants them itself. More than the
    limit may then pass in a window, by what all processes had borrowed when it began; with
    ``guard=True`` never.

    ``when_gone`` decides while the store does not reply: ``"deny"``, ``"allow"``, or ``"local"``,
    by a limit of this process alone, its part of that for so many ``processes``.

    Limits with the same ``name`` share their counts whatever their numbers are. Without a name, the
    text of the limit is its name.
    """

    async def try_acquire_async(self, key: Key = "", permits: int = 1) -> bool:
        """Take permits for a key, or not at all."""
        return (await self.check_async(key, permits)).granted

    async def check_async(self, key: Key = "", permits: int = 1) -> SharedDecision:
        """Take permits for a key, or say when to come again."""
        loop = _loop()
        replies = replies_of(loop)
        decision = replies.check(self, key, permits, loop.create_future)
        if isinstance(decision, tuple):
            decision = await self._reply(replies, key, *decision)
        return decision

    async def acquire_async(
        self, key: Key = "", permits: int = 1, *, timeout: Span | None = None
    ) -> SharedGrant:
        """Take permits for a key as soon as they may start."""
        loop = _loop()
        replies = replies_of(loop)
        decision = replies.acquire(self, key, permits, timeout, loop.create_future)
        if isinstance(decision, tuple):
            decision = await self._reply(replies, key, *decision)
        # Never none: a denial is waited for, or an error.
        return cast(SharedGrant, decision.grant)

    async def remaining_async(self, key: Key = "") -> int | None:
        """Return the most permits that a call of a key could take now, as far as is known."""
        loop = _loop()
        replies = replies_of(loop)
        decision = replies.peek(self, key, loop.create_future)
        if isinstance(decision, tuple):
            decision = await self._reply(replies, key, *decision)
        return decision.remaining

    async def ready_async(self, timeout: Span = 5) -> None:
        """Wait until the store has replied once, in a thread of the loop's executor."""
        await _loop().run_in_executor(None, self.ready, timeout)

    async def _reply(
        self,
        replies: _Replies,
        key: Key,
        future: asyncio.Future[SharedDecision],
        call: int,
    ) -> SharedDecision:
        try:
            return await future
        except BaseException:
            replies.cancel(call)
            if future.done() and not future.cancelled() and future.exception() is None:
                # Granted, and the task was cancelled before it ran.
                grant = future.result().grant
                if grant is not None:
                    self.refund(grant, key)
            raise
