"""HTTP clients for OpenAI's client, which keep below limits of requests and of tokens.

>>> from openai import OpenAI
>>> client = OpenAI(api_key="k", http_client=HttpClient("500/minute", tokens="90000/minute"))

An estimate of a call's tokens is held before it is sent, until the ``usage`` of its response
tells the cost. Of a stream that is its last part: ask for it by
``stream_options={"include_usage": True}``. This is for the client's versions from 3 on.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import httpx2
from openai import DefaultAsyncHttpxClient, DefaultHttpxClient
from openai._constants import DEFAULT_CONNECTION_LIMITS

from ._core import Hold
from ._limiter import Limiter
from ._types import Limit
from .pace import Pace, Sent, Tokens, pace_of

__all__ = ["AsyncHttpClient", "HttpClient", "estimate"]

# The most of a response that is kept until its usage is read.
_MAX_KEPT = 4 << 20

# What a reply is taken for that has no maximum.
_DEFAULT_OUTPUT = 1024


def estimate(body: Mapping[str, Any]) -> tuple[int, int]:
    """Return an estimate of a call's tokens: those of its input, and at most of its output.

    A token is some four characters of English text. The output is ``max_completion_tokens``,
    ``max_output_tokens`` or ``max_tokens``, or else 1024, for each of ``n`` replies.

    >>> estimate({"messages": [{"role": "user", "content": "Hello, world"}], "max_tokens": 100})
    (8, 100)
    """
    given = [body[name] for name in ("messages", "input", "prompt", "instructions") if body.get(name)]
    input = sum(-(-_characters(part) // 4) + _messages(part) for part in given)
    if "messages" not in body and "prompt" not in body and "dimensions" in body:
        return input, 0
    names = ("max_completion_tokens", "max_output_tokens", "max_tokens")
    output = next((body[name] for name in names if isinstance(body.get(name), int)), None)
    replies = body.get("n")
    replies = replies if isinstance(replies, int) and replies > 0 else 1
    return input, (_DEFAULT_OUTPUT if output is None else max(output, 0)) * replies


def _characters(part: Any) -> int:
    """Return the length of all texts."""
    if isinstance(part, str):
        return len(part)
    if isinstance(part, Mapping):
        return sum(_characters(it) for name, it in part.items() if name != "image_url")
    return sum(map(_characters, part)) if isinstance(part, list) else 0


def _messages(part: Any) -> int:
    return 4 * sum(isinstance(it, Mapping) for it in part) if isinstance(part, list) else 0


class _Tokens:
    """The tokens of the calls of one client."""

    def __init__(
        self,
        pace: Pace | Limiter | Limit | None,
        tokens: Limiter | Limit | None,
        estimate: Callable[[Mapping[str, Any]], tuple[int, int]],
    ) -> None:
        if not callable(estimate):
            raise TypeError(f"an estimate is a function of a call's body, not {estimate!r}")
        self.pace = pace_of(pace)
        self.pace._count_tokens(tokens)
        self._estimate = estimate

    def tokens(self, request: httpx2.Request, content: bytes) -> Tokens:
        """Return the tokens of a request. One without a body in JSON takes none."""
        # What is compressed otherwise is not read here.
        request.headers["accept-encoding"] = "gzip"
        try:
            body = json.loads(content)
        except ValueError:
            return Tokens()
        if not isinstance(body, dict):
            return Tokens()
        path = request.url.path
        input, output = self._estimate(body)
        return Tokens(input, 0 if path.endswith(("/embeddings", "/moderations")) else output)

    def usage(self, sent: Sent, response: httpx2.Response) -> _Usage:
        sent.response(response.status_code, response.headers.multi_items())
        held, sent._held = sent._held, None
        return _Usage(held, response)


class _Usage:
    """The usage in a response that is being read, which ends what is held."""

    def __init__(self, held: Hold | None, response: httpx2.Response) -> None:
        self._held = held
        self._is_stream = "text/event-stream" in response.headers.get("content-type", "")
        self._is_refused = 400 <= response.status_code < 500
        is_zipped = response.headers.get("content-encoding", "").lower() == "gzip"
        self._unzip = zlib.decompressobj(31) if is_zipped else None
        self._kept = bytearray()
        self._is_cut = False

    def read(self, part: bytes) -> None:
        """Keep a part of the body."""
        if self._held is None or self._is_cut:
            return
        try:
            self._kept += self._unzip.decompress(part) if self._unzip else part
        except zlib.error:
            self._is_cut = True
        if len(self._kept) > _MAX_KEPT:
            if self._is_stream:
                # The usage is at the end.
                del self._kept[:-_MAX_KEPT]
            else:
                self._is_cut = True
                self._kept.clear()

    def commit(self) -> None:
        """Commit the tokens, once. Without a usage the estimate stands."""
        held, self._held = self._held, None
        if held is None:
            return
        used = 0 if self._is_refused else self._used()
        if used is None:
            held.keep()
        else:
            held.commit(used)
        self._kept.clear()

    def __del__(self) -> None:
        # A response that nobody has read to its end, nor closed.
        self.commit()

    def _used(self) -> int | None:
        if self._is_cut:
            return None
        if not self._is_stream:
            return _usage_of(bytes(self._kept))
        for line in reversed(self._kept.split(b"\n")):
            if line.startswith(b"data:") and b'"usage"' in line:
                used = _usage_of(bytes(line[5:]))
                if used is not None:
                    return used
        return None


def _usage_of(text: bytes) -> int | None:
    """Return the tokens that a response, or an event of a stream, says were used."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict):
        return None
    of_event = body.get("response")
    usage = of_event.get("usage") if isinstance(of_event, dict) else body.get("usage")
    if not isinstance(usage, dict):
        return None
    if _is_count(usage.get("total_tokens")):
        return int(usage["total_tokens"])
    names = ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens")
    parts = [usage[name] for name in names if _is_count(usage.get(name))]
    return sum(parts) if parts else None


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 1 << 63


