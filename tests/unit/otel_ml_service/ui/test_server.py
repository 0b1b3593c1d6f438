"""What `otel-ml ui` answers, and to whom: asked over HTTP, of runs in a folder."""

from __future__ import annotations

import re
import socket
import threading
from pathlib import Path
from urllib.parse import urlencode

import pytest

from otel_ml.wire.published_name import is_own
from otel_ml_exporters.records import Params, RunStatus, StepRecord, Text
from otel_ml_service.ui import known_runs
from otel_ml_service.ui.server import _chart_request
from tests.recorded_run import write_run
from tests.unit.otel_ml_service.report.odd_names import SHOWN, controls_in, odd_run
from tests.unit.otel_ml_service.report.runs import HOSTILE, records_of_everything
from tests.unit.otel_ml_service.ui.client import TOKEN, Client
from tests.unit.otel_ml_service.ui.growing import Growing, chart_of
from tests.waiting import eventually


def test_whoever_does_not_show_the_token_gets_nothing(client: Client, tmp_path: Path) -> None:
    write_run(tmp_path, "run-1", records_of_everything())

    for token in ("", "wrong", TOKEN[:-1], f"{TOKEN}x", "%C3%A9"):
        for path in ("", "runs.json", "run/digits/run-1/", "compare?run=digits/run-1"):
            said = client.get(path, token=token)
            assert said.status == 403, (token, path)
            assert "run-1" not in said.body


@pytest.mark.parametrize("target", [b"*", b"http://127.0.0.1", b"/", b"\xff/\xff", b"/%zz/%"])
def test_what_is_no_path_is_refused_and_the_next_request_is_answered(client: Client, target: bytes) -> None:
    with socket.create_connection(("127.0.0.1", client.port), timeout=60) as connection:
        host = f"127.0.0.1:{client.port}".encode()
        connection.sendall(b"GET " + target + b" HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n")
        answer = connection.makefile("rb").read()

    assert answer.startswith(b"HTTP/1.1 403")
    assert client.get("runs.json").status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:80"},
        {"Host": "127.0.0.1.evil.example"},
        {"Origin": "https://evil.example"},
    ],
)
def test_a_page_of_somebody_else_in_the_browser_gets_nothing_even_with_the_token(
    client: Client, headers: dict[str, str]
) -> None:
    assert client.get("runs.json", **headers).status == 403


def test_a_forwarded_port_is_answered(client: Client) -> None:
    assert client.get("runs.json", Host="localhost:9000", Origin="http://localhost:9000").status == 200


def test_a_page_is_not_kept_shown_inside_of_another_nor_named_to_anybody(client: Client) -> None:
    headers = client.get("").headers

    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Content-Security-Policy"] == "frame-ancestors 'none'"
    assert "Content-Security-Policy" not in client.get("runs.json").headers


def test_nothing_can_be_written_and_looking_leaves_the_folder_as_it_is(client: Client, tmp_path: Path) -> None:
    write_run(tmp_path, "run-1", records_of_everything())
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert client.get("run/digits/run-1/", method=method).status == 501
    for path in ("", "runs.json", "run/digits/run-1/", "run/digits/run-1/news", "run/digits/run-1/step"):
        assert client.get(path).status == 200

    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(
    "path", ["run/../../etc/", "run/..%2f..%2fetc/passwd/", "run/digits/none/", "run/", "x", "run/a/b/c"]
)
def test_what_is_no_run_of_the_folder_is_not_found(client: Client, path: str) -> None:
    assert client.get(path).status == 404


def test_the_list_tells_state_last_step_parameters_and_last_values(client: Client, tmp_path: Path) -> None:
    write_run(tmp_path, "run-1", records_of_everything())

    [row] = client.rows()

    assert (row["name"], row["state"], row["step"]) == ("digits/run-1", "finished", 59)
    assert row["params"]["lr"] == "0.1"
    assert row["values"]["test/accuracy"] == "0.97"


