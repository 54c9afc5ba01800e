"""Clients of language models: OpenAI's own against a server that answers like it, and LangChain."""

import asyncio
import gzip
import json
import threading
import time

import pytest

from serving import needs, scripted

needs("openai", "httpx2", "langchain_core")

import httpx2  # noqa: E402
import openai  # noqa: E402
from langchain_core.language_models import FakeListChatModel  # noqa: E402
from langchain_core.rate_limiters import BaseRateLimiter  # noqa: E402

from pyrategate import Limiter, ManualClock, TooLong  # noqa: E402
from pyrategate.langchain import RateLimiter  # noqa: E402
from pyrategate.openai import AsyncHttpClient, HttpClient, _Usage, _usage_of, estimate  # noqa: E402
from pyrategate.pace import Pace  # noqa: E402

SECOND = 1_000_000_000
JSON = {"content-type": "application/json"}
EVENTS = {"content-type": "text/event-stream"}


def completion(total):
    message = {"role": "assistant", "content": "Hello"}
    usage = {"prompt_tokens": 9, "completion_tokens": total - 9, "total_tokens": total}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "usage": usage}
    return {**body, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


def chunks(total):
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    delta = [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": None}]
    parts = [{**head, "choices": delta, "usage": None}]
    if total is not None:
        parts.append({**head, "choices": [], "usage": {"total_tokens": total}})
    lines = [f"data: {json.dumps(part)}\n\n" for part in parts]
    return ("".join(lines) + "data: [DONE]\n\n").encode()


def ask(client, **options):
    messages = [{"role": "user", "content": "Hello, world"}]
    return client.chat.completions.create(model="m", messages=messages, max_tokens=100, **options)


def client_of(url, **options):
    clients = {"api_key": "k", "base_url": f"{url}/v1", "max_retries": 0}
    return openai.OpenAI(**clients, http_client=HttpClient(**options))


def left(limiter):
    return limiter.remaining


def test_tokens_are_held_before_a_call_until_its_usage_is_known():
    tokens = Limiter("1000/h", clock=ManualClock())
    seen = []

    with scripted((200, JSON, completion(30))) as (url, script):
        answer = script.answer
        script.answer = lambda body: (seen.append(left(tokens)), answer(body))[1]
        reply = ask(client_of(url, tokens=tokens))
    assert reply.choices[0].message.content == "Hello"
    # 8 of the input and at most 100 of the output, of which 78 come back.
    assert seen == [1000 - 108]
    assert left(tokens) == 1000 - 30


def test_what_was_used_beyond_the_estimate_is_charged():
    tokens = Limiter("1000/h", clock=ManualClock())
    with scripted((200, JSON, completion(400))) as (url, _):
        ask(client_of(url, tokens=tokens))
    assert left(tokens) == 600


@pytest.mark.parametrize(("total", "expected"), [(30, 970), (None, 1000 - 108)])
def test_a_stream_is_committed_by_its_last_part(total, expected):
    tokens = Limiter("1000/h", clock=ManualClock())
    with scripted((200, EVENTS, chunks(total))) as (url, _):
        client = client_of(url, tokens=tokens)
        parts = list(ask(client, stream=True, stream_options={"include_usage": True}))
    assert parts[0].choices[0].delta.content == "Hello"
    assert left(tokens) == expected


def test_a_compressed_response_is_committed_too():
    tokens = Limiter("1000/h", clock=ManualClock())
    body = gzip.compress(json.dumps(completion(30)).encode())
    with scripted((200, {**JSON, "content-encoding": "gzip"}, body)) as (url, _):
        assert ask(client_of(url, tokens=tokens)).usage.total_tokens == 30
    assert left(tokens) == 970


@pytest.mark.parametrize(
    ("status", "kind", "expected"),
    [
        (429, openai.RateLimitError, 1000),
        (400, openai.BadRequestError, 1000),
        (500, openai.InternalServerError, 1000 - 108),
    ],
)
def test_a_refused_call_takes_nothing_and_one_that_failed_counts_as_estimated(
    status, kind, expected
):
    tokens = Limiter("1000/h", clock=ManualClock())
    with scripted((status, JSON, {"error": {"message": "no"}})) as (url, _):
        with pytest.raises(kind):
            ask(client_of(url, tokens=tokens))
    assert left(tokens) == expected


def test_a_call_that_costs_more_than_the_limit_takes_all_of_it():
    tokens = Limiter("50/h", clock=ManualClock())
    with scripted((200, JSON, completion(30))) as (url, _):
        ask(client_of(url, tokens=tokens))
    assert left(tokens) == 20


def test_a_wait_for_tokens_that_is_too_long_is_an_error_and_sends_nothing():
    tokens = Limiter("150/h", clock=ManualClock())
    pace = Pace(max_wait="1s")
    with scripted((200, EVENTS, chunks(None))) as (url, script):
        client = client_of(url, pace=pace, tokens=tokens)
        list(ask(client, stream=True))
        # OpenAI's client passes it on, and does not try again.
        with pytest.raises(TooLong):
            ask(client.with_options(max_retries=2))
    assert (len(script.bodies), left(tokens)) == (1, 42)


def test_the_clients_own_retry_waits_for_the_time_that_the_server_names():
    refusal = (429, {**JSON, "retry-after": "1"}, {"error": {"message": "no"}})
    with scripted(refusal, (200, JSON, completion(30))) as (url, script):
        client = client_of(url).with_options(max_retries=1)
        assert ask(client).usage.total_tokens == 30
    assert script.came_ns[1] - script.came_ns[0] >= SECOND


def test_reported_tokens_hold_a_call_that_costs_more_than_remains():
    fields = {
        **JSON,
        "x-ratelimit-limit-tokens": "1080",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "10s",
    }
    with scripted((200, fields, completion(30)), (200, JSON, completion(30))) as (url, script):
        client = client_of(url, pace=Pace(jitter=0))
        ask(client), ask(client)
    # A tenth of the bucket is back after a second.
    assert SECOND <= script.came_ns[1] - script.came_ns[0] < 9 * SECOND


def test_tasks_of_the_async_client_share_the_tokens():
    tokens = Limiter("1000/h", clock=ManualClock())
    answers = [(200, JSON, completion(30)), (200, EVENTS, chunks(40))]

    async def main(url):
        client = openai.AsyncOpenAI(
            api_key="k", base_url=f"{url}/v1", http_client=AsyncHttpClient(tokens=tokens)
        )
        async with client:
            assert (await ask(client)).usage.total_tokens == 30
            stream = await ask(client, stream=True)
            assert [part async for part in stream]

    with scripted(*answers) as (url, _):
        asyncio.run(main(url))
    assert left(tokens) == 1000 - 70


def test_embeddings_have_no_output_and_a_list_of_models_takes_nothing():
    tokens = Limiter("1000/h", clock=ManualClock())
    data = [{"object": "embedding", "index": 0, "embedding": [0.5]}]
    body = {"object": "list", "data": data, "model": "m"}
    with scripted((200, JSON, body), (200, JSON, {"object": "list", "data": []})) as (url, _):
        client = client_of(url, tokens=tokens)
        client.embeddings.create(model="m", input="x" * 400)
        assert left(tokens) == 900
        client.models.list()
        assert left(tokens) == 900


def test_estimates_are_of_texts_and_of_the_replies_asked_for():
    message = {"role": "user", "content": "x" * 36}
    for body, expected in [
        ({"messages": [message], "max_completion_tokens": 7, "n": 3}, (14, 21)),
        ({"input": "x" * 41, "max_output_tokens": 5}, (11, 5)),
        ({"prompt": ["x" * 8, "x" * 8]}, (4, 1024)),
        ({"messages": [{"content": [{"type": "image_url", "image_url": {"url": "x" * 9999}}]}]},
         (4 + 3, 1024)),
        ({}, (0, 1024)),
        ({"messages": "no list", "max_tokens": "many", "n": 0}, (2, 1024)),
    ]:
        assert estimate(body) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"usage": {"total_tokens": 7}}', 7),
        (b'{"usage": {"input_tokens": 3, "output_tokens": 4}}', 7),
        (b'{"type": "response.completed", "response": {"usage": {"total_tokens": 7}}}', 7),
        (b'{"usage": null}', None),
        (b'{"usage": {"total_tokens": -7}}', None),
        (b'{"usage": {"total_tokens": true}}', None),
        (b'{"usage": {"total_tokens": 1e99}}', None),
        (b'["usage"]', None),
        (b"no json", None),
        (b"\xff", None),
        (b"[" * 100_000, None),
    ],
)
def test_any_response_has_a_usage_or_none(text, expected):
    assert _usage_of(text) == expected


