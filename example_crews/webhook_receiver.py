"""Receive the call of a crew that waits for human input, and post a link to its task in a chat."""

import hmac
import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote
from urllib.request import Request, urlopen

AIRFLOW, CHAT = os.environ["AIRFLOW_URL"], os.environ["CHAT_URL"]
EXPECTED = f"Bearer {os.environ['WEBHOOK_SECRET']}".encode()
LARGEST_BODY = 65_536


class Receiver(BaseHTTPRequestHandler):
    timeout = 10  # seconds for a read

    def do_POST(self):
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > LARGEST_BODY:
            self.send_error(413)
            return
        received = self.rfile.read(int(length))
        if not hmac.compare_digest(self.headers.get("Authorization", "").encode(), EXPECTED):
            self.send_error(401)
            return
        call = json.loads(received)
        task = call["meta"]["airflow"]
        run = f"{AIRFLOW}/dags/{task['dag_id']}/runs/{quote(task['run_id'])}"
        text = f"Execution {call['kickoff_id']} waits for human input: "
        text += f"{run}/tasks/{task['task_id']}\n{call['task_output']}"
        body = json.dumps({"text": text}).encode()
        headers = {"Content-Type": "application/json"}
        urlopen(Request(CHAT, body, headers), timeout=10).close()
        self.send_response(204)
        self.end_headers()


port = int(os.environ["PORT"])
ThreadingHTTPServer(("127.0.0.1", port), Receiver).serve_forever()
