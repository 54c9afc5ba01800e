"""A service of Flask whose clients have limits: flask --app flask_app run"""

from flask import Flask

from pyrategate.flask import Limits

app = Flask(__name__)
limits = Limits("100/minute", app=app)


@app.get("/search")
@limits.limit("5/minute")
def search():
    return "found\n"


@app.get("/health")
@limits.exempt
def health():
    return "well\n"