class _Stream(httpx2.SyncByteStream):
    def __init__(self, inner: httpx2.SyncByteStream, usage: _Usage) -> None:
        self._inner, self._usage = inner, usage

    def __iter__(self) -> Iterator[bytes]:
        for part in self._inner:
            self._usage.read(part)
            yield part
        self._usage.commit()

    def close(self) -> None:
        self._usage.commit()
        self._inner.close()


class _AsyncStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, usage: _Usage) -> None:
        self._inner, self._usage = inner, usage

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._inner:
            self._usage.read(part)
            yield part
        self._usage.commit()

    async def aclose(self) -> None:
        self._usage.commit()
        await self._inner.aclose()


class _Transport(httpx2.BaseTransport):
    def __init__(self, tokens: _Tokens, inner: httpx2.BaseTransport) -> None:
        self._tokens, self._inner = tokens, inner

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        with self._tokens.pace.request(self._tokens.tokens(request, request.read())) as sent:
            response = self._inner.handle_request(request)
            usage = self._tokens.usage(sent, response)
            assert isinstance(response.stream, httpx2.SyncByteStream)
            response.stream = _Stream(response.stream, usage)
            return response

    def close(self) -> None:
        self._inner.close()


class _AsyncTransport(httpx2.AsyncBaseTransport):
    def __init__(self, tokens: _Tokens, inner: httpx2.AsyncBaseTransport) -> None:
        self._tokens, self._inner = tokens, inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        tokens = self._tokens.tokens(request, await request.aread())
        async with self._tokens.pace.request_async(tokens) as sent:
            response = await self._inner.handle_async_request(request)
            usage = self._tokens.usage(sent, response)
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _AsyncStream(response.stream, usage)
            return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class HttpClient(DefaultHttpxClient):
    """An HTTP client for ``OpenAI(http_client=…)``. Make one for each model's limits.

    ``pace`` limits requests: a limit, or a `pyrategate.pace.Pace` with options. ``tokens`` limits
    tokens, as a text or a `Limiter` that several clients may share. Without it only the server's
    own report of tokens counts. ``estimate`` is a function as `estimate`. A call that costs more
    than the whole limit waits for all of it. A call that the server refuses (4xx) takes nothing;
    one without a usage in its response counts as estimated.

    Other arguments are those of OpenAI's ``DefaultHttpxClient``.
    """

    def __init__(
        self,
        pace: Pace | Limiter | Limit | None = None,
        *,
        tokens: Limiter | Limit | None = None,
        estimate: Callable[[Mapping[str, Any]], tuple[int, int]] = estimate,
        transport: httpx2.BaseTransport | None = None,
        **options: Any,
    ) -> None:
        if transport is None:
            transport = httpx2.HTTPTransport(limits=DEFAULT_CONNECTION_LIMITS)
        counted = _Tokens(pace, tokens, estimate)
        super().__init__(transport=_Transport(counted, transport), **options)


class AsyncHttpClient(DefaultAsyncHttpxClient):
    """An HTTP client for ``AsyncOpenAI(http_client=…)``, as `HttpClient` is for ``OpenAI``."""

    def __init__(
        self,
        pace: Pace | Limiter | Limit | None = None,
        *,
        tokens: Limiter | Limit | None = None,
        estimate: Callable[[Mapping[str, Any]], tuple[int, int]] = estimate,
        transport: httpx2.AsyncBaseTransport | None = None,
        **options: Any,
    ) -> None:
        if transport is None:
            transport = httpx2.AsyncHTTPTransport(limits=DEFAULT_CONNECTION_LIMITS)
        counted = _Tokens(pace, tokens, estimate)
        super().__init__(transport=_AsyncTransport(counted, transport), **options)
