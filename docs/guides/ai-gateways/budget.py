"""A token budget for calls of language models, kept by rategate. Python's standard library is all it needs.

    with Budget().hold("alice", estimate=800) as hold:    # raises Denied
        reply = call_the_model()
        hold.commit(reply.usage.total_tokens)
"""

import http.client
import itertools
import json
import logging
import math
import os
import queue
import secrets
import sys
import threading
import time
import urllib.request
import uuid
from concurrent.futures import ThreadPoolExecutor


log = logging.getLogger("budget")


class Denied(Exception):
    """The estimate does not fit. `retry_after` is a number of seconds, or None if no wait helps."""

    def __init__(self, retry_after):
        self.retry_after = retry_after


class Refused(Exception):
    """The service refuses the request, and would again."""


class Budget:
    def __init__(self, server=os.environ.get("RATEGATE_SERVER", "http://127.0.0.1:8080"), ttl="2min"):
        self.address, self.ttl = server + "/v1/check", ttl
        # Ends of calls that wait for a service that cannot be reached. They are lost with the program.
        self.pending, self.dropped = queue.Queue(10_000), 0
        threading.Thread(target=self.end_pending, daemon=True).start()

    def hold(self, user, estimate):
        return Hold(self, user, estimate)

    def ask(self, verb, user, tokens, tries=3, **more):
        item = {"rule": "calls", "key": user, "permits": tokens}
        body = json.dumps({"verb": verb, "items": [item], **more}).encode()
        for attempt in itertools.count(1):
            try:
                with urllib.request.urlopen(self.address, body, timeout=5) as answer:
                    reply = json.load(answer)
                if any(item["verdict"] == "store_unavailable" for item in reply["items"]):
                    raise ConnectionError("the store of the counters does not reply")
                return reply
            except (OSError, http.client.HTTPException) as error:
                if getattr(error, "code", 500) < 500:
                    raise Refused(error.read().decode()) from error
                if attempt == tries:
                    raise
                # A lost answer: under its id the same call changes nothing.
                time.sleep(min(0.1 * 2 ** min(attempt - 1, 10), 10))

    def end(self, verb, hold, tokens, tries=3):
        try:
            reply = self.ask(verb, hold.user, tokens, tries, id=hold.id)
            if verb == "commit" and any(item["verdict"] == "unknown" for item in reply["items"]):
                # The service has lost it: see "When the service restarts". The charge has an id of its own.
                once = uuid.uuid5(uuid.UUID(hold.id), "charge").hex
                self.ask("charge", hold.user, tokens, tries, once=once)
        except Refused as refused:
            log.error("%s of %d tokens of %s: %s", verb, tokens, hold.user, refused)

    def end_pending(self):
        while True:
            self.end(*self.pending.get(), tries=None)

    def settle(self, verb, hold, tokens):
        """Commits or cancels, in the background if need be: a call's reply or exception comes through."""
        try:
            self.end(verb, hold, tokens)
        except (OSError, http.client.HTTPException) as error:
            try:
                self.pending.put_nowait((verb, hold, tokens))
                log.warning("%s of %d tokens of %s waits: %s", verb, tokens, hold.user, error)
            except queue.Full:
                self.dropped += 1
                log.error("%s of %d tokens of %s dropped (%d so far)", verb, tokens, hold.user, self.dropped)


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
        self.budget.settle("commit", self, used)

    def __exit__(self, *_):
        if not self.is_committed:
            self.budget.settle("cancel", self, 0)


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
