"""The local service as a plain HTTP client sees it when nothing goes wrong."""

import http.client
import json
import socket
import threading
from urllib.parse import quote, unquote, urlsplit

import pytest
import requests
import trustme

from airflow_provider_crew.local import CrewInput, LocalCrewService, Scenario, ScenarioTask
from tests.integration.clock import Clock

INPUTS = {"topic": "tides", "audience": "sailors"}
BEARER = {"strategy": "bearer", "token": "of the receiver"}
WITH_OPTIONAL = (CrewInput(name="topic", description="What about"), CrewInput(name="tone", required=False))


class Client:
    """Just enough to talk to the service by hand."""

    def __init__(self, service):
        self.service = service
        self.token = service.token

    def get(self, path):
        return requests.get(self.service.url + path, headers=self._headers(), timeout=60)

    def post(self, path, **body):
        return requests.post(self.service.url + path, headers=self._headers(), timeout=60, **body)

    def kickoff(self, **more):
        return self.post("/kickoff", json={"inputs": INPUTS, **more})

    def status(self, kickoff_id):
        return self.get(f"/status/{kickoff_id}").json()

    def get_raw(self, path):
        """Send a path that no library normalises."""
        connection = http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=60)
        try:
            connection.request("GET", path, headers=self._headers())
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def _headers(self):
        return {"Authorization": f"Bearer {self.token}"}


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def serve(clock):
    running = []

    def start(scenario=None, **settings):
        running.append(LocalCrewService(scenario, clock=clock, **settings).start())
        return running[-1]

    yield start
    for service in running:
        service.stop()


class TestInputs:
    @pytest.mark.parametrize(
        ("shape", "expected"),
        [
            ("names", ["topic"]),
            ("mapping", {"topic": "What about"}),
            (
                "objects",
                [
                    {"name": "topic", "required": True, "type": "string", "description": "What about"},
                    {"name": "tone", "required": False, "type": "string", "description": ""},
                ],
            ),
        ],
    )
    def test_are_listed_in_each_shape(self, serve, shape, expected):
        client = Client(serve(Scenario(inputs=WITH_OPTIONAL, inputs_shape=shape)))

        assert client.get("/inputs").json() == {"inputs": expected}


class TestKickoff:
    def test_is_taken_once_with_all_that_was_sent(self, serve):
        service = serve()

        stream = {"events": ["task_completed"], "url": "http://a/events", "authentication": BEARER}

        answer = Client(service).kickoff(
            meta={"airflow": {"try": 1}},
            taskWebhookUrl="http://a/task",
            crewWebhookUrl="http://a/crew",
            humanInputWebhookUrl="http://a/person",
            webhooks=stream,
            restoreFromStateId="an earlier one",
        )

        (taken,) = service.kickoffs
        assert answer.status_code == 200
        assert answer.json() == {"kickoff_id": taken.kickoff_id}
        assert taken.inputs == INPUTS
        assert taken.meta == {"airflow": {"try": 1}}
        assert taken.webhooks == {
            "taskWebhookUrl": "http://a/task",
            "crewWebhookUrl": "http://a/crew",
            "humanInputWebhookUrl": "http://a/person",
        }
        assert taken.events == stream
        assert taken.restored_from == "an earlier one"

    def test_without_a_required_input_is_refused_and_not_taken(self, serve):
        service = serve()

        answer = Client(service).post("/kickoff", json={"inputs": {"topic": "tides", "extra": 1}})

        assert answer.status_code == 422
        assert answer.json() == {
            "error": "Missing inputs",
            "message": "These inputs are required: audience.",
            "details": {"missing_inputs": ["audience"]},
        }
        assert service.kickoffs == ()

    def test_without_an_optional_input_is_taken(self, serve):
        service = serve(Scenario(inputs=WITH_OPTIONAL))

        assert Client(service).post("/kickoff", json={"inputs": {"topic": "tides"}}).status_code == 200

    @pytest.mark.parametrize(
        ("body", "complaint"),
        [
            (b"", "The body is not JSON"),
            (b"[" * 100_000, "The body is not JSON"),
            (b"[]", "The body: "),
            (b"{}", "inputs: "),
            (b'{"inputs": ["topic"]}', "inputs: "),
            (b'{"inputs": {}, "humanInputWebhookUrl": []}', "humanInputWebhookUrl: "),
            (b'{"inputs": {}, "restoreFromStateId": 1}', "restoreFromStateId: "),
            (b'{"inputs": {}, "webhooks": "http://a"}', "webhooks: "),
            (b'{"inputs": {}, "webhooks": {"url": "http://a"}}', "webhooks.events: "),
        ],
    )
    def test_with_an_unusable_body_is_a_bad_request(self, serve, body, complaint):
        service = serve()

        answer = Client(service).post("/kickoff", data=body)

        assert answer.status_code == 400
        assert answer.json()["error"] == "Bad request"
        assert answer.json()["message"].startswith(complaint)
        assert service.kickoffs == ()


