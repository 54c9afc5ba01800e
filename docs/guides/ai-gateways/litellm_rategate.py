"""Token budgets of rategate for LiteLLM's proxy: `callbacks: litellm_rategate.limiter` in its configuration.

Before a call an upper estimate of its tokens is reserved, with one request. After it, what it used is committed.
"""

import asyncio
import itertools
import json
import logging
import math
import os
import uuid

import httpx
import litellm
from litellm.integrations.custom_logger import CustomLogger
from litellm.proxy._types import ProxyException

SERVER = os.environ.get("RATEGATE_SERVER", "http://127.0.0.1:8080")
# Longer than a call can last, at most 10min. LiteLLM's `request_timeout` should be shorter.
TTL = "10min"
# The longest reply to a request that does not say one.
MAX_TOKENS = 512
# How many ends of calls wait at most for a service that cannot be reached.
MAX_PENDING = 10_000
# Seconds that LiteLLM has to report a stream whose client left before its first part.
LEFT = 60
# The calls that are counted, by a part of their type, with the field for the longest reply. Others pass uncounted.
CALLS = {"completion": "max_tokens", "messages": "max_tokens", "responses": "max_output_tokens", "embedding": None}
# What a model reads beside `messages`.
PROMPT = ("prompt", "input", "system", "instructions", "tools", "functions", "response_format", "text")
# LiteLLM hands a request's own data on in one of these.
PLACES = ("litellm_metadata", "metadata")
ERRORS = {400: "invalid_request_error", 429: "rate_limit_error", 503: "service_unavailable_error"}
log = logging.getLogger("rategate")


def refusal(status, message, field=None, headers=None):
    """LiteLLM sends the headers of this class to clients of all its routes."""
    return ProxyException(message, ERRORS[status], field, status, headers)


def whole(data, field):
    """Returns the numbers of a field, at least 1: one or none."""
    if data.get(field) is None:
        data.pop(field, None)
        return []
    try:
        number = int(data[field])
    except (TypeError, ValueError, OverflowError):
        number = 0
    if number < 1:
        raise refusal(400, f"{field} is {data[field]!r:.40}: it must be a whole number from 1", field)
    return [number]


def prompt_tokens(data):
    """Counts the tokens of a request, of whichever form."""
    model = data.get("model") or ""
    prompt = {name: data[name] for name in PROMPT if data.get(name)}
    rest = litellm.token_counter(model=model, text=json.dumps(prompt, default=str)) if prompt else 0
    messages = data.get("messages")
    return rest + (litellm.token_counter(model=model, messages=messages) if messages else 0)


def estimate(data, longest):
    """Returns upper estimates of a call's prompt and reply. A request without a longest reply gets one."""
    # A vendor sees the members of `extra_body` in place of others, or never: the larger one counts.
    extra = data.get("extra_body")
    bodies = [data, extra] if isinstance(extra, dict) else [data]
    prompt = max(prompt_tokens({**data, **body}) for body in bodies)
    if longest is None:
        return prompt, 0
    fields = (longest, "max_completion_tokens")
    lengths = [number for body in bodies for field in fields for number in whole(body, field)]
    if not lengths:
        data[longest] = MAX_TOKENS
    replies = [number for body in bodies for field in ("n", "best_of") for number in whole(body, field)]
    # A list of texts has replies to each; one of numbers is one prompt.
    lists = [body["prompt"] for body in bodies if isinstance(body.get("prompt"), list)]
    prompts = [len(texts) for texts in lists if texts and not isinstance(texts[0], int)]
    return prompt, max(lengths, default=MAX_TOKENS) * max(replies, default=1) * max(prompts, default=1)


