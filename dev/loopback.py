"""What Airflow's own processes take from here: they say and serve nothing beyond this machine."""

from __future__ import annotations

import socket
import sys
from importlib.metadata import version

HOST = "127.0.0.1"


def hostname() -> str:
    """Return the name by which Airflow's processes find each other, without asking a name server."""
    return HOST


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port


def serve_logs(port: int) -> None:
    """Serve the tasks' logs. Airflow's own scheduler and triggerer would serve them to the whole network."""
    import uvicorn

    if version("apache-airflow").startswith("3.0."):
        uvicorn.run("airflow.utils.serve_logs:create_app", factory=True, interface="wsgi", host=HOST, port=port)
    else:
        uvicorn.run("airflow.utils.serve_logs.log_server:get_app", factory=True, host=HOST, port=port)


if __name__ == "__main__":
    serve_logs(int(sys.argv[1]))