class TestStatus:
    def test_of_an_execution_in_progress(self, serve, clock):
        client = Client(serve())
        kickoff_id = client.kickoff().json()["kickoff_id"]
        clock.now += 6

        assert client.status(kickoff_id) == {
            "status": "running",
            "current_task": "writing_task",
            "progress": {"completed_tasks": 1, "total_tasks": 3},
        }

    def test_of_a_completed_execution(self, serve, clock):
        tasks = (
            ScenarioTask(name="first", agent="Researcher", seconds=2, output="about {topic}"),
            ScenarioTask(name="second", agent="Writer", seconds=1.5, output="for {audience}"),
        )
        client = Client(serve(Scenario(tasks=tasks)))
        kickoff_id = client.kickoff().json()["kickoff_id"]
        clock.now += 3.5

        assert client.status(kickoff_id) == {
            "status": "completed",
            "result": {
                "output": "for sailors",
                "tasks": [
                    {"task_id": "first", "output": "about tides", "agent": "Researcher", "execution_time": 2.0},
                    {"task_id": "second", "output": "for sailors", "agent": "Writer", "execution_time": 1.5},
                ],
            },
            "execution_time": 3.5,
        }

    def test_of_a_failed_execution(self, serve, clock):
        tasks = (ScenarioTask(name="first", seconds=2, error="out of credit"), ScenarioTask(name="second"))
        client = Client(serve(Scenario(tasks=tasks)))
        kickoff_id = client.kickoff().json()["kickoff_id"]
        clock.now += 2

        assert client.status(kickoff_id) == {
            "status": "error",
            "error": "out of credit",
            "execution_time": 2.0,
        }

    def test_of_an_unknown_execution_names_its_id(self, serve):
        answer = Client(serve()).get("/status/nobody%20home")

        assert answer.status_code == 404
        assert answer.json() == {
            "error": "Execution not found",
            "message": "No execution exists with the id nobody home.",
        }

    @pytest.mark.parametrize(
        ("served", "status_first", "id_first"),
        [("both", 200, 200), ("status_first", 200, 404), ("id_first", 404, 200)],
    )
    def test_is_told_on_the_paths_of_the_scenario(self, serve, served, status_first, id_first):
        client = Client(serve(Scenario(status_paths=served)))
        kickoff_id = client.kickoff().json()["kickoff_id"]

        assert client.get(f"/status/{kickoff_id}").status_code == status_first
        assert client.get(f"/{kickoff_id}/status").status_code == id_first


class TestUnknownPaths:
    @pytest.mark.parametrize("path", ["/status/some-id", "/elsewhere", "/inputs/"])
    def test_have_no_error_body(self, serve, path):
        answer = Client(serve(Scenario(status_paths="id_first"))).get(path)

        assert answer.status_code == 404
        assert answer.json() == {"detail": "Not Found"}

    def test_can_have_the_error_body(self, serve):
        answer = Client(serve(Scenario(unknown_path="error_body"))).get("/elsewhere")

        assert answer.status_code == 404
        assert answer.json() == {"error": "Not Found", "message": "GET /elsewhere is not served here."}

    def test_a_known_path_with_the_wrong_method_says_the_right_one(self, serve):
        answer = Client(serve()).get("/kickoff")

        assert answer.status_code == 405
        assert answer.headers["allow"] == "POST"


class TestTokens:
    @pytest.mark.parametrize(
        "header", [None, "Bearer wrong", "Basic bG9jYWw6", "Bearer", "local-organization-token"]
    )
    def test_without_a_valid_one_nothing_is_done(self, serve, header):
        service = serve()
        headers = {} if header is None else {"Authorization": header}

        answer = requests.post(f"{service.url}/kickoff", json={"inputs": INPUTS}, headers=headers, timeout=60)

        assert answer.status_code == 401
        assert answer.json() == {"error": "Unauthorized", "message": "The bearer token is missing or invalid."}
        assert answer.headers["www-authenticate"] == "Bearer"
        assert service.kickoffs == ()

    def test_both_kinds_are_good_for_everything(self, serve):
        service = serve(token="of the organization", user_token="of the user")
        client = Client(service)
        for token in ("of the organization", "of the user"):
            client.token = token
            assert client.get("/inputs").status_code == 200
            assert client.kickoff().status_code == 200

    def test_the_user_token_can_be_kept_from_kicking_off(self, serve):
        service = serve(Scenario(user_token_may_kickoff=False))
        client = Client(service)
        client.token = service.user_token

        refused = client.kickoff()

        assert refused.status_code == 403
        assert refused.json()["error"] == "Forbidden"
        assert client.get("/inputs").status_code == 200
        client.token = service.token
        assert client.kickoff().status_code == 200
        assert len(service.kickoffs) == 1

    def test_a_rotated_token_replaces_the_old_one(self, serve):
        service = serve()
        client = Client(service)

        service.rotate_token("new")

        assert client.get("/inputs").status_code == 401
        client.token = "new"
        assert client.get("/inputs").status_code == 200


