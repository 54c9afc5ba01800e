"""The guide's budget.py against a service, 50 threads at once: `token_budget.py FOLDER ADDRESS`. Ends with a line `ok`."""

import http.client
import random
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
from budget import Budget, Denied, Refused  # noqa: E402

LIMIT, THREADS, ESTIMATE = 1000, 50, 90
budget = Budget(sys.argv[2])


def status(user):
    tokens, requests = budget.ask("peek", user, 0)["items"][0]["limits"]
    return tokens["remaining"], requests["remaining"]


def all_at_once():
    """Every call is decided before one ends, so what is held is at its highest."""
    decided = threading.Barrier(THREADS, timeout=30)

    def call(seed):
        used = random.Random(seed).randint(1, ESTIMATE)
        try:
            with budget.hold("ann", ESTIMATE) as hold:
                decided.wait()
                if seed % 5 == 0:
                    raise ConnectionError
                hold.commit(used)
                return used
        except Denied as denied:
            decided.wait()
            assert 1 <= denied.retry_after <= 120, denied.retry_after
            return None
        except ConnectionError:
            return 0

    with ThreadPoolExecutor(THREADS) as pool:
        used = [tokens for tokens in pool.map(call, range(THREADS)) if tokens is not None]
    assert len(used) == LIMIT // ESTIMATE, used
    begun = sum(tokens > 0 for tokens in used)
    assert status("ann") == (LIMIT - sum(used), 60 - begun), (status("ann"), used)


def one_after_another():
    """Threads that call until they are denied: none is admitted beyond the last token."""
    held, highest, used, lock = 0, 0, 0, threading.Lock()

    def call(seed):
        nonlocal held, highest, used
        numbers = random.Random(seed)
        try:
            while True:
                with budget.hold("bob", ESTIMATE) as hold:
                    # What ended was counted out before its commit, so `held` is never too high.
                    with lock:
                        held += ESTIMATE
                        highest = max(highest, held + used)
                    tokens = numbers.randint(30, ESTIMATE)
                    with lock:
                        held -= ESTIMATE
                        used += tokens
                    hold.commit(tokens)
        except Denied:
            return

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(call, range(THREADS)))
    assert highest <= LIMIT, highest
    assert LIMIT - ESTIMATE < used <= LIMIT, used
    assert status("bob")[0] == LIMIT - used, (status("bob"), used)


def lost_answers():
    """The service decides, and its answer is lost: each call is counted once all the same."""
    real, lost = urllib.request.urlopen, set()

    def losing(address, body, timeout):
        reply = real(address, body, timeout=timeout)
        if body in lost:
            return reply
        lost.add(body)
        reply.close()
        raise http.client.IncompleteRead(b"")

    urllib.request.urlopen = losing
    with budget.hold("eve", 300) as hold:
        hold.commit(175)
    with budget.hold("eve", 300):
        pass
    urllib.request.urlopen = real
    assert len(lost) == 4
    assert status("eve") == (LIMIT - 175, 59), status("eve")


def restarted():
    """The service knows the reservation no more: what was used is charged beside what is held."""
    with budget.hold("joe", 300) as hold:
        hold.id = "0" * 32
        hold.commit(175)
    assert status("joe") == (LIMIT - 300 - 175, 58), status("joe")


def away():
    """The service cannot be reached as calls end: replies and exceptions come through, and all is settled later."""
    real, failures = urllib.request.urlopen, 0

    def failing(address, body, timeout):
        nonlocal failures
        failures += 1
        if failures % 2:
            raise urllib.error.URLError("connection refused")
        raise urllib.error.HTTPError(address, 502, "Bad Gateway", None, None)

    with budget.hold("lea", 300) as hold:
        urllib.request.urlopen = failing
        hold.commit(175)
        reply = "paid"
    assert reply == "paid"
    deadline = time.monotonic() + 30
    while failures < 5 and time.monotonic() < deadline:
        time.sleep(0.05)
    urllib.request.urlopen = real
    try:
        with budget.hold("lea", 300):
            urllib.request.urlopen = failing
            raise ValueError("the model failed")
    except ValueError as error:
        assert error.__context__ is None, error.__context__
    finally:
        urllib.request.urlopen = real
    deadline = time.monotonic() + 30
    while status("lea") != (LIMIT - 175, 59) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert status("lea") == (LIMIT - 175, 59), status("lea")
    assert failures >= 8, failures


def refused():
    """What the service refuses is not asked again, and hides nothing."""
    with budget.hold("max", 300) as hold:
        hold.id = "no id"
        hold.commit(175)
    assert budget.pending.empty()
    try:
        budget.ask("peek", "max", -1)
    except Refused as refusal:
        assert "permits" in str(refusal), refusal
    else:
        raise AssertionError("a negative number of permits")


def never():
    try:
        with budget.hold("kim", LIMIT + 1):
            raise AssertionError("more than the limit")
    except Denied as denied:
        assert denied.retry_after is None


all_at_once()
one_after_another()
lost_answers()
restarted()
away()
refused()
never()
print("ok")
