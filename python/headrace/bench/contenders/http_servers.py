"""HTTP servers that host an ASGI or WSGI application named ``MODULE:ATTR``."""

from collections.abc import Callable, Sequence

from headrace.bench.contenders.loops import UVLOOP_022
from headrace.bench.model import Contender, Environment, Launch, Package

Hosting = Callable[[Launch], Sequence[str]]

#: uvicorn on the older uvloop: it sends head and body in one system call there.
UVICORN_022 = Environment(
    "uvicorn-uvloop-0.22", (*UVLOOP_022.packages, "uvicorn", "websockets", "starlette", "fastapi")
)


def headrace(interface: str, *options: str) -> Hosting:
    """The command line of ``headrace serve``."""

    def words(launch: Launch) -> Sequence[str]:
        workers = ["--workers", str(launch.workers)] if launch.workers > 1 else []
        bind = ["--bind", launch.endpoint.bind, "--interface", interface]
        return [launch.python, "-m", "headrace", "serve", launch.app, *bind, *workers, *options]

    return words


def uvicorn(http: str, loop: str = "uvloop", *options: str) -> Hosting:
    """The command line of uvicorn with a parser and a loop."""

    def words(launch: Launch) -> Sequence[str]:
        common = ["--host", launch.endpoint.host, "--port", str(launch.endpoint.port), "--no-access-log"]
        workers = ["--workers", str(launch.workers)] if launch.workers > 1 else []
        kind = ["--http", http, "--loop", loop, "--log-level", "warning"]
        return [launch.python, "-m", "uvicorn", launch.app, *common, *kind, *workers, *options]

    return words


def granian(interface: str, *options: str) -> Hosting:
    """The command line of granian."""

    def words(launch: Launch) -> Sequence[str]:
        where = ["--host", launch.endpoint.host, "--port", str(launch.endpoint.port)]
        kind = ["--interface", interface, "--workers", str(launch.workers), "--log-level", "warning"]
        return [launch.python, "-m", "granian", launch.app, *where, *kind, *options]

    return words


def gunicorn(worker: str, *options: str) -> Hosting:
    """The command line of gunicorn with a worker class."""

    def words(launch: Launch) -> Sequence[str]:
        kind = ["--worker-class", worker, "--workers", str(launch.workers), "--log-level", "warning"]
        # Its control socket would be written into the user's home folder.
        quiet = ["--no-control-socket", "--keep-alive", "30"]
        bind = ["--bind", launch.endpoint.bind]
        return [launch.python, "-m", "gunicorn", launch.app, *bind, *kind, *quiet, *options]

    return words


def fastpysgi(interface: str) -> Hosting:
    """fastpysgi has no command line for a bind and an interface: a small program calls it."""

    def words(launch: Launch) -> Sequence[str]:
        script = "fastpysgi_serve.py"
        return Launch(
            launch.python, launch.endpoint, (script, launch.app, interface), launch.folder
        ).program()

    return words


#: gunicorn dropped eventlet with 26.0, and 25.3's eventlet workers outlive their master on 3.13.
EVENTLET = Environment(
    "gunicorn-eventlet", ("gunicorn==25.3.0", "eventlet", "flask", "flask-redis"), python="3.12"
)
HEADRACE = Package("headrace")
UVICORN = Package("uvicorn")
HTTPTOOLS = Package("httptools")
UVLOOP = Package("uvloop")
GRANIAN = Package("granian")
GUNICORN = Package("gunicorn")

CONTENDERS = [
    Contender(
        "headrace-asgi",
        "headrace serve, ASGI",
        {"asgi": headrace("asgi"), "asgi.websocket": headrace("asgi")},
        (HEADRACE,),
    ),
    Contender(
        "headrace-wsgi", "headrace serve, WSGI in the I/O thread", {"wsgi": headrace("wsgi")}, (HEADRACE,)
    ),
    Contender(
        "headrace-wsgi-threads",
        "headrace serve, WSGI in eight threads",
        {"wsgi": headrace("wsgi", "--concurrency", "threads", "--threads", "8")},
        (HEADRACE,),
    ),
    Contender(
        "headrace-wsgi-gevent",
        "headrace serve, WSGI in greenlets",
        {"wsgi": headrace("wsgi", "--concurrency", "gevent")},
        (HEADRACE, Package("gevent")),
        only=("flask-redis", "flask-hello"),
    ),
    Contender(
        "uvicorn",
        "uvicorn, httptools on uvloop",
        {
            "asgi": uvicorn("httptools"),
            "asgi.websocket": uvicorn("httptools", "uvloop", "--ws", "websockets"),
        },
        (UVICORN, HTTPTOOLS, UVLOOP),
    ),
    Contender(
        "uvicorn-uvloop-0.22",
        "uvicorn, httptools on uvloop 0.22.1",
        {
            "asgi": uvicorn("httptools"),
            "asgi.websocket": uvicorn("httptools", "uvloop", "--ws", "websockets"),
        },
        (UVICORN, HTTPTOOLS, UVLOOP),
        UVICORN_022,
        only=("http-hello", "http-sizes", "http-post", "http-stream", "http-pipelined", "websocket-echo"),
    ),
    Contender(
        "uvicorn-h11",
        "uvicorn, h11 on uvloop",
        {"asgi": uvicorn("h11")},
        (UVICORN, Package("h11"), UVLOOP),
        minor=True,
    ),
    Contender(
        "uvicorn-headrace",
        "uvicorn, httptools on headrace's loop",
        {"asgi": uvicorn("httptools", "headrace:new_event_loop")},
        (UVICORN, HTTPTOOLS),
        only=("http-hello", "starlette-json", "fastapi-validate"),
        minor=True,
    ),
    Contender(
        "granian-asgi",
        "granian, ASGI",
        {"asgi": granian("asgi"), "asgi.websocket": granian("asgi", "--ws")},
        (GRANIAN,),
    ),
    Contender("granian-wsgi", "granian, WSGI", {"wsgi": granian("wsgi")}, (GRANIAN,)),
    Contender(
        "granian-wsgi-threads",
        "granian, WSGI in eight threads",
        {"wsgi": granian("wsgi", "--blocking-threads", "8")},
        (GRANIAN,),
    ),
    Contender("fastpysgi-asgi", "fastpysgi, ASGI", {"asgi": fastpysgi("asgi")}, (Package("fastpysgi"),)),
    Contender("fastpysgi-wsgi", "fastpysgi, WSGI", {"wsgi": fastpysgi("wsgi")}, (Package("fastpysgi"),)),
    Contender("gunicorn-sync", "gunicorn, sync worker", {"wsgi": gunicorn("sync")}, (GUNICORN,)),
    Contender(
        "gunicorn-gthread",
        "gunicorn, gthread worker, eight threads",
        {"wsgi": gunicorn("gthread", "--threads", "8")},
        (GUNICORN,),
    ),
    Contender(
        "gunicorn-gevent",
        "gunicorn, gevent worker",
        {"wsgi": gunicorn("gevent")},
        (GUNICORN, Package("gevent"), Package("packaging")),
    ),
    Contender(
        "gunicorn-eventlet",
        "gunicorn 25.3, eventlet worker, on Python 3.12",
        {"wsgi": gunicorn("eventlet")},
        (GUNICORN,),
        EVENTLET,
        only=("flask-redis", "flask-hello"),
    ),
    Contender(
        "gunicorn-tornado",
        "gunicorn, tornado worker",
        {"wsgi": gunicorn("tornado")},
        (GUNICORN, Package("tornado")),
        only=("flask-redis", "flask-hello"),
    ),
]