class TestControl:
    ODD_IDS = (17, None, {"a": 1}, "a/b", "..", "ü 100%", "?a=b#c", "%2F", "x" * 500)

    @pytest.mark.parametrize("value", ODD_IDS)
    def test_an_odd_id_is_answered_and_found_again_percent_encoded(self, serve, value):
        service = serve()
        service.next_kickoff_id(value)
        client = Client(service)

        assert client.kickoff().json() == {"kickoff_id": value}
        encoded = quote(service.kickoffs[0].kickoff_id, safe="")
        for path in (f"/status/{encoded}", f"/{encoded}/status"):
            assert client.get_raw(path)[0] == 200
            assert service.requests[-1].path == path
        assert client.kickoff().json() != {"kickoff_id": value}

    def test_a_forgotten_execution_is_unknown_but_was_taken(self, serve):
        service = serve()
        client = Client(service)
        kickoff_id = client.kickoff().json()["kickoff_id"]

        service.forget(kickoff_id)

        assert client.get(f"/status/{kickoff_id}").status_code == 404
        assert len(service.kickoffs) == 1

    def test_a_revoked_execution_has_failed(self, serve, clock):
        service = serve()
        client = Client(service)
        kickoff_id = client.kickoff().json()["kickoff_id"]
        clock.now += 6

        service.revoke(kickoff_id)
        clock.now += 100
        service.revoke(kickoff_id)
        service.finish(kickoff_id)

        assert client.status(kickoff_id) == {
            "status": "error",
            "error": "The execution was revoked.",
            "execution_time": 6.0,
        }

    def test_statuses_are_told_in_order_and_the_last_one_stays(self, serve):
        service = serve()
        client = Client(service)
        kickoff_id = client.kickoff().json()["kickoff_id"]
        queued, odd = {"status": "queued"}, ["\ud800"]

        service.set_status(kickoff_id, queued, odd)

        assert [client.status(kickoff_id) for _ in range(3)] == [queued, odd, odd]
        service.set_status(kickoff_id)
        assert client.status(kickoff_id)["status"] == "running"

    def test_the_statuses_of_a_scenario_are_told_anew_to_every_execution(self, serve):
        statuses = ({"status": "queued"}, {"status": "awaiting_human_feedback"})
        client = Client(serve(Scenario(statuses=statuses)))
        for _ in range(2):
            kickoff_id = client.kickoff().json()["kickoff_id"]
            assert [client.status(kickoff_id) for _ in range(2)] == list(statuses)

    def test_another_scenario_is_for_the_next_executions(self, serve):
        service = serve(Scenario(output="old").without_waiting())
        client = Client(service)
        before = client.kickoff().json()["kickoff_id"]

        service.scenario = Scenario(output="new", dialect="deployed").without_waiting()

        after = client.kickoff().json()["kickoff_id"]
        assert [client.status(known)["result"] for known in (before, after)] == ["old", "new"]


class TestColdStart:
    def test_until_the_crew_is_awake_a_gateway_answers_everything(self, serve, clock):
        service = serve(Scenario(cold_start=30))
        service.faults.answer(429)
        client = Client(service)
        clock.now += 1_000

        asleep = [client.get("/inputs"), client.kickoff()]
        clock.now += 29.9
        asleep.append(client.get("/elsewhere"))
        clock.now += 0.1

        assert {answer.status_code for answer in asleep} == {503}
        assert all(answer.headers["content-type"].startswith("text/html") for answer in asleep)
        assert not any("retry-after" in answer.headers for answer in asleep)
        assert "<h1>503 Service" in asleep[0].text
        assert service.kickoffs == ()
        assert [request.fault for request in service.requests] == ["cold_start"] * 3
        assert [client.get("/inputs").status_code for _ in range(2)] == [429, 200]


