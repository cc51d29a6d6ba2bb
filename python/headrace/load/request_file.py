"""Files that describe several requests: JSON (a list of objects) or TOML (``[[request]]`` tables).

Keys of a request, all optional: ``name``, ``method``, ``path``, ``headers`` (a table), ``body`` (text),
``body_file`` (beside the file), ``body_size``, ``weight`` (1), ``expect_status``, ``expect_body_length``,
``expect_body`` (text), ``any_length``.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.cli import UsageError

#: What a request may say, and what kind of value it is.
KEYS: dict[str, type] = {
    "name": str,
    "method": str,
    "path": str,
    "headers": dict,
    "body": str,
    "body_file": str,
    "body_size": int,
    "weight": int,
    "expect_status": int,
    "expect_body_length": int,
    "expect_body": str,
    "any_length": bool,
}
#: How the kinds of values are called in messages.
KINDS = {str: "text", int: "a number that is not negative", dict: "a table", bool: "true or false"}
#: The ways to give a body: at most one.
BODIES = ("body", "body_file", "body_size")
#: Numbers go no higher: what the native part takes for each of them.
HIGHEST = {"weight": 1_000_000, "expect_status": 999}


def read_requests(path: Path, defaults: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Read a file of requests.

    :param path: the file; its name ends in ``.toml`` or it is JSON.
    :param defaults: what holds for each request that does not say otherwise, as the native part takes it.
    :returns: the requests, as ``headrace._native.LoadRun`` takes them.
    :raises UsageError: one line that says where the mistake is.
    """
    try:
        text = path.read_text(encoding="utf-8")
        found: Any = tomllib.loads(text).get("request") if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be understood: {str(error).splitlines()[0]}") from None
    if not isinstance(found, list) or not found:
        wanted = "[[request]] tables" if path.suffix == ".toml" else "a list of objects"
        raise UsageError(f"{path} must hold {wanted}, one at least")
    return [
        one_request(item, f"{path}, request {number}", path.parent, defaults)
        for number, item in enumerate(found, 1)
    ]


def one_request(item: Any, where: str, folder: Path, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Check one request and put it into the native part's form."""
    if not isinstance(item, dict):
        raise UsageError(f"{where}: it must be a table of keys and values")
    for key, value in item.items():
        kind = KEYS.get(key)
        if kind is None:
            near = difflib.get_close_matches(key, KEYS, 1)
            raise UsageError(f"{where}: there is no key {key!r}" + (f", but {near[0]!r}" if near else ""))
        good = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
        if not good or (kind is int and not 0 <= value <= HIGHEST.get(key, 2**40)):
            raise UsageError(f"{where}: {key} must be {KINDS[kind]}")
    if sum(key in item for key in BODIES) > 1:
        raise UsageError(f"{where}: give only one of {', '.join(BODIES)}")
    request = dict(defaults) | {key: value for key, value in item.items() if key not in ("headers", *BODIES)}
    if "headers" in item:
        own = {name.lower() for name in item["headers"]}
        inherited = [line for line in defaults["headers"] if line.partition(":")[0].lower() not in own]
        request["headers"] = inherited + [f"{name}: {value}" for name, value in item["headers"].items()]
    if any(key in item for key in BODIES):
        request |= {"body": None, "body_size": item.get("body_size")}
    if "body" in item:
        request["body"] = item["body"].encode()
    if "body_file" in item:
        try:
            request["body"] = (folder / item["body_file"]).read_bytes()
        except OSError as error:
            raise UsageError(f"{where}: cannot read {item['body_file']}: {error.strerror}") from None
    if "expect_body" in item:
        request["expect_body"] = item["expect_body"].encode()
    return request
