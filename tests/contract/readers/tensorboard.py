from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Mapping
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import api_pb2, metadata
from tensorboard.util import tensor_util

from tests.contract.readers import main, number

EVERYTHING = {"scalars": 0, "tensors": 0, "images": 0, "audio": 0, "histograms": 0, "compressedHistograms": 0}


def opened(folder: Path) -> EventAccumulator | None:
    if not list(folder.glob("events.out.tfevents.*")):
        return None
    accumulator = EventAccumulator(str(folder), size_guidance=EVERYTHING)
    accumulator.Reload()
    return accumulator


def plugin(run: EventAccumulator, tag: str) -> str:
    return run.SummaryMetadata(tag).plugin_data.plugin_name


def tensors(run: EventAccumulator | None, plugin_name: str) -> list[tuple[str, int, object]]:
    if run is None:
        return []
    return [
        (tag, event.step, tensor_util.make_ndarray(event.tensor_proto))
        for tag in run.Tags()["tensors"]
        if plugin(run, tag) == plugin_name
        for event in run.Tensors(tag)
    ]


def scalars(run: EventAccumulator | None) -> list[list[object]]:
    if run is None:
        return []
    tags = run.Tags()["scalars"]
    return [[tag, axis(run, tag), point.step, number(point.value)] for tag in tags for point in run.Scalars(tag)]


def axis(run: EventAccumulator, tag: str) -> str:
    if tag not in run.summary_metadata:
        return "step"
    said = re.search(r"axis `([^`]+)`", run.SummaryMetadata(tag).summary_description)
    return said.group(1) if said else "step"


def params_and_status(run: EventAccumulator) -> tuple[dict[str, object], str | None]:
    params: dict[str, object] = {}
    status = None
    if metadata.SESSION_START_INFO_TAG in run.Tags()["tensors"]:
        content = run.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
        for name, value in metadata.parse_session_start_info_plugin_data(content).hparams.items():
            params[name] = getattr(value, value.WhichOneof("kind"))
        status = "running"
    if metadata.SESSION_END_INFO_TAG in run.Tags()["tensors"]:
        content = run.SummaryMetadata(metadata.SESSION_END_INFO_TAG).plugin_data.content
        end = metadata.parse_session_end_info_plugin_data(content)
        status = {api_pb2.STATUS_SUCCESS: "finished", api_pb2.STATUS_FAILURE: "failed"}[end.status]
    return params, status


def markdown(text: str) -> tuple[list[str], list[list[str]]]:
    lines = [[cell_of(cell) for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in text.splitlines()]
    return lines[0], lines[2:]


def cell_of(markdown: str) -> str:
    return html.unescape(re.sub(r"\\(.)", r"\1", markdown.strip()))


def read(run_dir: Path, run_id: str) -> Mapping[str, object]:
    folder = run_dir / "tensorboard"
    run = opened(folder)
    assert run is not None
    params, status = params_and_status(run)
    steps = [point for point in scalars(run) if not str(point[0]).startswith("summary/")]
    summary = [point for point in scalars(run) if str(point[0]).startswith("summary/")]
    texts = [(tag, step, value.item().decode()) for tag, step, value in tensors(run, "text")]
    return {
        "scalars": [[*point, None] for point in [*steps, *scalars(opened(folder / "time"))]],
        "amendments": scalars(opened(folder / "amended")),
        "summary": {tag.removeprefix("summary/"): value for tag, _, _, value in summary},
        "params": params,
        "status": status,
        "texts": [[tag, step, text] for tag, step, text in texts if not text.startswith("| ")],
        "tables": [[tag, step, *markdown(text)] for tag, step, text in texts if text.startswith("| ")],
        "images": [
            [tag, event.step, hashlib.sha256(event.encoded_image_string).hexdigest()]
            for tag in run.Tags()["images"]
            for event in run.Images(tag)
        ],
        "audio": [
            [tag, event.step, hashlib.sha256(event.encoded_audio_string).hexdigest()]
            for tag in run.Tags()["audio"]
            for event in run.Audio(tag)
        ],
        "histograms": [
            [tag, step, [*value[:, 0].tolist(), float(value[-1, 1])], value[:, 2].tolist()]
            for tag, step, value in tensors(run, "histograms")
        ],
    }


if __name__ == "__main__":
    main(read)
