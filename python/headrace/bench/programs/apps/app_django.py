"""Twenty rows by Django's ORM from an SQLite database in the working folder, which is made on first use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.db import connection, models
from django.http import HttpRequest, JsonResponse
from django.urls import path

DATABASE = Path.cwd() / f"rows-{os.getpid()}.sqlite"

settings.configure(
    DEBUG=False,
    SECRET_KEY="not a secret: a benchmark on loopback",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    DATABASES={
        "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(DATABASE), "CONN_MAX_AGE": None}
    },
    LOGGING_CONFIG=None,
)
django.setup()


class Row(models.Model):
    """A row."""

    name = models.CharField(max_length=40)

    class Meta:
        """Where it is kept."""

        app_label = "bench"


with connection.schema_editor() as editor:
    editor.create_model(Row)
Row.objects.bulk_create(Row(name=f"row {i}") for i in range(1, 21))
connection.close()


def rows(request: HttpRequest) -> JsonResponse:
    """All rows."""
    found: list[dict[str, Any]] = list(Row.objects.order_by("id").values("id", "name"))
    return JsonResponse(found, safe=False)


urlpatterns = [path("rows", rows)]
wsgi = get_wsgi_application()
asgi = get_asgi_application()
