"""Waits of tasks: a hub for each event loop of asyncio, and the choice of the library."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from weakref import WeakKeyDictionary

from ._core import Grant, Hold, Hub, Limiter, _after_fork, _before_fork, _Replies
from ._types import AwaitedWakes, Span

_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, Hub] = WeakKeyDictionary()
_replies: WeakKeyDictionary[asyncio.AbstractEventLoop, _Replies] = WeakKeyDictionary()

# Loops of Windows watch sockets alone, and its default one of asyncio not even those.
WATCHES_FILES = os.name == "posix"

_NO_LOOP = (
    "a wait needs a running event loop of asyncio or trio to wake its task, and there is none: "
    "outside of tasks, {}"
)


def library() -> str | None:
    """Return the library whose loop runs this code: "asyncio", "trio" or None."""
    # Trio says so there, and a host of asyncio within trio takes it back. A context variable would
    # not do: threads inherit it.
    sniffio = sys.modules.get("sniffio")
    if sniffio is not None and sniffio.thread_local.name == "trio":
        return "trio"
    return None if asyncio._get_running_loop() is None else "asyncio"


def warn_where_a_loop_blocks(call: str, instead: str) -> None:
    """Warn of a wait that blocks the loop of its thread, at the line that called this package."""
    if library() is None:
        return
    # As a level of 1 is this function, 2 is its caller.
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("pyrategate."):
        frame, level = frame.f_back, level + 1
    warnings.warn(
        f"{call} waits, and blocks the event loop of its thread: {instead}",
        RuntimeWarning,
        stacklevel=level,
    )


async def sleep(seconds: float) -> None:
    """Sleep in the loop that runs. Its timers may end early."""
    if library() == "trio":
        import trio

        await trio.sleep(seconds)
    else:
        await asyncio.sleep(seconds)


def hub_of(loop: asyncio.AbstractEventLoop) -> Hub:
    """Return the hub of a loop, which watches it from now on."""
    hub = _hubs.get(loop)
    if hub is None:
        for other in [other for other in list(_hubs) if other.is_closed()]:
            # What still waits there will never go on, and should not hold up others.
            _hubs.pop(other).close()
        hub = Hub()
        _watch(loop, hub, hub.wake)
        _hubs[loop] = hub
    return hub


def replies_of(loop: asyncio.AbstractEventLoop) -> _Replies:
    """Return the calls of a loop that wait for a store or a load, which it watches from now on."""
    replies = _replies.get(loop)
    if replies is None:
        for other in [other for other in list(_replies) if other.is_closed()]:
            _replies.pop(other).close()
        replies = _Replies()
        _watch(loop, replies, replies.drain)
        _replies[loop] = replies
    return replies


def look() -> None:
    """Wake the tasks of the running loop whose waits have ended, before it is told of them."""
    loop = asyncio.get_running_loop()
    if loop in _hubs:
        _hubs[loop].wake()
    if loop in _replies:
        _replies[loop].drain()


def _watch(
    loop: asyncio.AbstractEventLoop, waits: Hub | _Replies, wake: Callable[[], None]
) -> None:
    if WATCHES_FILES:
        loop.add_reader(waits.fileno(), wake)
        return
    weak = weakref.ref(loop)

    def wake_loop() -> None:
        alive = weak()
        if alive is not None:
            alive.call_soon_threadsafe(wake)

    weakref.finalize(loop, waits.close)
    watch_in_thread(waits, wake_loop)


def watch_in_thread(waits: Hub | _Replies, wake_loop: Callable[[], None]) -> None:
    """Have a thread wake the loop of these waits, until they are closed or the loop has ended."""

    def watch() -> None:
        # Of a loop that is closed.
        with contextlib.suppress(RuntimeError):
            while waits.raised():
                wake_loop()

    threading.Thread(target=watch, name="pyrategate", daemon=True).start()


def replies() -> tuple[_Replies, Callable[[], AwaitedWakes]]:
    """Return the calls of the loop that runs, and the function that makes what a task awaits."""
    running = library()
    if running == "trio":
        from . import _trio

        return _trio.replies(), _trio.Woken
    if running is None:
        raise RuntimeError(_NO_LOOP.format("use `for`"))
    loop = asyncio.get_running_loop()
    return replies_of(loop), loop.create_future


async def wait(
    limiter: Limiter, permits: int, timeout: Span | None, ttl: Span | None = None
) -> Grant | Hold:
    """Wait in the line that threads and other loops are in too, for permits or to hold them."""
    running = library()
    if running == "trio":
        from . import _trio

        return await _trio.wait(limiter, permits, timeout, ttl)
    if running is None:
        blocking = "call acquire()" if ttl is None else "call hold()"
        raise RuntimeError(_NO_LOOP.format(blocking))
    loop = asyncio.get_running_loop()
    hub = hub_of(loop)
    future: asyncio.Future[None] = loop.create_future()
    place = hub.begin(limiter, permits, timeout, future, ttl)
    if not isinstance(place, int):
        return place
    try:
        while True:
            await future
            # Only now: the permits count from the instant at which the task runs.
            taken = hub.collect(limiter, place)
            if taken is not None:
                return taken
            future = loop.create_future()
            hub.wait_on(place, future)
    except BaseException:
        # What is held for it goes to the next.
        hub.cancel(place)
        raise


def _forget_the_parents_loops() -> None:
    # A hub of the parent takes no lock when it is dropped here: another thread may have held it.
    _hubs.clear()
    _replies.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_the_parents_loops)
    # Threads that wait, and the timer, use limiters without the interpreter's lock.
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(False),
        after_in_child=lambda: _after_fork(True),
    )
