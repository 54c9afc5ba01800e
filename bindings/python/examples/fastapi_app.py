"""A service whose clients have limits: uvicorn fastapi_app:app --no-proxy-headers"""

from fastapi import Depends, FastAPI

from pyrategate import keys
from pyrategate.asgi import Limits

# The proxies in these networks name their clients. Any other peer is the client itself.
limits = Limits("100/minute", key=keys.client(networks=["10.0.0.0/8"]))
app = FastAPI()
app.add_middleware(limits.middleware)


@app.get("/search")
@limits.limit("5/minute")
async def search(text: str = ""):
    return {"found": text}


@app.get("/report", dependencies=[Depends(limits.depends("1 per 10 seconds"))])
def report():
    return {"refused": limits.refused}
