"""Calls by aiohttp that keep below a limit and follow the server: python aiohttp_client.py URL"""

import asyncio
import sys

import aiohttp

from pyrategate.aiohttp import Middleware


async def fetch(url):
    async with aiohttp.ClientSession(middlewares=(Middleware("20/s"),)) as session:

        async def one():
            async with session.get(url) as response:
                return response.status

        return await asyncio.gather(one(), one(), one())


def main(url):
    return asyncio.run(fetch(url))


if __name__ == "__main__":
    print(main(sys.argv[1]))
