"""Every queue, cache, table and file of the service, its bound, and the test that reaches it: a table of the docs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from otel_ml_service import env, process_limits
from otel_ml_service.aggregation import (
    cumulative_streams,
    interned_series,
    output,
    quota,
    reductions,
    spans,
    step_streams,
    training_clock,
    writer_state,
)
from otel_ml_service.aggregation.settings import EngineSettings
from otel_ml_service.delivery import losses
from otel_ml_service.live_runs import run_log, run_registry, unreadable_requests
from otel_ml_service.receiver import admission, columns, compression, connection_limits, resource
from otel_ml_service.storage import outbox, recent_records
from otel_ml_service.telemetry import MAX_LABELS

__all__ = ["BOUNDS", "Bound", "markdown"]

ENGINE = EngineSettings()
UNIT = "tests/unit/otel_ml_service"
SMALL = f"{UNIT}/test_bounds.py"
ROOM = f"{UNIT}/aggregation/test_quota.py"
OVERLOAD = "tests/integration/test_overload.py"


@dataclass(frozen=True)
class Bound:
    """A row of the table; `test` is the file and the function, after `::`."""

    part: str
    what: str
    most: str
    setting: str
    then: str
    shown: str
    test: str


def size(number: int) -> str:
    """Return bytes as a person writes them."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if number >= factor:
            return f"{number // factor} {unit}"
    return f"{number} B"


COME_BACK = "503 with `Retry-After`, gRPC UNAVAILABLE"

