"""A token budget for calls of language models, kept by rategate. Python's standard library is all it needs.

    with Budget().hold("alice", estimate=800) as hold:    # raises Denied
        reply = call_the_model()
        hold.commit(reply.usage.total_tokens)
"""

import http.client
import json
import math
import os
import secrets
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from concurrent.futures import ThreadPoolExecutor


class Denied(Exception):
    """The estimate does not fit. `retry_after` is a number of seconds, or None if no wait helps."""

    def __init__(self, retry_after):
        self.retry_after = retry_after


class Budget:
    def __init__(self, server=os.environ.get("RATEGATE_SERVER", "http://127.0.0.1:8080"), ttl="2min"):
        self.address, self.ttl = server + "/v1/check", ttl

    def hold(self, user, estimate):
        return Hold(self, user, estimate)

    def ask(self, verb, user, tokens, **more):
        item = {"rule": "calls", "key": user, "permits": tokens}
        body = json.dumps({"verb": verb, "items": [item], **more}).encode()
        for attempt in range(3):
            try:
                with urllib.request.urlopen(self.address, body, timeout=5) as answer:
                    reply = json.load(answer)
                if any(item["verdict"] == "store_unavailable" for item in reply["items"]):
                    raise ConnectionError("the store of the counters does not reply")
                return reply
            except urllib.error.HTTPError:
                raise  # The service refuses the request, and would again.
            except (OSError, http.client.HTTPException):
                if attempt == 2:
                    raise
                time.sleep(0.1)  # A lost answer: under its id the same call changes nothing.


class Hold:
    def __init__(self, budget, user, estimate):
        self.budget, self.user, self.estimate = budget, user, estimate
        self.id, self.is_committed = secrets.token_hex(16), False

    def __enter__(self):
        reply = self.budget.ask("reserve", self.user, self.estimate, id=self.id, ttl=self.budget.ttl)
        if not reply["allowed"]:
            waits = [item["retry_after_ms"] for item in reply["items"] if not item["allowed"]]
            raise Denied(None if None in waits else max(1, math.ceil(max(waits) / 1000)))
        return self

    def commit(self, used):
        self.is_committed = True  # Even if no answer comes: a cancellation might win over it.
        reply = self.budget.ask("commit", self.user, used, id=self.id)
        if any(item["verdict"] == "unknown" for item in reply["items"]):
            # The service has lost it: see "When the service restarts". The charge has an id of its own.
            self.budget.ask("charge", self.user, used, once=uuid.uuid5(uuid.UUID(self.id), "charge").hex)

    def __exit__(self, *_):
        if not self.is_committed:
            self.budget.ask("cancel", self.user, 0, id=self.id)


if __name__ == "__main__":
    # Five calls at once. Each holds 300 tokens and uses 175, and none ends before all have begun.
    decided = threading.Barrier(5, timeout=30)

    def call(user):
        try:
            with Budget().hold(user, estimate=300) as hold:
                decided.wait()
                hold.commit(175)
                return "held 300, used 175"
        except Denied as denied:
            decided.wait()
            return f"denied for {math.ceil(denied.retry_after / 60)} min at most"

    with ThreadPoolExecutor(5) as pool:
        print(*sorted(pool.map(call, 5 * sys.argv[1:2]), reverse=True), sep="\n")
