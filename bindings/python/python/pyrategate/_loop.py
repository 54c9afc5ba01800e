"""Waits of asyncio's tasks: a hub for each event loop."""

from __future__ import annotations

import asyncio
import os
from weakref import WeakKeyDictionary

from ._core import Grant, Hub, _Limiter
from ._types import Span

_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, Hub] = WeakKeyDictionary()


def hub_of(loop: asyncio.AbstractEventLoop) -> Hub:
    """Return the hub of a loop, which watches it from now on."""
    hub = _hubs.get(loop)
    if hub is None:
        for other in [other for other in list(_hubs) if other.is_closed()]:
            # What still waits there will never go on, and should not hold up others.
            _hubs.pop(other).close()
        hub = Hub()
        loop.add_reader(hub.fileno(), hub.wake)
        _hubs[loop] = hub
    return hub


async def wait(limiter: _Limiter, permits: int, timeout: Span | None) -> Grant:
    """Wait for permits in the line that threads and other loops are in too."""
    loop = asyncio.get_running_loop()
    hub = hub_of(loop)
    future: asyncio.Future[None] = loop.create_future()
    place = hub.begin(limiter, permits, timeout, future)
    if isinstance(place, Grant):
        return place
    try:
        while True:
            await future
            # Only now: the permits count from the instant at which the task runs.
            grant = hub.collect(place)
            if grant is not None:
                return grant
            future = loop.create_future()
            hub.wait_on(place, future)
    except BaseException:
        # What is held for it goes to the next.
        hub.cancel(place)
        raise


def _forget_the_parents_loops() -> None:
    # A hub of the parent takes no lock when it is dropped here: another thread may have held it.
    _hubs.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_the_parents_loops)