BOUNDS: Sequence[Bound] = (
    Bound("Coming in", "one request, also unpacked", size(admission.MAX_REQUEST), "fixed", "413, the limit is named",
          "`refused{too large}`",
          "tests/integration/test_service_requests.py::test_a_compressed_bomb_is_refused_with_the_limit_and_the_service_goes_on"),
    Bound("Coming in", "bodies under way over HTTP", size(env.QUEUE_MAX.default), "`OTEL_ML_QUEUE_MAX`",
          f"{COME_BACK}; up to 1 MiB always fits", "`refused{overloaded}`",
          f"{OVERLOAD}::test_bodies_under_way_are_bounded_over_all_connections"),
    Bound("Coming in", "HTTP connections", f"{connection_limits.MOST_CONNECTIONS:,}, and as many as find open files",
          "`ulimit -n`", COME_BACK,
          "`refused{too many connections}`",
          "tests/security/test_bounds.py::"
          "test_connections_beyond_the_bound_are_told_to_come_back_and_the_others_go_on"),
    Bound("Coming in", "acknowledged and not decided: queue, journal", size(env.QUEUE_MAX.default),
          "`OTEL_ML_QUEUE_MAX`", COME_BACK, "`refused{overloaded}`, `journal_bytes`",
          f"{OVERLOAD}::test_what_is_acknowledged_and_cannot_be_decided_is_bounded_in_the_journal"),
    Bound("Coming in", "open runs", f"{run_registry.MAX_RUNS:,}", "fixed", COME_BACK, "`refused{too many runs}`",
          f"{OVERLOAD}::test_further_runs_wait_until_one_has_ended"),
    Bound("Coming in", "open files kept back for what is under way", f"{process_limits._RESERVED_FILES}",
          "the limit itself: `ulimit -n`", "new runs and connections are told to come back; the others go on",
          "`refused{too many runs}`, `refused{too many connections}`",
          "tests/integration/test_open_files.py::"
          "test_a_service_short_of_files_refuses_new_runs_goes_on_with_the_others_and_takes_new_ones_again"),
    Bound("Coming in", "members of one gzip body", f"{compression._MEMBERS:,}", "fixed", "refused (400)",
          "`refused{undecodable}`",
          f"{UNIT}/receiver/test_compression.py::test_bombs_damage_and_unknown_encodings_are_refused"),
    Bound("Coming in", "decoded resources and shapes", f"{resource._CACHED:,} and {columns._SHAPES:,}", "fixed",
          "the cache starts anew", "–",
          f"{SMALL}::test_decoded_resources_and_shapes_are_cached_up_to_a_bound"),
    Bound("A run in memory", "open steps", size(env.OPEN_MAX.default), "`OTEL_ML_OPEN_MAX`",
          "the oldest close with what has arrived, and reported", "`open_steps`",
          f"{UNIT}/aggregation/test_closing.py::test_open_state_is_bounded"),
    Bound("A run in memory", "closed steps kept for late data",
          f"{ENGINE.retained_steps:,} an axis, {size(env.RETAINED_MAX.default)}", "`OTEL_ML_RETAINED_MAX`",
          "older ones are on the disk only", "–",
          f"{UNIT}/aggregation/test_late_data.py::test_kept_fold_state_is_bounded_in_bytes"),
    Bound("A run in memory", "series (role, name, attributes)", f"{env.SERIES_MAX.default:,}", "`OTEL_ML_SERIES_MAX`",
          "further ones are left out, and reported", "`dropped{too many series}`",
          f"{ROOM}::test_series_beyond_the_limit_are_left_out_counted_and_said_and_the_others_go_on"),
    Bound("A run in memory", "series without a step of other programs", f"{ENGINE.scraped_series:,}",
          "`scraped: {max_series}`", "further ones are left out, and reported", "`overflow`",
          f"{UNIT}/aggregation/test_third_party_points.py::test_series_beyond_the_budget_are_left_out_counted_and_said_once"),
    Bound("A run in memory", "axes, over all roles", f"{ENGINE.axes:,}", "fixed",
          "further ones are left out, and reported", "`dropped{too many axes}`",
          f"{ROOM}::test_axes_beyond_the_limit_are_left_out_and_the_steps_of_the_others_still_close"),
    Bound("A run in memory", "processes that ever sent anything", f"{ENGINE.writers:,}", "fixed",
          "further ones are left out, and reported", "`dropped{too many processes}`",
          f"{ROOM}::test_processes_beyond_the_limit_are_left_out_and_hold_nothing_up"),
    Bound("A run in memory", "parameters", f"{ENGINE.params:,}", "fixed",
          "further ones are left out, and reported", "the run",
          f"{ROOM}::test_parameters_beyond_the_limit_are_left_out_and_said"),
    Bound("A run in memory", "final values of `run.summary()`, of all ranks", f"{ENGINE.summaries:,}", "fixed",
          "further ones are published at once, equal or not, with the rank in their name", "the run",
          f"{ROOM}::test_summaries_beyond_the_limit_are_published_with_the_rank_in_their_name"),
    Bound("A run in memory", "gaps in a process' running numbers", f"{writer_state.MAX_GAPS:,}", "fixed",
          "the oldest counts as arrived", "`duplicate`",
          f"{SMALL}::test_gaps_of_a_writer_beyond_the_bound_are_filled_from_the_oldest"),
    Bound("A run in memory", "requests of a process that a Collector split and sent half of",
          f"{writer_state.MAX_PARTS:,}", "fixed", "the oldest counts as arrived", "`duplicate`",
          f"{SMALL}::test_split_running_numbers_beyond_the_bound_count_as_complete_from_the_oldest"),
    Bound("A run in memory", "points of other programs remembered, to know them again",
          f"2 × {ENGINE.identities:,}, {ENGINE.identity_memory_s / 60:.0f} minutes", "fixed",
          "remembered for a shorter time", "–",
          f"{ROOM}::test_identities_are_forgotten_sooner_where_more_come_than_can_be_remembered"),
    Bound("A run in memory", "cumulative streams", f"{cumulative_streams.MAX_STREAMS:,}", "fixed",
          "the older half goes, of those of single steps if there are any", "–",
          f"{SMALL}::test_streams_of_single_steps_beyond_the_bound_go_from_the_oldest"),
    Bound("A run in memory", "meters of a process whose up-down counters are added up",
          f"{cumulative_streams.MAX_METERS}", "fixed", "of further ones the last counts", "–",
          f"{UNIT}/aggregation/test_sdk_gauges.py::"
          "test_levels_of_more_meters_than_are_added_up_do_not_slow_the_others_down"),
    Bound("A run in memory", "steps known, span ids (as intervals); times of steps; shapes; reductions looked at",
          f"{step_streams.MAX_KNOWN:,}, {spans.MAX_GAPS:,}; {training_clock.MAX_ENTRIES:,}; "
          f"{interned_series.MAX_IDLE:,} idle; {reductions.MAX_PLANS:,} and {quota.MAX_SHAPES:,}", "fixed",
          "the oldest are forgotten", "–",
          f"{ROOM}::test_any_number_of_steps_leaves_an_engine_as_large_as_it_was"),
    Bound("A run in memory", "messages about a run", f"{output.MAX_SAID:,}, kept {outbox.MAX_NOTICES:,}", "fixed",
          "further ones are left out; those of exporters and of the disk are in `service.log`", "–",
          f"{SMALL}::test_a_run_keeps_so_many_notices_and_no_more"),
    Bound("A run in memory", "records for exporters that keep up", size(recent_records.MAX_BYTES), "fixed",
          "the others read `run.db`", "`lag`",
          f"{SMALL}::test_records_that_wait_for_exporters_in_memory_are_bounded_in_bytes"),
    Bound("A run in memory", "records handed to an exporter at once",
          f"its `max_batch`, {size(outbox._READ_BYTES)}", "fixed", "the next batch", "–",
          f"{UNIT}/storage/test_damaged_outbox.py::"
          "test_a_batch_is_bounded_in_bytes_however_many_records_are_asked_for"),
    Bound("A run in memory", "reasons why records were lost, an exporter", str(losses.REASONS), "fixed",
          "counted as “for other reasons”", "`lost`",
          f"{SMALL}::test_reasons_of_losses_are_told_apart_up_to_a_hundred"),
    Bound("The service in memory", "counters by label", f"{MAX_LABELS:,}", "fixed", "counted as `other`", "`/metrics`",
          f"{SMALL}::test_counters_are_told_apart_up_to_a_hundred"),
    Bound("On disk", "records in `run.db`, of all open runs", size(env.DIR_MAX.default), "`OTEL_ML_DIR_MAX`",
          "the oldest go; an exporter that had not written them loses its place, and reported", "`lost`",
          "tests/integration/test_service_restart.py::"
          "test_at_the_disk_limit_the_slowest_exporter_loses_its_place_and_replay_fills_it"),
    Bound("On disk", "closed steps of a run, for late data",
          f"{size(env.CLOSED_MAX.default)}, an eighth of `OTEL_ML_DIR_MAX`, {env.CLOSED_HOURS.default} hours",
          "`OTEL_ML_CLOSED_MAX`, `OTEL_ML_CLOSED_HOURS`",
          "what comes later for a name that the step has goes to `late.otlp`; new names always land", "`too_late`",
          f"{UNIT}/aggregation/test_late_data.py::test_what_is_on_the_disk_is_bounded_in_bytes_and_the_series_of_all_"
          "steps_take_next_to_nothing"),
    Bound("On disk", "`late.otlp`, a run", size(env.LATE_MAX.default), "`OTEL_ML_LATE_MAX`",
          "the point is dropped, and reported",
          "`dropped{late.otlp is full}`",
          f"{UNIT}/live_runs/test_late_file.py::test_beyond_its_limit_it_takes_no_more_and_says_how_much_it_left_out"),
    Bound("On disk", "requests of runs whose files cannot be used", size(unreadable_requests._MOST_BYTES), "fixed",
          "dropped, logged", "`dropped{its run's files cannot be used}`",
          f"{SMALL}::test_requests_that_no_run_can_take_are_kept_up_to_a_bound"),
    Bound("On disk", "`service.log`, a run", f"2 × {size(run_log.LOG_BYTES)}", "fixed", "begins anew", "–",
          f"{SMALL}::test_the_log_of_a_run_begins_anew_and_one_old_file_is_kept"),
    Bound("A backend", "W&B: metrics of a run", "10,000", "option `names` of `wandb`",
          "further ones are not written there, and reported", "`lost`",
          "tests/integration/test_wandb_online.py::"
          "test_metrics_beyond_the_budget_of_names_are_left_out_and_the_rows_stay_whole"),
    Bound("A backend", "W&B: a row", "10 MB", "W&B's own", "what does not fit is left out, and reported", "`lost`",
          "tests/unit/otel_ml_exporters/backends/wandb/test_rows.py::"
          "test_a_row_above_the_limit_keeps_its_place_and_says_how_much_is_left_out"),
)  # fmt: skip


def markdown() -> str:
    """Return the table of `docs/reliability.md`."""
    lines = ["| what | most | set by | then | shown by |", "|---|---|---|---|---|"]
    part = ""
    for bound in BOUNDS:
        if bound.part != part:
            part = bound.part
            lines.append(f"| **{part}** | | | | |")
        lines.append(f"| {bound.what} | {bound.most} | {bound.setting} | {bound.then} | {bound.shown} |")
    return "\n".join(lines)
