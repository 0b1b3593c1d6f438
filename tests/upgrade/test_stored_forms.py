"""No stored form changes without its version."""

from __future__ import annotations

import pytest

from tests.upgrade.forms import DESCRIBED, FORMS, VERSIONS


@pytest.mark.parametrize("name", VERSIONS)
def test_a_form_is_what_its_version_says(name: str) -> None:
    version = VERSIONS[name]

    known = (FORMS / f"{name}-{version}.txt").read_text(encoding="utf-8")

    assert "\n".join(DESCRIBED[name]()) + "\n" == known, (
        f"The form of {name} has changed, and its version is {version} still. Raise it, say how the one before is "
        "read, then: python -m tests.upgrade.forms, and for run.db: python -m tests.upgrade.keep run-<version>"
    )