def test_wrong_arguments_are_refused():
    with pytest.raises(TypeError, match="an estimate is a function"):
        HttpClient(estimate=5)
    with pytest.raises(ValueError):
        HttpClient(tokens="many")


def test_langchain_waits_in_one_line_and_looks_once():
    limiter = RateLimiter("20/s burst 1")
    assert isinstance(limiter, BaseRateLimiter)
    assert limiter.acquire() is True
    assert limiter.acquire(blocking=False) is False
    assert asyncio.run(limiter.aacquire(blocking=False)) is False
    begin = time.monotonic()
    assert asyncio.run(limiter.aacquire()) is True
    thread = threading.Thread(target=limiter.acquire)
    thread.start()
    thread.join()
    # 50 ms each, less what the first look took.
    assert time.monotonic() - begin > 0.06


def test_a_model_of_langchain_keeps_below_the_limit():
    limiter = Limiter("1/h burst 2", clock=ManualClock())
    model = FakeListChatModel(responses=["hello"], rate_limiter=RateLimiter(limiter))
    assert model.invoke("hi").content == "hello"
    assert asyncio.run(model.ainvoke("hi")).content == "hello"
    assert limiter.remaining == 0


@pytest.mark.parametrize("padding, used", [(4 << 20, 12), ((4 << 20) + 1, 50)])
def test_a_response_is_kept_up_to_its_bound_and_beyond_the_estimate_stands(padding, used):
    limiter = Limiter("100 per any minute")
    usage = _Usage(limiter.hold(50, 60), httpx2.Response(200))
    text = json.dumps(completion(12)).encode()
    usage.read(text)
    for _ in range(4):
        usage.read(b" " * ((padding - len(text)) // 4))
    usage.read(b" " * ((padding - len(text)) % 4))
    usage.commit()
    assert limiter.remaining == 100 - used


def test_of_a_long_stream_the_end_is_kept():
    limiter = Limiter("100 per any minute")
    usage = _Usage(limiter.hold(50, 60), httpx2.Response(200, headers=EVENTS))
    for _ in range(6):
        usage.read(b"data: {}\n\n" * ((1 << 20) // 10))
        assert len(usage._kept) <= 4 << 20
    usage.read(chunks(12))
    usage.commit()
    assert limiter.remaining == 88
