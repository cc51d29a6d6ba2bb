"""The application object from "module:attribute", and which interface it speaks."""

from __future__ import annotations

import functools
import importlib
import inspect
import operator
import os
import sys
from typing import Any, Literal

from headrace.cli import UsageError

#: Attribute that is tried where only a module is named.
DEFAULT_ATTRIBUTES = ("app", "application")


def load(reference: str, *, factory: bool = False) -> Any:
    """Import ``module:attribute``; the current directory is searched first.

    :param factory: call the attribute, without arguments, for the application.
    :raises UsageError: when the module or attribute is not there. An exception that the module itself
        raises is not hidden.
    """
    module_name, _, attribute = reference.partition(":")
    if not module_name:
        raise UsageError(f"cannot load {reference!r}: use MODULE:ATTRIBUTE, as in main:app")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # Only the module that was asked for: one that *it* lacks deserves its traceback.
        if error.name and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise UsageError(
                f"cannot load {reference!r}: there is no module {error.name!r} here (searched from {os.getcwd()})"
            ) from error
        raise
    found: Any
    if attribute:
        try:
            found = operator.attrgetter(attribute)(module)
        except AttributeError as error:
            raise UsageError(
                f"cannot load {reference!r}: module {module_name!r} has no attribute {attribute!r}"
            ) from error
    else:
        found = next((getattr(module, name) for name in DEFAULT_ATTRIBUTES if hasattr(module, name)), None)
        if found is None:
            raise UsageError(
                f"cannot load {reference!r}: say which attribute of module {module_name!r} it is, "
                f"as in {module_name}:app"
            )
    if factory:
        if not callable(found):
            raise UsageError(f"cannot load {reference!r}: --factory needs a function")
        found = found()
    if not callable(found) and not is_tornado(found):
        raise UsageError(f"cannot load {reference!r}: {type(found).__name__} object is not callable")
    return found


def is_tornado(application: Any) -> bool:
    """Whether it is a delegate of Tornado's; one exists only where Tornado was imported."""
    httputil = sys.modules.get("tornado.httputil")
    return httputil is not None and isinstance(application, httputil.HTTPServerConnectionDelegate)


def interface(application: Any) -> Literal["asgi", "wsgi", "tornado"]:
    """Which interface an application speaks, from what it looks like.

    ASGI applications are coroutine functions, objects whose ``__call__`` is one, or callables of exactly
    three parameters; what starts requests as Tornado's servers do (``tornado.web.Application``, a router, an
    ``HTTPServer``) is Tornado's; everything else is WSGI.
    """
    if is_tornado(application):
        return "tornado"
    call = application
    while isinstance(call, functools.partial):
        call = call.func
    if not inspect.isfunction(call) and not inspect.ismethod(call) and not inspect.isclass(call):
        call = type(call).__call__
        call = functools.partial(call, application)
    plain = call.func if isinstance(call, functools.partial) else call
    if inspect.iscoroutinefunction(plain):
        return "asgi"
    try:
        parameters = [
            parameter
            for parameter in inspect.signature(call).parameters.values()
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
            and parameter.default is parameter.empty
        ]
    except (TypeError, ValueError):
        return "wsgi"
    return "asgi" if len(parameters) == 3 else "wsgi"
