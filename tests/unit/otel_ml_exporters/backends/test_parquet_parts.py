"""Which files of a run become one."""

from __future__ import annotations

from pathlib import Path

from otel_ml_exporters.backends.parquet.parts import Parts


def parts_of(folder: Path, *ranges: tuple[int, int]) -> Parts:
    parts = Parts(folder)
    parts.open()
    for first, last in ranges:
        parts.add(first, last, lambda path: path.write_text("rows"))
    return parts


def test_narrow_parts_behind_the_last_wide_one_are_merged(tmp_path: Path) -> None:
    parts = parts_of(tmp_path, (1, 5), (6, 105), (106, 110), (111, 111))

    narrow = parts.unmerged(99)

    assert [(part.first, part.last) for part in narrow] == [(106, 110), (111, 111)]
    assert [(part.first, part.last) for part in parts.unmerged(100)] == [(1, 5), (6, 105), (106, 110), (111, 111)]


def test_a_merge_stands_in_the_place_of_its_parts(tmp_path: Path) -> None:
    parts = parts_of(tmp_path, (1, 200), (201, 203), (204, 204))

    parts.merge(parts.unmerged(100), lambda path: path.write_text("merged"))

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "part-000000000001-000000000200.parquet",
        "part-000000000201-000000000204.parquet",
    ]
    assert parts.last_seq == 204
