"""Says, as JSON, what an application named ``MODULE:ATTR`` is: its interface and its framework.

    app_kind.py MODULE:ATTR

The bench itself never imports a user's application.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from typing import Any

FRAMEWORKS = ("fastapi", "starlette", "flask", "django", "tornado", "litestar", "quart", "falcon")


def interface(app: Any) -> str:
    """``asgi``, ``wsgi`` or ``tornado``."""
    if any(kind.__module__.startswith("tornado.") for kind in type(app).__mro__):
        return "tornado"
    call = app if inspect.isfunction(app) or inspect.ismethod(app) else type(app).__call__
    if inspect.iscoroutinefunction(call):
        return "asgi"
    return "wsgi"


def framework(app: Any) -> str:
    """The framework whose class the application is of; empty for none that is known."""
    roots = [kind.__module__.partition(".")[0] for kind in type(app).__mro__]
    return next((root for root in roots if root in FRAMEWORKS), "")


def main() -> int:
    """Run the program."""
    module, _, name = sys.argv[1].partition(":")
    sys.path.insert(0, ".")
    try:
        app = importlib.import_module(module)
        for part in name.split("."):
            app = getattr(app, part)
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        return 0
    print(json.dumps({"interface": interface(app), "framework": framework(app)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
