"""Names and labels that SwanLab takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from otel_ml_exporters.backends.swanlab.keys import Names
from otel_ml_exporters.backends.swanlab.messages import Messages
from tests.contract.stream import run_info


def test_a_key_that_was_made_for_one_name_is_no_other_names_own() -> None:
    names = Names({})
    made = names.key("./loss")

    assert names.key(made) != made
    assert names.mapped == {"./loss": made, made: names.key(made)}
    assert Names({key: name for name, key in names.mapped.items()}).key(made) == names.key(made)


def test_a_run_has_thirty_tags_of_512_characters_at_most(tmp_path: Path) -> None:
    from swanlab.proto.swanlab.record.v1.record_pb2 import Record

    run = replace(run_info(tmp_path, "run"), tags=tuple(f"tag {number} {'x' * 600}" for number in range(31)))

    message = Record.FromString(Messages(tmp_path).start(run))

    assert len(message.start.tags) == 30
    assert message.start.tags[29].startswith("tag 29 xxx")
    assert {len(tag) for tag in message.start.tags} == {512}
