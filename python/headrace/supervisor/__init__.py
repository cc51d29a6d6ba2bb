"""The master process: it forks workers that inherit its listening sockets, replaces those that die, ends them.

It stays small, has no threads, and imports neither the loop, the native server nor the application: what it
forks from must be safe to fork.
"""

from headrace.supervisor.prefork import Prefork, Worker
from headrace.supervisor.reload import Reloading

__all__ = ["Prefork", "Reloading", "Worker"]
