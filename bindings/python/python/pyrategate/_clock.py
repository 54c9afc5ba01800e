"""The clock for tests."""

from __future__ import annotations

import asyncio

from . import _core, _loop


class ManualClock(_core.ManualClock):
    """A clock that stands still until it is moved, so that a test of an hour takes no time."""

    async def settle(self) -> None:
        """Let the tasks of the running loop go on whose waits the moved clock has ended."""
        if _loop.library() == "trio":
            import trio.testing

            from . import _trio

            # What the tasks begin at once takes a round of its own.
            for _ in range(2):
                _trio.look()
                await trio.testing.wait_all_tasks_blocked()
            return
        # A round of the loop wakes tasks, one resumes them, and what those begin at once takes as
        # many again.
        for _ in range(4):
            _loop.look()
            await asyncio.sleep(0)