class TestRecord:
    def test_holds_every_request_as_it_came(self, serve):
        service = serve()
        with socket.create_connection(("127.0.0.1", service.port), timeout=60) as connection:
            connection.sendall(
                b"GET /a%2Fb/status?x=1%202 HTTP/1.1\r\nHost: crew\r\nX-Twice: 1\r\nX-Twice: 2\r\n"
                b"Connection: close\r\n\r\n"
            )
            address = connection.getsockname()
            answer = connection.makefile("rb").read()

        (request,) = service.requests
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert (request.method, request.path, request.query) == ("GET", "/a%2Fb/status", "x=1%202")
        assert [value for name, value in request.headers if name == "x-twice"] == ["1", "2"]
        assert request.header("X-Twice") == "1"
        assert request.header("absent") is None
        assert request.client == address
        assert (request.operation, request.status, request.fault) == ("status", 401, None)
        assert (request.body, request.json) == (b"", None)

    def test_is_in_order_and_filtered_by_operation(self, serve):
        service = serve()
        client = Client(service)
        client.get("/inputs")
        kickoff_id = client.kickoff().json()["kickoff_id"]
        client.get(f"/status/{kickoff_id}")
        client.get(f"/{kickoff_id}/status")
        client.get("/kickoff")

        assert [request.operation for request in service.requests] == [
            "inputs",
            "kickoff",
            "status",
            "status",
            None,
        ]
        assert [request.json for request in service.requests.on("kickoff")] == [{"inputs": INPUTS}]
        times = [request.received_at for request in service.requests]
        assert times == sorted(times)
        service.requests.clear()
        assert len(service.requests) == 0

    def test_loses_nothing_under_many_clients(self, serve):
        service = serve()
        clients = [
            threading.Thread(target=lambda: [Client(service).kickoff() for _ in range(10)]) for _ in range(8)
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join()

        assert len(service.requests.on("kickoff")) == 80
        assert len({taken.kickoff_id for taken in service.kickoffs}) == 80


class TestServing:
    def test_the_connection_leads_to_the_service_and_keeps_an_odd_token(self, serve):
        service = serve(token="a/b:c@d %'é")
        as_uri, as_json = urlsplit(service.connection_uri), json.loads(service.connection_json)

        assert (as_uri.scheme, as_uri.hostname, as_uri.port) == ("crew", "127.0.0.1", service.port)
        assert (unquote(as_uri.password), as_uri.path) == (service.token, "/http")
        assert as_json == {
            "conn_type": "crew",
            "host": "127.0.0.1",
            "port": service.port,
            "schema": "http",
            "password": service.token,
        }

    def test_a_person_may_look_at_an_execution_without_a_token(self, serve):
        service = serve(story := Scenario(dialect="deployed").without_waiting())
        kickoff_id = Client(service).kickoff().json()["kickoff_id"]
        page = service.dashboard_url.format(kickoff_id=kickoff_id)

        shown = requests.get(page, timeout=60)

        assert shown.json().items() >= {"kickoff_id": kickoff_id, "status": "completed"}.items()
        assert shown.json()["result"]["tasks"][-1]["agent"] == story.tasks[-1].agent
        assert service.token not in shown.text
        assert requests.get(f"{page}x", timeout=60).status_code == 404
        assert not any("executions" in path for path in Client(service).get("/openapi.json").json()["paths"])

    def test_over_tls(self, serve, tmp_path):
        authority = trustme.CA()
        issued = authority.issue_cert("127.0.0.1")
        issued.cert_chain_pems[0].write_to_path(tmp_path / "certificate.pem")
        issued.private_key_pem.write_to_path(tmp_path / "key.pem")
        authority.cert_pem.write_to_path(tmp_path / "authority.pem")
        service = serve(tls=(tmp_path / "certificate.pem", tmp_path / "key.pem"))

        answer = requests.get(f"{service.url}/inputs", verify=tmp_path / "authority.pem", timeout=60)

        assert answer.status_code == 401
        assert service.url.startswith("https://")
        assert service.connection_uri.endswith("/https")

    def test_on_ipv6(self, serve):
        service = serve(host="::1")

        assert service.url == f"http://[::1]:{service.port}"
        assert Client(service).get("/inputs").status_code == 200

    def test_stopping_leaves_no_thread_and_no_listener(self):
        before = threading.enumerate()
        service = LocalCrewService().start()

        service.stop()
        service.stop()

        assert threading.enumerate() == before
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", service.port), timeout=60)

    def test_a_request_that_never_came_whole_is_none(self, serve):
        service = serve()
        with socket.create_connection(("127.0.0.1", service.port), timeout=60) as connection:
            connection.sendall(
                b"POST /kickoff HTTP/1.1\r\nHost: crew\r\nAuthorization: Bearer local-organization-token\r\n"
                b'Content-Length: 99\r\n\r\n{"inputs": {"topic": "", "audience": ""}}'
            )
        Client(service).get("/inputs")

        assert [request.operation for request in service.requests] == ["inputs"]
