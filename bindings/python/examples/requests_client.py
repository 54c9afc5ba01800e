"""Calls by requests that keep below a limit and follow the server: python requests_client.py URL"""

import sys

import requests

from pyrategate.pace import Pace
from pyrategate.requests import Adapter


def main(url):
    session = requests.Session()
    session.mount(url, Adapter(Pace("20/s", max_wait="1min")))
    return [session.get(url).status_code for _ in range(3)]


if __name__ == "__main__":
    print(main(sys.argv[1]))
