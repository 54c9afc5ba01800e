"""The guide's limiter for LiteLLM against a service, with stand-ins for LiteLLM and httpx: `litellm_budget.py FOLDER
ADDRESS`. Ends with a line `ok`."""

import asyncio
import json
import os
import sys
import types
import urllib.error
import urllib.request

sys.dont_write_bytecode = True
LIMIT = 1000
lost = []  # The verbs of the next requests without a reply.


def module(name, **members):
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(members)


class HTTPError(Exception):
    pass


class TransportError(HTTPError):
    pass


class Reply:
    def __init__(self, status_code, body):
        self.status_code, self.body = status_code, body

    def raise_for_status(self):
        if self.status_code >= 400:
            raise HTTPError(self.body)

    def json(self):
        return json.loads(self.body)


class AsyncClient:
    def __init__(self, base_url, timeout):
        self.base_url, self.timeout = base_url, timeout

    async def post(self, path, json):
        if json["verb"] in lost:
            lost.remove(json["verb"])
            raise TransportError
        return await asyncio.to_thread(send, self.base_url + path, json)


def send(address, value):
    try:
        with urllib.request.urlopen(address, json.dumps(value).encode(), timeout=5) as reply:
            return Reply(reply.status, reply.read())
    except urllib.error.HTTPError as error:
        return Reply(error.code, error.read())


class ProxyException(Exception):
    def __init__(self, message, type, param, code=None, headers=None):
        super().__init__(message)
        self.param, self.code, self.headers = param, code, headers


def token_counter(model, text=None, messages=None):
    return len((text if messages is None else " ".join(message["content"] for message in messages)).split())


module("httpx", HTTPError=HTTPError, TransportError=TransportError, ReadError=TransportError, AsyncClient=AsyncClient)
module("litellm", token_counter=token_counter)
module("litellm.integrations")
module("litellm.integrations.custom_logger", CustomLogger=object)
module("litellm.proxy")
module("litellm.proxy._types", ProxyException=ProxyException)
os.environ["RATEGATE_SERVER"] = sys.argv[2]
sys.path.insert(0, sys.argv[1])
import litellm_rategate  # noqa: E402

limiter = litellm_rategate.limiter
users = iter(range(1000))


class User:
    """A user with a budget of their own."""

    def __init__(self):
        self.user_id, self.token = f"user {next(users)}", None

    async def begin(self, **data):
        data = {"model": "m", "messages": [{"role": "user", "content": "Say hello"}], "max_tokens": 98, **data}
        return await limiter.async_pre_call_hook(self, None, data, "acompletion")

    async def refused(self, **data):
        try:
            await self.begin(**data)
        except ProxyException as error:
            return error
        raise AssertionError(data)

    async def remaining(self):
        reply = await limiter.ask("peek", self.user_id, 0)
        return [limit["remaining"] for limit in reply["items"][0]["limits"]]

    async def holds(self, **data):
        before, _ = await self.remaining()
        await self.begin(**data)
        return before - (await self.remaining())[0]

    async def settles_at(self, *numbers):
        while limiter.pending:
            await asyncio.wait(limiter.pending, timeout=30)
        assert await self.remaining() == list(numbers), (await self.remaining(), numbers)


async def end(data, tokens):
    event = {"litellm_params": {"metadata": data["metadata"]}, "standard_logging_object": {"total_tokens": tokens}}
    await limiter.async_log_success_event(event, None, None, None)


async def calls():
    user = User()
    data = await user.begin(**{"no-log": True})
    assert "no-log" not in data
    assert await user.remaining() == [LIMIT - 100, 59]
    await end(data, 30)
    await user.settles_at(LIMIT - 30, 59)
    await limiter.async_post_call_failure_hook(await user.begin(), None, user)
    await user.settles_at(LIMIT - 30, 59)


async def estimates():
    assert await User().holds(extra_body={"max_tokens": 500}) == 502
    assert await User().holds(extra_body={"max_tokens": 5}) == 100
    assert await User().holds(extra_body={"messages": [{"role": "user", "content": "hello " * 300}]}) == 398
    assert await User().holds(extra_body={"n": 3}) == 2 + 3 * 98
    assert await User().holds(best_of=2) == 2 + 2 * 98
    prompts = {"messages": None, "max_tokens": 98}
    assert await User().holds(prompt=["Say hello", "Say more"], **prompts) == 5 + 2 * 98
    assert await User().holds(prompt=[7, 8, 9], **prompts) == 4 + 98
    # The JSON text of each has three words.
    assert await User().holds(response_format={"type": "json_object"}) == 103
    assert await User().holds(functions=[{"name": "f"}]) == 103
    for value in (None, {"max_tokens": None}):
        data = await User().begin(max_tokens=None, extra_body=value)
        assert data["max_tokens"] == 512 and data["extra_body"] in (None, {}), data


async def refusals():
    user = User()
    for field, value in (("max_tokens", "abc"), ("max_tokens", -5), ("max_tokens", float("inf")), ("n", [])):
        for data in ({field: value}, {"extra_body": {field: value}}):
            error = await user.refused(**data)
            assert (error.code, error.param) == (400, field) and field in str(error), error
    assert (await user.refused(max_tokens=LIMIT)).code == 400
    assert await user.remaining() == [LIMIT, 60]
    await user.begin(max_tokens=950)
    error = await user.refused()
    assert error.code == 429 and 1 <= int(error.headers["Retry-After"]) <= 3604, error.headers
    lost.extend(3 * ["reserve"])
    assert (await user.refused()).code == 503


async def away():
    """The service cannot be reached as calls end. What it knows no more is charged once."""
    user = User()
    first, second, third = [await user.begin() for _ in range(3)]
    third["metadata"]["rategate"]["id"] = "0" * 32
    lost.extend(8 * ["commit"] + 4 * ["cancel", "charge"])
    await end(first, 30)
    await limiter.async_post_call_failure_hook(second, None, user)
    await end(third, 40)
    await user.settles_at(LIMIT - 30 - 100 - 40, 57)
    litellm_rategate.MAX_PENDING = 0
    await end(await user.begin(), 30)
    assert limiter.dropped == 1 and not limiter.pending
    litellm_rategate.MAX_PENDING = 10_000


async def left():
    """Clients leave streams: before the first part the prompt counts, unless LiteLLM reports more."""
    litellm_rategate.LEFT = 0.5

    async def parts(begun):
        if begun:
            yield "part"
        await asyncio.sleep(60)

    async def read(data, user, begun):
        stream = limiter.async_post_call_streaming_iterator_hook(user, parts(begun), data)
        reader = asyncio.create_task(anext(stream))
        await asyncio.sleep(0.01)
        if begun:
            assert await reader == "part"
        reader.cancel()
        await stream.aclose() if begun else await asyncio.wait([reader])

    for begun, reported, counted in ((False, None, 2), (False, 30, 30), (True, None, 100), (True, 30, 30)):
        user = User()
        data = await user.begin()
        await read(data, user, begun)
        if reported:
            await asyncio.sleep(0.1)
            await end(data, reported)
        await user.settles_at(LIMIT - counted, 59)


async def main():
    for test in (calls, estimates, refusals, away, left):
        await test()
    print("ok")


asyncio.run(main())
