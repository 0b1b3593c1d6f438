"""A stand-in for the embedded service (docs/protocol.md §3.3): binds, writes its file, answers, remembers what came.

It takes the place of the real package by coming first in PYTHONPATH, and is started by the real command line.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
from pathlib import Path

from otel_ml.wire.rendezvous import Rendezvous, Service, run_folder
from tests.otlp_server import OtlpServer


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("serve")
    arguments.add_argument("--embedded", action="store_true", required=True)
    arguments.add_argument("--rendezvous", type=Path, required=True)
    rendezvous = Rendezvous(arguments.parse_args().rendezvous)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run_id = os.environ["OTEL_ML_EXPERIMENT_ID"]
    folder = run_folder(Path(os.environ["OTEL_ML_DIR"]), os.environ["OTEL_ML_EXPERIMENT_NAME"], run_id)
    folder.mkdir(parents=True, exist_ok=True)
    server = OtlpServer()
    server.headers["otel-ml-notices"] = "1"
    server.pages["/healthz"] = {"service": "otel_ml", "version": "0"}
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    remember(server, folder, run_id)
    with (folder / "starts").open("a") as starts:  # before anybody can have an answer: a test then reads it
        starts.write(f"{os.getpid()}\n")
    rendezvous.publish(Service(server.url, "t0k", os.getpid(), str(folder), ("jsonl",)))
    while not ended.wait(0.05):
        remember(server, folder, run_id)
        goodbyes = {event.resource["service.instance.id"] for event in server.events("ml.writer.end")}
        writers = {event.resource["service.instance.id"] for event in server.events()}
        writers |= {point.resource["service.instance.id"] for point in server.points()}
        if writers and writers == goodbyes and not (folder / "stay").exists():
            ended.wait(1.0)
            break
    remember(server, folder, run_id)
    rendezvous.service_file.unlink(missing_ok=True)


def remember(server: OtlpServer, folder: Path, run_id: str) -> None:
    points = server.points()
    goodbyes = server.events("ml.writer.end")
    server.pages[f"/otel_ml/runs/{run_id}"] = {
        "id": run_id,
        "dir": str(folder),
        "exporters": {"jsonl": {"url": str(folder / "metrics.jsonl"), "state": "running"}},
        "writers": len(goodbyes),
        "recorded": sum(event.attributes["otel_ml.recorded"] for event in goodbyes),
        "delivered": len(points),
        "lost": {},
        "pending": 0 if goodbyes else 1,
        "notices": ["Rank 1 is slow."],
        "left": bool(goodbyes),
        "last": bool(goodbyes),
    }
    text = json.dumps([[point.name, point.step, point.value, point.resource["ml.rank"]] for point in points])
    path = folder / f"points-{os.getpid()}.json"
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").replace(path)


if __name__ == "__main__":
    main()
