"""Run modules of Tornado's own test suite with Headrace's server in the place of Tornado's.

    python tests/server/tornado_suite.py MODULE...

Each test makes a `tornado.httpserver.HTTPServer`; here that is hosted by the native server, on Headrace's loop.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import unittest
import warnings
from collections.abc import Iterator

import headrace
import tornado.httpserver
import tornado.testing
from headrace.server.config import Config
from headrace.server.worker import Server

#: Tests that look at what is Tornado's own HTTP/1 code's: test -> why it is left out.
SKIPPED = {
    "IncorrectContentLengthTest.test_content_length_too_high": "the words of the error",
    "IncorrectContentLengthTest.test_content_length_too_low": "the words of the error",
}


class Hosted(tornado.httpserver.HTTPServer):
    """A server of Tornado's that does not listen itself."""

    def initialize(self, *args: object, **kwargs: object) -> None:
        super().initialize(*args, **kwargs)
        self.hosts: list[tuple[Server, list[socket.socket]]] = []

    def add_sockets(self, sockets: list[socket.socket]) -> None:
        server = Server(self, sockets, Config(application="", grace=0.05))
        asyncio.get_event_loop().run_until_complete(server.start())
        self.hosts.append((server, sockets))

    def stop(self) -> None:
        """Everything is done in close_all_connections, which tests always call after it."""

    async def close_all_connections(self) -> None:
        while self.hosts:
            server, sockets = self.hosts.pop()
            await server.stop()
            for each in sockets:
                each.close()


def tests_of(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    """All tests of a suite but those that are left out."""
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from tests_of(each)
        elif isinstance(each, unittest.TestCase) and ".".join(each.id().split(".")[-2:]) not in SKIPPED:
            yield each


def main(modules: list[str]) -> int:
    """Run the modules' tests; 0 when none failed."""
    warnings.simplefilter("ignore")
    asyncio.set_event_loop_policy(headrace.EventLoopPolicy())
    tornado.testing.HTTPServer = Hosted
    # As Tornado's own runner does it: its tests watch the log for what they do not expect.
    logging.getLogger("tornado.access").setLevel(logging.CRITICAL)
    suite = unittest.TestSuite(tests_of(unittest.defaultTestLoader.loadTestsFromNames(modules)))
    return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
