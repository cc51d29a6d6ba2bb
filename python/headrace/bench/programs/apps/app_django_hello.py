"""The smallest Django project: one view, no middleware, no database: what it costs is Django's own part."""

from __future__ import annotations

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path

settings.configure(
    DEBUG=False,
    SECRET_KEY="not a secret: a benchmark on loopback",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    LOGGING_CONFIG=None,
)
django.setup()


def hello(request: HttpRequest) -> HttpResponse:
    """Hello."""
    return HttpResponse(b"hello world\n", content_type="text/plain")


urlpatterns = [path("", hello)]
wsgi = get_wsgi_application()
asgi = get_asgi_application()
