"""A service of Django in one file whose clients have limits: gunicorn django_app:app"""

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import path

from pyrategate.django import Limits

limits = Limits("100/minute")
middleware = limits.middleware


@limits.limit("5/minute")
def search(request):
    return HttpResponse("found\n")


urlpatterns = [path("search", search)]

if not settings.configured:
    settings.configure(
        ALLOWED_HOSTS=["*"],
        MIDDLEWARE=[f"{__name__}.middleware"],
        ROOT_URLCONF=__name__,
        SECRET_KEY="one of your own",
    )
    django.setup()
app = get_wsgi_application()