class RategateLimiter(CustomLogger):
    """LiteLLM calls only hooks that the class itself has: a subclass must define them again."""

    def __init__(self):
        super().__init__()
        self.client = httpx.AsyncClient(base_url=SERVER, timeout=2)
        self.pending, self.dropped = set(), 0

    async def ask(self, verb, user, tokens, tries=3, **more):
        items = [{"rule": "calls", "key": user, "permits": tokens}]
        for attempt in itertools.count(1):
            try:
                reply = await self.client.post("/v1/check", json={"verb": verb, "items": items, **more})
                if reply.status_code >= 500:
                    raise httpx.ReadError(f"status {reply.status_code}")
                reply.raise_for_status()
                if any(item["verdict"] == "store_unavailable" for item in reply.json()["items"]):
                    raise httpx.ReadError("the store of the counters does not reply")
                return reply.json()
            except httpx.TransportError:  # A lost answer: under its id the same call changes nothing.
                if attempt == tries:
                    raise
                await asyncio.sleep(min(0.1 * 2 ** min(attempt - 1, 10), 10))

    def settle(self, verb, hold, tokens, after=0):
        """Ends a reservation in the background, however long the service cannot be reached."""
        if len(self.pending) >= MAX_PENDING:
            self.dropped += 1
            log.error("%s of %d tokens of %s dropped (%d so far): too many wait for %s", verb, tokens, hold["user"],
                      self.dropped, SERVER)
            return
        task = asyncio.create_task(self.settled(verb, hold, tokens, after))
        self.pending.add(task)
        task.add_done_callback(self.pending.discard)

    async def settled(self, verb, hold, tokens, after):
        await asyncio.sleep(after)
        try:
            reply = await self.ask(verb, hold["user"], tokens, tries=None, id=hold["id"])
            # No longer held, after a crash of the service or a failure behind the model: it is used all the same.
            if verb == "commit" and reply["items"][0]["verdict"] in ("unknown", "cancelled"):
                once = uuid.uuid5(uuid.UUID(hold["id"]), "charge").hex
                await self.ask("charge", hold["user"], tokens, tries=None, once=once)
        except httpx.HTTPError as error:
            log.error("%s of %d tokens of %s: %s", verb, tokens, hold["user"], error)

    async def async_pre_call_hook(self, user_api_key_dict, cache, data, call_type):
        for place in PLACES:  # A client may have written there, too.
            if isinstance(data.get(place), dict):
                data[place].pop("rategate", None)
        kind = next((kind for kind in CALLS if kind in call_type), None)
        if kind is None:
            return data
        data.pop("no-log", None)  # With it, LiteLLM reports no end of the call.
        # Never `data["user"]`: the client chooses it.
        user = user_api_key_dict.user_id or user_api_key_dict.token or "unknown"
        prompt, longest = estimate(data, CALLS[kind])
        tokens, hold = prompt + longest, {"id": uuid.uuid4().hex, "user": user, "prompt": prompt}
        try:
            reply = await self.ask("reserve", user, tokens, id=hold["id"], ttl=TTL)
        except httpx.HTTPError as error:
            raise refusal(503, "the token budget is unavailable") from error
        if not reply["allowed"]:
            waits = [item["retry_after_ms"] for item in reply["items"] if not item["allowed"]]
            if None in waits:
                raise refusal(400, f"{tokens} tokens are more than the budget ever allows")
            seconds = max(1, math.ceil(max(waits) / 1000))
            raise refusal(429, f"{tokens} tokens exceed the budget", headers={"Retry-After": str(seconds)})
        place = "litellm_metadata" if "litellm_metadata" in data else "metadata"
        data[place] = {**(data.get(place) or {}), "rategate": hold}
        return data

    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        if hold := self.hold_of(kwargs.get("litellm_params") or {}):
            used = int((kwargs.get("standard_logging_object") or {}).get("total_tokens") or 0)
            self.settle("commit", hold, used)

    async def async_post_call_failure_hook(self, request_data, original_exception, user_api_key_dict, *_, **__):
        """Cancels once, after all retries and fallbacks; `async_log_failure_event` comes after each of them."""
        if hold := self.hold_of(request_data):
            self.settle("cancel", hold, 0)

    async def async_post_call_streaming_iterator_hook(self, user_api_key_dict, response, request_data):
        """Commits the prompt of a stream whose client left before its first part: no other hook is called then."""
        has_begun = False
        try:
            async for part in response:
                has_begun = True
                yield part
        except (asyncio.CancelledError, GeneratorExit):
            if not has_begun and (hold := self.hold_of(request_data)):
                self.settle("commit", hold, hold["prompt"], after=LEFT)  # Unless LiteLLM reports more until then.
            raise

    @staticmethod
    def hold_of(parameters):
        found = (parameters.get(place) for place in PLACES)
        return next((it["rategate"] for it in found if isinstance(it, dict) and "rategate" in it), None)


limiter = RategateLimiter()
