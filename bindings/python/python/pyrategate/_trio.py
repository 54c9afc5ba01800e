"""Waits of trio's tasks: a hub for each run, and one task at a time that goes on.

Operations of loads go to their tasks in the order of the calls, in whatever order these run.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

import trio

from . import _loop
from ._core import Grant, Hold, Hub, Limiter, _Replies
from ._types import Span


class _Wait:
    """The place of a task, which the hub wakes as it wakes a future of asyncio."""

    __slots__ = ("_due", "task")

    def __init__(self, due: _Due) -> None:
        self._due = due
        self.task: trio.lowlevel.Task | None = None
        self.sleep()

    def sleep(self) -> None:
        """Wait for the next wake."""
        self.task = trio.lowlevel.current_task()

    def done(self) -> bool:
        """Return True if the task was cancelled, or goes on already."""
        return self.task is None

    def set_result(self, _result: None, /) -> None:
        """Have the task go on, once those before it have."""
        self._due.add(self)


class _Due:
    """The tasks that go on, in order.

    Trio shuffles the tasks that become runnable together. So each makes the next one runnable as
    it takes its permits.
    """

    def __init__(self) -> None:
        self._waits: deque[_Wait] = deque()
        self._goes_on = False

    def add(self, wait: _Wait) -> None:
        self._waits.append(wait)
        if not self._goes_on:
            self.next()

    def next(self) -> None:
        """Have the next task go on that was not cancelled."""
        self._goes_on = False
        while self._waits:
            wait = self._waits.popleft()
            task, wait.task = wait.task, None
            if task is not None:
                self._goes_on = True
                trio.lowlevel.reschedule(task)
                return


class Woken:
    """The wake of a task that waits for an operation of a load, as a future of asyncio is one."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = trio.Event()

    def done(self) -> bool:
        """Return True once the task has been woken."""
        return self._event.is_set()

    def set_result(self, _result: None, /) -> None:
        """Have the task go on."""
        self._event.set()

    def __await__(self) -> Generator[Any, Any, None]:
        return self._event.wait().__await__()


_run: trio.lowlevel.RunVar[tuple[Hub, _Due]] = trio.lowlevel.RunVar("pyrategate")
_replies: trio.lowlevel.RunVar[_Replies] = trio.lowlevel.RunVar("pyrategate replies")


def _hub() -> tuple[Hub, _Due]:
    """Return the hub of this run, which watches it from now on."""
    try:
        return _run.get()
    except LookupError:
        here = Hub(), _Due()
        _run.set(here)
        trio.lowlevel.spawn_system_task(_watch, here[0], here[0].wake)
        return here


def replies() -> _Replies:
    """Return the calls of this run that wait for a load, which watches them from now on."""
    try:
        return _replies.get()
    except LookupError:
        here = _Replies()
        _replies.set(here)
        trio.lowlevel.spawn_system_task(_watch, here, here.drain)
        return here


def look() -> None:
    """Wake the tasks of this run whose waits have ended, before the run is told of them."""
    with contextlib.suppress(LookupError):
        _run.get()[0].wake()
    with contextlib.suppress(LookupError):
        _replies.get().drain()


async def _watch(waits: Hub | _Replies, wake: Callable[[], None]) -> None:
    try:
        if not _loop.WATCHES_FILES:
            token = trio.lowlevel.current_trio_token()
            _loop.watch_in_thread(waits, lambda: token.run_sync_soon(wake))
            await trio.sleep_forever()
        while True:
            await trio.lowlevel.wait_readable(waits.fileno())
            wake()
    finally:
        # What still waits here will never go on, and should not hold up others.
        waits.close()


async def wait(
    limiter: Limiter, permits: int, timeout: Span | None, ttl: Span | None
) -> Grant | Hold:
    """Wait in the line that threads and other loops are in too, for permits or to hold them."""
    hub, due = _hub()
    wait = _Wait(due)
    place = hub.begin(limiter, permits, timeout, wait, ttl)
    if not isinstance(place, int):
        return place

    def leave(_raise: object) -> trio.lowlevel.Abort:
        wait.task = None
        return trio.lowlevel.Abort.SUCCEEDED

    try:
        while True:
            await trio.lowlevel.wait_task_rescheduled(leave)
            try:
                # Only now: the permits count from the instant at which the task runs.
                taken = hub.collect(limiter, place)
            finally:
                due.next()
            if taken is not None:
                return taken
            wait.sleep()
            hub.wait_on(place, wait)
    except BaseException:
        # What is held for it goes to the next.
        hub.cancel(place)
        raise
