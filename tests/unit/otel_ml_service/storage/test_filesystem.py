"""Which file system a folder is on, as the table of mounts of the machine says it."""

from __future__ import annotations

from pathlib import Path

from otel_ml_service.storage.filesystem import network_file_system


def test_a_mount_with_a_space_in_its_name_and_one_beneath_it_are_told_apart() -> None:
    mounts = "disk / ext4 rw 0 0\nserver:/a /my\\040runs nfs4 rw 0 0\nnonsense\ndisk2 /my\\040runs/local xfs rw 0 0"

    assert network_file_system(Path("/my runs/one"), mounts) == "nfs4"
    assert network_file_system(Path("/my runs/local/one"), mounts) is None
    assert network_file_system(Path("/elsewhere"), mounts) is None


def test_a_line_of_the_table_counts_that_says_what_is_mounted_where_and_of_which_kind_and_no_shorter_one() -> None:
    mounts = "disk / ext4 rw 0 0\nserver:/a /runs nfs4\nserver:/b /runs/local\nserver:/c\n"

    assert network_file_system(Path("/runs/local/one"), mounts) == "nfs4"


def test_of_two_mounts_on_one_point_the_later_one_counts() -> None:
    mounts = "disk / ext4 rw 0 0\nserver:/a /runs nfs4 rw 0 0\ndisk2 /runs xfs rw 0 0"

    assert network_file_system(Path("/runs"), mounts) is None


def test_a_folder_behind_a_link_is_on_the_file_system_that_the_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "here").symlink_to(tmp_path / "there")
    mounts = f"disk / ext4 rw 0 0\nserver:/a {tmp_path.resolve() / 'there'} nfs4 rw 0 0"

    assert network_file_system(tmp_path / "here" / "one", mounts) == "nfs4"
