"""``ws://``, ``wss://`` and ``https://`` against servers of the standard library."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

Load = Callable[..., dict[str, Any]]
Serve = Callable[..., AbstractContextManager[str]]


@pytest.mark.parametrize("size", ["1", "256", "1000", "100000"])
def test_messages_come_back(serve: Serve, websocket_echo: Any, load: Load, size: str) -> None:
    with serve(websocket_echo) as where:
        result = load(f"ws://{where}/", "-c", "3", "-d", "0.3", "--body-size", size)
        assert result["protocol"] == "ws" and result["requests"] > 5
        assert not any(result["errors"].values())
        piped = load(f"ws://{where}/", "-c", "2", "-d", "0.3", "--body-size", size, "--pipeline", "4")
        assert piped["requests"] > 5 and not any(piped["errors"].values())


def test_binary_messages_and_another_answer(
    serve: Serve, websocket_echo: Any, load: Load, tmp_path: Path
) -> None:
    class Upper(websocket_echo):  # type: ignore[misc]
        @staticmethod
        def alter(data: bytes) -> bytes:
            return data.upper()

    message, answer = tmp_path / "message", tmp_path / "answer"
    message.write_bytes(b"abc\xff")
    answer.write_bytes(b"ABC\xff")
    with serve(Upper) as where:
        words = [f"ws://{where}/", "-c", "1", "-d", "0.2", "--body", str(message)]
        assert load(*words, expect=1)["errors"]["body"] > 0
        assert load(*words, "--expect-body", str(answer))["requests"] > 5


def test_a_refused_upgrade_is_named(web: str, load: Load) -> None:
    result = load(web.replace("http://", "ws://") + "/", "-c", "2", "-d", "0.3", expect=1)
    assert result["errors"]["status"] > 0 and "200 instead of 101" in result["first_error"]


def test_https_with_and_without_verifying(
    serve: Serve, answers: Any, load: Load, certificate: tuple[ssl.SSLContext, Path]
) -> None:
    context, authority = certificate
    with serve(answers, tls=context) as where:
        result = load(f"https://{where}/", "-c", "4", "-d", "0.5")
        assert result["requests"] > 20 and not any(result["errors"].values())
        assert result["status"] == {"200": result["requests"]}
        verified = load(f"https://{where}/chunked", "-c", "2", "-d", "0.3", "--cacert", str(authority))
        assert verified["requests"] > 5 and not any(verified["errors"].values())


def test_a_certificate_of_another_authority_is_refused(
    serve: Serve,
    answers: Any,
    load: Load,
    certificate: tuple[ssl.SSLContext, Path],
    tmp_path: Path,
) -> None:
    context, _ = certificate
    other = tmp_path / "other.pem"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=other"
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(other)]
    subprocess.run([*words.split(), *files], check=True, capture_output=True, timeout=60)
    with serve(answers, tls=context) as where:
        result = load(f"https://{where}/", "-c", "1", "-d", "0.3", "--cacert", str(other), expect=1)
        assert result["requests"] == 0 and "certificate" in result["first_error"]


def test_large_messages_over_wss(
    serve: Serve, websocket_echo: Any, load: Load, certificate: tuple[ssl.SSLContext, Path]
) -> None:
    context, _ = certificate
    with serve(websocket_echo, tls=context) as where:
        result = load(f"wss://{where}/", "-c", "2", "-d", "0.5", "--body-size", "300000")
        assert result["requests"] > 3 and not any(result["errors"].values())


def test_tls_to_a_server_without_it_is_an_error(web: str, load: Load) -> None:
    result = load(web.replace("http:", "https:") + "/", "-c", "1", "-d", "0.3", expect=1)
    assert result["requests"] == 0 and sum(result["errors"].values()) > 0


def test_echo_over_tls(serve: Serve, echo: Any, load: Load, certificate: tuple[ssl.SSLContext, Path]) -> None:
    context, authority = certificate
    with serve(echo, tls=context) as where:
        for size in (1, 100_000):
            result = load(f"tls://{where}?size={size}", "-c", "3", "-d", "0.3", "--cacert", str(authority))
            assert result["protocol"] == "tls"
            assert result["requests"] > 5 and not any(result["errors"].values())
