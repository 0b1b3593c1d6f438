from __future__ import annotations

from otel_ml_exporters.backends.mlflow.tags import tags_of


def test_a_tag_with_a_colon_is_a_key_and_its_value() -> None:
    assert tags_of(["team:a", "data:s3://bucket/x", "note:"]) == {"team": "a", "data": "s3://bucket/x", "note": ""}


def test_a_tag_without_a_key_is_its_own() -> None:
    assert tags_of(["baseline", ":x", ""]) == {"baseline": "baseline", ":x": ":x"}


def test_of_tags_with_one_key_none_is_lost() -> None:
    tags = tags_of(["group:a", "group:b"])

    assert tags["group"] == "a"
    assert list(tags.values()) == ["a", "group:b"]


def test_what_the_exporter_counts_by_is_not_overwritten() -> None:
    assert not {"otel_ml.seq", "ml.attempt"} & tags_of(["otel_ml.seq:5", "ml.attempt:2"]).keys()
