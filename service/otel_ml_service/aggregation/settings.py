"""The limits an engine works within; seconds and bytes (docs/protocol.md §5.11)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EngineSettings"]


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Inert and comparable; the engine never changes it.

    Attributes:
        allowed_lateness_s: how long a quiet member is waited for, at least.
        first_lateness_s: the same until three steps have closed on an axis.
        world_wait_s: how long the first step of an axis waits for `ml.world_size` ranks after its first done writer.
        restart_wait_s: how long the clocks wait for every known writer after a gap in which nobody was heard.
        quiet_s: nobody at all was heard for this long: the clocks stand still. Several heartbeats.
        heartbeat_s: a live writer inside a step is heard more often than this.
        open_bytes: open windows beyond it close, oldest first.
        retained_steps: closed steps per axis of which the fold state is kept in memory; of others it is on the disk.
        retained_bytes: bound of all fold states of closed steps in memory.
        closed_bytes: bound of all fold states of closed steps on the disk only; what comes later for what was exported
            at a step is too late.
        closed_s: how long they are kept there; time in which nobody is heard does not count.
        announced_wait_s: how long to wait, while nobody is heard, for what a shutdown message announces. The
            Collector's gRPC client waits up to 120 s and a fifth of it before it connects again, for each signal by
            itself.
        end_silence_s: a run of which nobody was heard for this long ends (embedded mode: 30).
        resume_wait_s: how long a service that goes on with a run waits for its writers, however long it was down.
        time_window_s: width of a window on the axis `time`, for records of our own without a step.
        third_party_window_s: the same for points of other SDKs and scraped engines.
        writers: most processes that ever sent anything; points of further ones are counted only.
        axes: most (role, axis) of the run; points on further ones are counted only.
        params: most hyper-parameters; further ones are reported.
        summaries: most values of `summary()` that are kept until the end of the run; further ones name their rank.
        identities: most points and events without a running number that are remembered in one `identity_memory_s`;
            where more come, each is remembered for a shorter time.
        series: most (role, name, attributes) of the run; points of further ones are counted only.
        scraped_series: most series without a step from other SDKs and scraped engines; further ones are counted only.
        scraped_allow, scraped_deny: globs of their names; one that matches both is denied.
        top_ranks: so many of the slowest and of the fastest ranks of each timer are published; 0 for none.
        findings: whether slow and silent ranks, pauses and where the time of a step goes are looked for.
        identity_memory_s: how long points without a running number are remembered, to recognize them again.
    """

    allowed_lateness_s: float = 10.0
    first_lateness_s: float = 60.0
    world_wait_s: float = 3.0
    restart_wait_s: float = 60.0
    quiet_s: float = 5.0
    heartbeat_s: float = 2.0
    open_bytes: int = 1 << 30
    retained_steps: int = 1024
    retained_bytes: int = 256 << 20
    closed_bytes: int = 1 << 30
    closed_s: float = 24 * 3600.0
    announced_wait_s: float = 150.0
    end_silence_s: float = 300.0
    resume_wait_s: float = 0.0
    time_window_s: float = 1.0
    third_party_window_s: float = 10.0
    writers: int = 100_000
    axes: int = 1_000
    params: int = 10_000
    summaries: int = 100_000
    identities: int = 500_000
    series: int = 100_000
    scraped_series: int = 10_000
    scraped_allow: tuple[str, ...] = ("*",)
    scraped_deny: tuple[str, ...] = ("scrape_*",)
    top_ranks: int = 0
    findings: bool = True
    identity_memory_s: float = 600.0
