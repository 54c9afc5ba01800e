"""Calls of a model below its limits of requests and tokens: python openai_client.py URL"""

import sys

from openai import OpenAI

from pyrategate.openai import HttpClient


def main(url):
    client = OpenAI(
        api_key="your key",
        base_url=url,
        http_client=HttpClient("500/minute", tokens="90000/minute"),
    )
    reply = client.chat.completions.create(
        model="a model", messages=[{"role": "user", "content": "Say hello."}], max_tokens=10
    )
    return reply.choices[0].message.content


if __name__ == "__main__":
    print(main(sys.argv[1]))
