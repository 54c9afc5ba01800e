"""A chat model of LangChain below a limit of requests: python langchain_model.py"""

from langchain_core.language_models import FakeListChatModel

from pyrategate.langchain import RateLimiter


def main():
    # Any chat model takes the same argument.
    model = FakeListChatModel(responses=["hello"], rate_limiter=RateLimiter("20/s burst 1"))
    return [reply.content for reply in model.batch(["hi", "hi", "hi"])]


if __name__ == "__main__":
    print(main())
