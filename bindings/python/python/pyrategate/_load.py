"""Operations of a load, with what Python does as well as Rust."""

from __future__ import annotations

from . import _core, _loop
from ._core import Release


class OpenLoop(_core.OpenLoop):
    """A load whose operations are released when they are due, however long those before take.

    ``load`` is a text such as ``"ramp:0/s>100/s@10s then constant:100/s@1min"``. The load begins
    when its loop is made. ``for release in loop`` is for threads and ``async for`` for tasks; all of
    them share the loop, and each operation goes to one of them.

    ``part=(0, 3)`` is the first of three parts, which together are exactly the load.

    >>> from pyrategate import ManualClock
    >>> clock = ManualClock()
    >>> loop = OpenLoop("constant:4/s@1s", clock=clock)
    >>> clock.advance(1)
    >>> [(release.number, release.wait) for release in loop]
    [(0, 1.0), (1, 0.75), (2, 0.5), (3, 0.25), (4, 0.0)]
    """

    def __aiter__(self) -> OpenLoop:
        return self

    async def __anext__(self) -> Release:
        """Wait until the next operation is due."""
        replies, make_future = _loop.replies()
        # A load that is behind leaves the loop of the tasks its turns, too.
        await _loop.sleep(0)
        begun = replies.release(self, make_future)
        if isinstance(begun, tuple):
            wait = begun[1]
            try:
                while isinstance(begun, tuple):
                    await begun[0]
                    # Only now: the operation is released at the instant at which its task runs.
                    begun = replies.collect(self, wait, make_future)
            except BaseException:
                # The operation goes to the next call.
                replies.leave(wait)
                raise
        if begun is None:
            raise StopAsyncIteration
        return begun
