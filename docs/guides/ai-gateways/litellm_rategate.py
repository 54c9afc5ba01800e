"""Token budgets of rategate for LiteLLM's proxy: `callbacks: litellm_rategate.limiter` in its configuration.

Before a call an upper estimate of its tokens is reserved, with one request. After it, what it used is committed.
"""

import asyncio
import contextlib
import json
import math
import os
import uuid

import httpx
import litellm
from fastapi import HTTPException
from litellm.integrations.custom_logger import CustomLogger

SERVER = os.environ.get("RATEGATE_SERVER", "http://127.0.0.1:8080")
# Longer than a call can last, at most 10min. LiteLLM's `request_timeout` should be shorter.
TTL = "10min"
# The longest reply to a request that does not say one.
MAX_TOKENS = 1024
# The calls that are counted, by a part of their type, with the field for the longest reply. Others pass uncounted.
CALLS = {"completion": "max_tokens", "messages": "max_tokens", "responses": "max_output_tokens", "embedding": None}
# LiteLLM hands a request's own data on in one of these.
PLACES = ("litellm_metadata", "metadata")


def prompt_tokens(data):
    """Counts the tokens of a request, of whichever form."""
    model = data.get("model") or ""
    prompt = {name: data[name] for name in ("prompt", "input", "system", "instructions", "tools") if data.get(name)}
    rest = litellm.token_counter(model=model, text=json.dumps(prompt, default=str)) if prompt else 0
    messages = data.get("messages")
    return rest + (litellm.token_counter(model=model, messages=messages) if messages else 0)


def estimate(data, longest):
    """Returns an upper estimate of what a call uses. A request without a longest reply gets one."""
    if longest is None:
        return prompt_tokens(data)
    lengths = [int(data[field]) for field in (longest, "max_completion_tokens") if data.get(field) is not None]
    if not lengths:
        data[longest] = MAX_TOKENS
    return prompt_tokens(data) + max(1, max(lengths, default=MAX_TOKENS)) * max(1, int(data.get("n") or 1))


class RategateLimiter(CustomLogger):
    def __init__(self):
        super().__init__()
        self.client = httpx.AsyncClient(base_url=SERVER, timeout=2)

    async def ask(self, verb, user, tokens, **more):
        items = [{"rule": "calls", "key": user, "permits": tokens}]
        for attempt in range(3):
            try:
                reply = await self.client.post("/v1/check", json={"verb": verb, "items": items, **more})
                reply.raise_for_status()
                if any(item["verdict"] == "store_unavailable" for item in reply.json()["items"]):
                    raise httpx.ReadError("the store of the counters does not reply")
                return reply.json()
            except httpx.TransportError:  # A lost answer: under its id the same call changes nothing.
                if attempt == 2:
                    raise
                await asyncio.sleep(0.1)

    async def async_pre_call_hook(self, user_api_key_dict, cache, data, call_type):
        for place in PLACES:  # A client may have written there, too.
            if isinstance(data.get(place), dict):
                data[place].pop("rategate", None)
        kind = next((kind for kind in CALLS if kind in call_type), None)
        if kind is None:
            return data
        # Never `data["user"]`: the client chooses it.
        user = user_api_key_dict.user_id or user_api_key_dict.token or "unknown"
        tokens, hold = estimate(data, CALLS[kind]), {"id": uuid.uuid4().hex, "user": user}
        try:
            reply = await self.ask("reserve", user, tokens, id=hold["id"], ttl=TTL)
        except httpx.HTTPError as error:
            raise HTTPException(503, "the token budget is unavailable") from error
        if not reply["allowed"]:
            waits = [item["retry_after_ms"] for item in reply["items"] if not item["allowed"]]
            if None in waits:
                raise HTTPException(400, f"{tokens} tokens are more than the budget ever allows")
            seconds = max(1, math.ceil(max(waits) / 1000))
            raise HTTPException(429, f"{tokens} tokens exceed the budget", headers={"Retry-After": str(seconds)})
        place = "litellm_metadata" if "litellm_metadata" in data else "metadata"
        data[place] = {**(data.get(place) or {}), "rategate": hold}
        return data

    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        if hold := self.hold_of(kwargs.get("litellm_params") or {}):
            used = int((kwargs.get("standard_logging_object") or {}).get("total_tokens") or 0)
            reply = await self.ask("commit", hold["user"], used, id=hold["id"])
            # No longer held, after a crash of the service or a failure behind the model: it is used all the same.
            if reply["items"][0]["verdict"] in ("unknown", "cancelled"):
                await self.ask("charge", hold["user"], used, once=uuid.uuid4().hex)

    async def async_post_call_failure_hook(self, request_data, original_exception, user_api_key_dict, *_, **__):
        """Cancels once, after all retries and fallbacks; `async_log_failure_event` comes after each of them."""
        if hold := self.hold_of(request_data):
            with contextlib.suppress(httpx.HTTPError):  # It then ends by its time.
                await self.ask("cancel", hold["user"], 0, id=hold["id"])

    @staticmethod
    def hold_of(parameters):
        found = (parameters.get(place) for place in PLACES)
        return next((it["rategate"] for it in found if isinstance(it, dict) and "rategate" in it), None)


limiter = RategateLimiter()
