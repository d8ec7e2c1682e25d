"""What Airflow's own processes take from here: they say and serve nothing beyond this machine."""

from __future__ import annotations

import os
import random
import socket

HOST = "127.0.0.1"
# All of these are this machine, so that a process can have an address of its own.
NETWORK = "127.0.0.0/8"
ADDRESS = "AIRFLOW_DEV_ADDRESS"
# Linux takes the ports that nobody has chosen from 32768 on.
_PORTS = (20_000, 32_000)


def hostname() -> str:
    """Return the name by which Airflow's processes find each other, without asking a name server."""
    return os.environ.get(ADDRESS, HOST)


def free_port() -> int:
    """Return a port that nobody listens on, and that the system gives to no connection and no other server."""
    while not is_free(port := random.SystemRandom().randrange(*_PORTS)):
        pass
    return port


def is_free(port: int) -> bool:
    """Tell whether a server could listen on a port."""
    with socket.socket() as probe:
        # As servers do. Without it, a connection that was closed a minute ago would count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def serve_logs() -> None:
    """Serve the tasks' logs. Airflow's own scheduler and triggerer would serve them to the whole network."""
    import uvicorn

    host, port = hostname(), int(os.environ["AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT"])
    uvicorn.run("airflow.utils.serve_logs.log_server:get_app", factory=True, host=host, port=port)


if __name__ == "__main__":
    serve_logs()
