"""No environment variable keeps a program from training: whatever is in it, `init()` gets through, or says so."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml import env
from otel_ml._internal.identity.resource import encode_resource
from otel_ml._internal.identity.run_identity import identify
from otel_ml._internal.lifecycle.run_requested import is_run_requested
from otel_ml._internal.lifecycle.session import record_settings
from otel_ml._internal.transport.choose_link import choose_link, host_folder
from otel_ml.config import Config
from otel_ml.wire.rendezvous import rendezvous_of

_LAUNCHERS = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR",
    "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID", "SLURM_STEP_ID",
    "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NNODES",
    "SLURM_STEP_NUM_NODES", "SLURM_NODEID", "SLURM_RESTART_COUNT", "SLURM_ARRAY_TASK_ID",
    "SLURM_ARRAY_JOB_ID", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK", "PMIX_NAMESPACE", "PMI_RANK", "PMI_SIZE", "PMI_JOBID", "MPI_LOCALNRANKS",
    "MPI_LOCALRANKID",
)  # fmt: skip
_OF_OTHERS = (
    "OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_METRICS_EXPORTER", "OTEL_TRACES_EXPORTER",
    "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_PROPAGATORS", "http_proxy", "https_proxy", "all_proxy",
    "no_proxy",
)  # fmt: skip
_NAMES = (*(variable.name for variable in (*env.VARIABLES, *env.STANDARD)), *_LAUNCHERS, *_OF_OTHERS)

_ODD = (
    "0", "1", "-1", "00", "²", "١٢", "1_0", "9" * 12, "9" * 5000, "1e400", "nan", "inf", "0x10", "1s", "true",
    "TRUE", "yes", "off", "http/json", "zstd", "remote", "embedded", "grpc", "a,b", "a=b,c", "=", "%", "a=%ff",
    "~nobody-of-this-name/x", "http://", "http://[::1", "http://h:port", "ftp://x", "http://ü:1", "host..name",
    "." * 300, "x" * 300, "\n", "\x7f", "\udcff", "authorization=Bearer%0d%0ax", "{}", "null", ",", "../..",
    "/dev/null", "/proc/self/mem",
)  # fmt: skip
_texts = st.one_of(
    st.sampled_from(_ODD),
    st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=20),
)
_environs = st.dictionaries(st.sampled_from(_NAMES), _texts, max_size=8)


def _begin(environ: dict[str, str]) -> Config:
    """Do what `init()` does with the environment, up to the start of threads."""
    with mock.patch.dict(os.environ, environ, clear=True):
        is_run_requested()
        config = Config.from_env()
        identity = identify(config, os.environ)
        encode_resource(config, identity)
        record_settings(config)
        host_folder(config, identity)
        rendezvous_of(identity.run_id)
        choose_link(config, identity, lambda slug, sentence: None).close()
    return config


@pytest.mark.parametrize("name", _NAMES)
def test_no_odd_value_of_one_variable_raises(name: str) -> None:
    for value in _ODD:
        _begin({name: value})


@given(_environs)
def test_no_odd_values_of_several_variables_raise(environ: dict[str, str]) -> None:
    _begin(environ)


@pytest.mark.parametrize("launcher", [("RANK", "WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")])
@given(rank=_texts, size=_texts, local=_texts)
def test_no_odd_values_of_a_launcher_raise(launcher: tuple[str, str], rank: str, size: str, local: str) -> None:
    places = {"LOCAL_WORLD_SIZE": local, "MPI_LOCALNRANKS": local, "MASTER_ADDR": local}
    config = _begin({launcher[0]: rank, launcher[1]: size, **places})

    assert config.dir == Path.cwd() / "otel-ml-runs"