def test_a_run_whose_page_is_open_does_not_change_while_the_list_reads_it(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Growing(tmp_path)
    run.step(1, loss=1.0, accuracy=0.5)
    client.get("run/growing/run-1/")
    run.step(2, loss=0.5, reward=2.0)
    asked: list[threading.Thread] = []

    def while_it_reads(name: str) -> bool:
        if not asked:
            asked.append(threading.Thread(target=client.get, args=("run/growing/run-1/",)))
            asked[0].start()
            run.step(3, another=1.0)
            asked[0].join(1.0)  # as far as it comes: it is to wait for the list
        return is_own(name)

    monkeypatch.setattr(known_runs, "is_own", while_it_reads)  # is called in the middle of reading

    eventually(lambda: "values" in client.rows()[0])  # a list answers with what has been read so far
    asked[0].join()

    assert client.rows()[0]["state"] == "running"


def test_the_list_calls_a_run_what_people_call_it(client: Client, tmp_path: Path) -> None:
    for name in ("run-1", "01M8GQFF4BTTFDT7ZRA6P8PBJV"):
        write_run(tmp_path, name, records_of_everything())

    rows = {row["run"]: row["called"] for row in client.rows()}

    assert rows == {"run-1": "run-1", "01M8GQFF4BTTFDT7ZRA6P8PBJV": "proud-harbor-941"}


def test_the_page_of_a_run_has_its_name_and_its_notes(client: Client, tmp_path: Path) -> None:
    run = write_run(tmp_path, "run-1", records_of_everything())
    (run.path / "state").mkdir(exist_ok=True)
    (run.path / "state" / "name").write_text("longer warm-up")
    (run.path / "state" / "notes").write_text("as run 7, but slower")

    body = client.get("run/digits/run-1/").body

    assert "<title>longer warm-up</title>" in body
    assert "<h1>longer warm-up</h1>" in body
    assert "as run 7, but slower" in body


def test_the_list_tells_what_a_run_failed_with(client: Client, tmp_path: Path) -> None:
    text = Text(1, 1000.0, "otel_ml/failure/rank_3", "step", 7, "RuntimeError: no memory")
    write_run(tmp_path, "run-1", [text, RunStatus(2, 1001.0, "failed")])

    [row] = client.rows()

    assert (row["state"], row["said"]) == ("failed", "Rank 3 failed at step 7: RuntimeError: no memory")


def test_a_run_that_cannot_be_read_is_named_and_the_others_are_shown(client: Client, tmp_path: Path) -> None:
    write_run(tmp_path, "run-1", records_of_everything())
    broken = Growing(tmp_path)
    (broken.folder / "metrics.jsonl").write_text("no JSON\n")

    assert sorted(row["state"] for row in client.rows()) == ["finished", "unreadable"]
    assert client.get("run/growing/run-1/").status == 500
    assert client.get("run/digits/run-1/").status == 200


def test_secrets_in_parameters_are_hidden_whoever_wrote_the_run(client: Client, tmp_path: Path) -> None:
    secret = "hf_abcdefghijklmnopqrstuvwxyz012345"
    records = [Params(1, 1.0, {"hub": {"token": secret}, "note": f"used {secret}"})]
    write_run(tmp_path, "run-1", [*records, StepRecord(2, "trainer", "step", 0, 0, 1.0, {"loss": 1.0})])

    for path in ("runs.json", "run/digits/run-1/"):
        assert secret not in client.get(path).body


def test_what_a_live_page_is_answered_is_written_out_and_finds_its_step_again(client: Client, tmp_path: Path) -> None:
    write_run(tmp_path, "run-1", odd_run())
    names = urlencode({"role": SHOWN, "axis": SHOWN, "step": 4})

    step = client.get(f"run/digits/run-1/step?{names}").json
    others = [client.rows(), client.get("run/digits/run-1/news?version=-1").json]

    assert (step["role"], step["axis"], step["names"], len(step["rows"])) == (SHOWN, SHOWN, [SHOWN], 2)
    assert controls_in([step, *others]) == []


def test_no_name_of_a_run_becomes_an_element_of_its_page(client: Client, tmp_path: Path) -> None:
    write_run(tmp_path, "run-1", records_of_everything())

    body = client.get("run/digits/run-1/").body

    assert HOSTILE not in body
    assert body.count("</script>") == 1
    assert "<img src=x" not in body


def test_only_what_is_new_is_told(client: Client, tmp_path: Path) -> None:
    run = Growing(tmp_path)
    for step in range(10):
        run.step(step, loss=1.0 / (step + 1))
    chart = chart_of(client, "growing/run-1", "loss")
    first = client.get(f"run/growing/run-1/news?charts={chart}::").json
    had = f"{chart}:{first['charts'][chart]['generation']}:9"
    seen = ",".join(part["hash"] for part in first["parts"].values())
    asked = f"run/growing/run-1/news?version={first['version']}&seen={seen}&charts={had}"

    nothing = client.get(asked)
    run.step(10, loss=0.05)
    news = client.get(asked).json

    assert [point[0] for point in first["charts"][chart]["lines"][0]["points"]] == list(range(10))
    assert (nothing.status, nothing.body) == (204, "")
    assert news["charts"][chart]["lines"][0]["points"] == [[10, 0.05]]
    assert "answer" in news["parts"]
    assert "params" not in news["parts"]


def test_a_step_that_is_done_again_has_the_whole_curve_told_anew(client: Client, tmp_path: Path) -> None:
    run = Growing(tmp_path)
    for step in range(10):
        run.step(step, loss=1.0)
    chart = chart_of(client, "growing/run-1", "loss")
    first = client.get(f"run/growing/run-1/news?charts={chart}::").json

    run.step(4, loss=7.0)
    had = f"{chart}:{first['charts'][chart]['generation']}:9"
    news = client.get(f"run/growing/run-1/news?charts={had}").json["charts"][chart]

    assert news["from"] is None
    assert [4, 7.0] in news["lines"][0]["points"]
    assert len(news["lines"][0]["points"]) == 10


def test_of_many_steps_the_lowest_and_the_highest_are_kept(client: Client, tmp_path: Path) -> None:
    run = Growing(tmp_path)
    for step in range(5000):
        run.step(step, loss=100.0 if step == 3333 else -100.0 if step == 777 else 1.0)
    chart = chart_of(client, "growing/run-1", "loss")

    points = client.get(f"run/growing/run-1/news?charts={chart}::").json["charts"][chart]["lines"][0]["points"]

    assert len(points) < 2000
    assert [3333, 100.0] in points
    assert [777, -100.0] in points


def test_a_step_is_shown_with_every_rank_and_who_the_others_waited_for(client: Client, tmp_path: Path) -> None:
    run = Growing(tmp_path)
    for step in range(5):
        run.step(step, loss=1.0)
        run.spans(step, ranks=4, slow=2)

    view = client.get("run/growing/run-1/step?role=trainer&axis=step&step=3").json
    framed = {(row["who"], view["names"][box[0]]) for row in view["rows"] for box in row["boxes"] if box[4]}

    assert [row["who"] for row in view["rows"]] == [f"trainer {rank}" for rank in range(4)]
    assert ("trainer 2", "forward") in framed
    assert not any(name == "forward" for who, name in framed if who != "trainer 2")
    assert client.get("run/growing/run-1/step?role=trainer&axis=step&step=99").json == {"rows": []}


def test_two_runs_are_compared_on_one_page(client: Client, tmp_path: Path) -> None:
    for name in ("run-1", "run-2"):
        write_run(tmp_path, name, records_of_everything())

    said = client.get("compare?run=digits/run-1&run=digits/run-2")

    assert said.status == 200
    assert "Side by side" in said.body
    assert client.get("compare?run=digits/run-1").status == 404


def test_a_run_whose_file_is_replaced_while_it_is_looked_at_is_shown_as_it_is_now(
    client: Client, tmp_path: Path
) -> None:
    growing, other = Growing(tmp_path), Growing(tmp_path / "restored")
    for step in range(3):
        growing.step(step, of_before=1.0)
    before = client.get("run/growing/run-1/")
    for step in range(9):
        other.step(step, of_the_backup=1.0)
    (other.folder / "metrics.jsonl").replace(growing.folder / "metrics.jsonl")

    after = client.get("run/growing/run-1/")

    assert "<b>of_before</b>" in before.body
    assert after.status == 200
    assert "<b>of_before</b>" not in after.body
    assert "<b>of_the_backup</b>" in after.body


def test_a_comparison_follows_its_runs_while_they_train(client: Client, tmp_path: Path) -> None:
    write_run(tmp_path, "run-1", records_of_everything())
    growing = Growing(tmp_path)
    growing.step(0, loss=5.0)
    asked = "run=digits/run-1&run=growing/run-1"
    page = client.get(f"compare?{asked}").body
    seen = ",".join(re.findall(r'data-hash="(\w+)"', page))
    [version] = re.findall(r'data-version="([^"]+)"', page)

    nothing = client.get(f"news?{asked}&version={version}&seen={seen}")
    growing.step(1, loss=4.75)
    news = client.get(f"news?{asked}&version={version}&seen={seen}").json

    assert nothing.status == 204
    assert "4.75" in news["parts"]["curves"]["html"]
    assert "run-0" not in news["parts"], "what has not changed does not travel"
    newest = news["version"]
    assert client.get(f"news?{asked}&version={newest}").status == 204
    assert client.get("news?run=digits/run-1").status == 404


@pytest.mark.parametrize(
    ("text", "key", "generation", "last"),
    [
        ("ab", "ab", None, None),
        ("ab:3:17", "ab", 3, 17),
        ("ab:3:-1", "ab", 3, -1),
        ("ab:3:", "ab", None, None),
        ("ab::17", "ab", None, None),
        ("ab:3:\u00b2", "ab", None, None),
        ("ab:3:" + "9" * 19, "ab", 3, int("9" * 19)),
        ("ab:3:" + "9" * 20, "ab", None, None),
    ],
)
def test_what_a_page_has_of_a_chart_is_asked_for_in_whole_numbers(
    text: str, key: str, generation: int | None, last: int | None
) -> None:
    found = _chart_request(text)

    assert (found.key, found.generation, found.last) == (key, generation, last)


def test_pages_are_html_and_data_is_json(client: Client, tmp_path: Path) -> None:
    write_run(tmp_path, "run-1", records_of_everything())

    listed, rows, page = client.get(""), client.get("runs.json"), client.get("run/digits/run-1/")

    assert [said.headers["Content-Type"] for said in (listed, rows, page)] == [
        "text/html; charset=utf-8", "application/json", "text/html; charset=utf-8",
    ]  # fmt: skip
    assert page.headers["Content-Length"] == str(len(page.body.encode()))
    assert str(tmp_path) in listed.body
    step = client.get("run/digits/run-1/step?step=57&role=trainer&axis=step").json
    assert (step["step"], step["role"]) == (57, "trainer")
    assert client.get("run/digits/run-1/step?step=").json["rows"]
    version = client.get("run/digits/run-1/news").json["version"]
    assert client.get(f"run/digits/run-1/news?version={version}").status == 204
    assert client.get("compare?run=digits/run-1").status == 404
    assert client.get("compare?run=digits/run-1&run=digits/run-1").status == 404
    assert client.get("run/digits/none/").status == 404
    assert client.get("run/digits/run-1/other").status == 404
