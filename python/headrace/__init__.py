"""Headrace: a native runtime for Python network services."""

from headrace._native import build_info as build_info

__version__: str = build_info()["version"]
