"""Reads an offline run with SwanLab's own reader and messages, by its rule: the first value of a step counts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from swanlab.proto.swanlab.record.v1.record_pb2 import Record
from swanlab.proto.swanlab.run.v1 import run_pb2
from swanlab.sdk.internal.core_python.store import DataStoreReader

from tests.contract.readers import leaves, main, number

STATUS = {
    run_pb2.RUN_STATE_FINISHED: "finished",
    run_pb2.RUN_STATE_CRASHED: "failed",
    run_pb2.RUN_STATE_ABORTED: "killed",
}
KEY = re.compile(r"(?P<name>.*?)(?P<time>/over_time)?(?:/attempt_(?P<attempt>\d+))?(?P<amended>/amended(?:_\d+)?)?")


def read(run_dir: Path, run_id: str) -> Mapping[str, object]:
    folder = run_dir.resolve().parents[1] / "swanlog" / f"run-{run_id}"
    reader = DataStoreReader()
    reader.open(folder / f"run-{run_id}.swanlab")
    answer = Answer(folder)
    while (content := reader.scan()) is not None:
        answer.add(Record.FromString(content))
    return answer.as_json()


class Answer:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: set[tuple[str, int]] = set()
        self.numbers: set[int] = set()
        self.scalars: list[object] = []
        self.amendments: list[object] = []
        self.summary: dict[str, object] = {}
        self.texts: list[object] = []
        self.images: list[object] = []
        self.params: dict[str, object] = {}
        self.names: dict[str, str] = {}
        self.tags: list[str] = []
        self.status = "running"

    def add(self, record: Any) -> None:
        if record.num >= 0:
            assert record.num not in self.numbers, "SwanLab's upload takes two messages of one number for one"
            self.numbers.add(record.num)
        kind = record.WhichOneof("record_type")
        getattr(self, f"on_{kind}")(getattr(record, kind))

    def on_start(self, start: Any) -> None:
        self.tags = sorted(start.tags)

    def on_finish(self, finish: Any) -> None:
        self.status = STATUS[finish.state]

    def on_save(self, save: Any) -> None:
        content = yaml.safe_load(Path(save.source_path).read_text(encoding="utf-8"))
        config = {key: item["value"] for key, item in content.items()}
        self.names = config.pop("otel_ml/names", {})
        self.params = dict(leaves(config))

    def on_scalar(self, scalar: Any) -> None:
        if (scalar.key, scalar.step) in self.seen:
            return
        self.seen.add((scalar.key, scalar.step))
        if scalar.key.startswith("summary/"):
            self.summary[scalar.key.removeprefix("summary/")] = scalar.value.number
            return
        match = KEY.fullmatch(scalar.key)
        assert match is not None
        axis = "time" if match["time"] else "rollout" if "rollout" in match["name"].split("/") else "step"
        point = [match["name"], axis, scalar.step, number(scalar.value.number)]
        if match["amended"]:
            self.amendments.append(point)
        else:
            self.scalars.append([*point, int(match["attempt"] or 0)])

    def on_media(self, media: Any) -> None:
        kind = "text" if media.value.items[0].filename.endswith(".txt") else "image"
        for item in media.value.items:
            content = (self.folder / "media" / kind / item.filename).read_bytes()
            assert len(content) == item.size
            if kind == "text":
                self.texts.append([media.key, media.step, content.decode()])
            else:
                self.images.append([media.key, media.step, item.sha256])

    def as_json(self) -> dict[str, object]:
        fields = ("scalars", "amendments", "summary", "texts", "images", "params", "tags", "status", "names")
        return {field: getattr(self, field) for field in fields}


if __name__ == "__main__":
    main(read)
