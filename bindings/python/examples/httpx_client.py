"""Calls by httpx that keep below a limit and follow the server: python httpx_client.py URL"""

import sys

import httpx

from pyrategate.httpx import Transport


def main(url):
    with httpx.Client(transport=Transport("20/s")) as client:
        # A 429 comes back as it is; the next call waits as long as the server asks.
        return [client.get(url).status_code for _ in range(3)]


if __name__ == "__main__":
    print(main(sys.argv[1]))
