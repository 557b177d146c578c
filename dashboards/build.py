"""The Governor dashboard. `python -m dashboards.build` writes ``governor.json``; a test keeps file and code equal, and
sends every query to a real Prometheus."""

import json
from pathlib import Path

from dashboards.grafana import Json, Panel, Query, Row, choice, dashboard, datasource

FILE = Path(__file__).with_name("governor.json")

P = 'pool=~"$pool"'
# Every program exports process_*; ours are those that come from where Governor's own metrics come from.
_OURS = "* on (job, instance) group_left () governor_build_info"
_GOOD_BAD = {"0": ("no", "red"), "1": ("yes", "green")}


def _stat(
    title: str,
    text: str,
    expr: str,
    *,
    legend: str = "",
    unit: str = "short",
    steps: tuple[tuple[float | None, str], ...] = (),
    words: dict[str, tuple[str, str]] | None = None,
) -> Panel:
    return Panel(title, "stat", text, (Query(expr, legend),), unit, 4, 4, steps, words or {}, names=bool(legend))


def _lines(title: str, text: str, *queries: Query, unit: str = "short", **rest: object) -> Panel:
    return Panel(title, "timeseries", text, queries, unit, **rest)  # type: ignore[arg-type]  # passed on as they are


def _latency(title: str, signals: str, text: str) -> Panel:
    """Measured latency with its bounds against the targets. Log scale: near saturation it grows by powers."""
    pick = f'{P},signal=~"{signals}"'
    return _lines(
        title,
        text,
        Query(f"governor_signal{{{pick}}}", "{{pool}} {{signal}} {{stat}}"),
        Query(f"governor_signal_lower_bound{{{pick}}}", "{{pool}} {{signal}} {{stat}} at least", "bound"),
        Query(f"governor_signal_upper_bound{{{pick}}}", "{{pool}} {{signal}} {{stat}} at most", "bound"),
        Query(f"governor_objective_target{{{pick}}}", "{{pool}} {{objective}} target", "promise"),
        unit="s",
        width=8,
        log=True,
    )


def _signals(title: str, signals: str, text: str, unit: str, **rest: object) -> Panel:
    query = Query(f'governor_signal{{{P},signal=~"{signals}"}}', "{{pool}} {{signal}}")
    return _lines(title, text, query, unit=unit, width=8, minimum=0, **rest)


NOW = Row(
    "Now",
    (
        _stat("Mode", "A dry run decides and records, and writes nothing.", "governor_run_mode", legend="{{mode}}",
              steps=((None, "blue"),)),
        _stat("Config on disk valid", "No: the previous config is in force; see /api/v1/status.",
              "min(governor_config_valid)", words=_GOOD_BAD),
        _stat("Source readable", "No: nothing is relaxed while Governor is blind.", "min(governor_source_up)",
              words=_GOOD_BAD),
        _stat("Since the last tick", "In intervals; above 3 the liveness probe fails.",
              "(time() - min(governor_last_tick_timestamp_seconds)) / min(governor_interval_seconds)",
              steps=((None, "green"), (2, "orange"), (3, "red"))),
        _stat("Promises not kept", "Objectives whose attainment is certainly below what was promised.",
              f"count(governor_attainment_upper_bound{{{P}}} < governor_objective_share{{{P}}}) or vector(0)",
              steps=((None, "green"), (1, "red"))),
        _stat("Targets not ours to move", "Pinned, written by somebody else, unreadable, or of unknown outcome.",
              f"(count(governor_target_pin{{{P}}}) or vector(0)) + "
              f"(count(governor_target_foreign_writer{{{P}}}) or vector(0)) + "
              f"(count(governor_target_unreadable{{{P}}} == 1) or vector(0)) + "
              f'(count(governor_target_outcome{{{P},outcome="unknown"}}) or vector(0))',
              steps=((None, "green"), (1, "orange"))),
    ),
)  # fmt: skip

PROMISES = Row(
    "Promises",
    (
        _lines(
            "Attainment against what was promised",
            "Share of offered requests that met the target, with bounds: the truth is between the thin lines.",
            Query(f"governor_attainment_ratio{{{P}}}", "{{pool}} {{objective}}"),
            Query(f"governor_attainment_lower_bound{{{P}}}", "{{pool}} {{objective}} at least", "bound"),
            Query(f"governor_attainment_upper_bound{{{P}}}", "{{pool}} {{objective}} at most", "bound"),
            Query(f"governor_objective_share{{{P}}}", "{{pool}} {{objective}} promised", "promise"),
            unit="percentunit",
            maximum=1,
        ),
        _lines(
            "Error budget burn rate",
            "1 spends the budget exactly over its period. Both windows of a pair above its line: 14.4 (1h, 5m) is an "
            "emergency, 6 (6h, 30m) urgent.",
            Query(f"governor_burn_rate{{{P}}}", "{{pool}} {{objective}} {{window}}"),
            minimum=0,
            steps=((None, "green"), (1, "yellow"), (6, "orange"), (14.4, "red")),
        ),
        _latency("Time to first token", "ttft", "From the engine's arrival clock."),
        _latency("Time per token", "tpot|itl", "tpot per request, itl per emission."),
        _latency("End to end and waiting", "e2e|queue_time|queue_delay",
                 "queue_delay is what a request joining now must expect; queue_time only knows waits that are over."),
        Panel(
            "What cannot be seen",
            "table",
            "Objectives and signals whose reading is neither good nor unsupported: nothing is relaxed on them.",
            (Query(f'governor_signal_state{{{P},state!~"ok|unsupported|no_traffic"}}'),),
            width=24,
            height=6,
        ),
    ),
)  # fmt: skip

LOAD = Row(
    "Load",
    (
        _signals("Requests", "offered_rate|admitted_rate|finished_rate", "Offered above finished: the queue grows.",
                 "reqps"),
        _signals("Waiting and running", "queue_depth|running", "Requests in the queues and batches of the pool.",
                 "short"),
        _signals("KV cache in use", "kv_usage|kv_usage_max", "Near 100 % sequences are thrown out of the batch.",
                 "percentunit", maximum=1, steps=((None, "green"), (0.9, "red"))),
        _signals("Tokens", "prompt_token_rate|generation_token_rate", "Processed and produced per second.", "short"),
        _signals("Errors, retries, cache hits", "error_ratio|retry_share|prefix_hit_rate", "Shares.", "percentunit",
                 maximum=1),
        _signals("Trouble", "aborts|timeouts|preemptions|oom_restarts|crash_restarts|stuck",
                 "Events in the control window, and replicas that hold work and produce nothing.", "short"),
    ),
)  # fmt: skip

CAPACITY = Row(
    "Capacity and levers",
    (
        _lines(
            "Replicas",
            "Accepted by the platform, wanted by the plan, ready to serve, and the configured bounds.",
            Query(f'governor_target_current{{{P},lever="replicas"}}', "{{pool}} accepted", "step"),
            Query(f'governor_target_final{{{P},lever="replicas"}}', "{{pool}} wanted", "wanted"),
            Query(f'governor_target_ready{{{P},lever="replicas"}}', "{{pool}} ready", "step"),
            Query(f'sum by (pool) (governor_target_pending{{{P},lever="replicas"}})', "{{pool}} pending", "step"),
            Query(f'governor_target_limit{{{P},lever="replicas"}}', "{{pool}} {{bound}}", "limit"),
            minimum=0,
        ),
        _lines(
            "Demand against supply",
            "In replica-equivalents: one warm replica at its operating point is 1.",
            Query(f'governor_estimate{{{P},quantity=~"demand|forecast|backlog"}}', "{{pool}} {{quantity}}"),
            Query(f'governor_target_ready{{{P},lever="replicas"}}', "{{pool}} ready", "promise"),
            minimum=0,
        ),
        _lines(
            "Other levers",
            "Lowest and highest value of each lever over its members, as read back; no limit is not drawn.",
            Query(f'min by (pool, lever) (governor_target_current{{{P},lever!="replicas"}} < 1e12)',
                  "{{pool}} {{lever}} lowest", "step"),
            Query(f'max by (pool, lever) (governor_target_current{{{P},lever!="replicas"}} < 1e12)',
                  "{{pool}} {{lever}} highest", "step"),
            width=8,
        ),
        _lines(
            "Capacity on its way",
            "Age of the oldest replica that was asked for and does not serve yet.",
            Query(f"governor_target_pending_oldest_seconds{{{P}}}", "{{pool}} {{lever}} {{member}}"),
            unit="s",
            width=8,
            minimum=0,
        ),
        _lines(
            "What was learned of a replica",
            "Requests/s at the operating point, and the factor by which measured capacity differs from the model.",
            Query(f'governor_estimate{{{P},quantity=~"unit_rate|kappa"}}', "{{pool}} {{quantity}}"),
            width=8,
            minimum=0,
        ),
    ),
)  # fmt: skip

WHY = Row(
    "Why",
    (
        Panel(
            "Reason of the newest decision",
            "table",
            "One line per pool's replicas, and members of other levers counted; docs/reasons.md explains each.",
            (Query(f'governor_decision_reason{{{P},lever="replicas"}} or '
                   f'count by (pool, lever, why) (governor_decision_reason{{{P},lever!="replicas"}})'),),
        ),
        _lines(
            "Decisions by reason",
            "Every target gets one decision per tick, also when nothing changes.",
            Query(f"sum by (why) (increase(governor_decisions_total{{{P}}}[$__rate_interval]))", "{{why}}"),
            stack=True,
        ),
        _lines(
            "Who changed the value on its way",
            "Steps of policies and guards between the current and the final value.",
            Query(f"sum by (by, why) (increase(governor_steps_total{{{P}}}[$__rate_interval]))", "{{by}}: {{why}}"),
            stack=True,
        ),
        _lines(
            "Writes by outcome",
            "unknown blocks the target until it has been verified.",
            Query(f"sum by (outcome) (increase(governor_outcomes_total{{{P}}}[$__rate_interval]))", "{{outcome}}"),
            stack=True,
        ),
        Panel(
            "Modes",
            "table",
            "How far each lever may go.",
            (Query(f"governor_lever_mode{{{P}}}"),),
            height=6,
        ),
        Panel(
            "Pins and foreign writers",
            "table",
            "Targets that a person or another controller holds.",
            (Query(f"governor_target_foreign_writer{{{P}}} or governor_target_pin{{{P}}}"),),
            height=6,
            hidden=("Time", "instance", "job"),
        ),
    ),
)  # fmt: skip

ITSELF = Row(
    "Governor itself",
    (
        _lines(
            "Tick, p99 by phase",
            "A tick must end well within the interval.",
            Query(
                "histogram_quantile(0.99, sum by (phase, le) (rate(governor_tick_seconds_bucket[$__rate_interval])))",
                "{{phase}}",
            ),
            Query("min(governor_interval_seconds)", "interval", "promise"),
            unit="s",
            width=8,
            log=True,
        ),
        _lines(
            "Ticks that did not happen",
            "Missed slots are never caught up; an error is a bug worth reporting.",
            Query("increase(governor_ticks_missed_total[$__rate_interval])", "missed"),
            Query("increase(governor_tick_errors_total[$__rate_interval])", "errors"),
            Query("increase(governor_source_errors_total[$__rate_interval])", "without a source"),
            width=8,
            stack=True,
        ),
        _lines(
            "Config reloads",
            "An invalid one leaves the previous config in force.",
            Query("increase(governor_config_reloads_total[$__rate_interval])", "{{result}}"),
            width=8,
            stack=True,
        ),
        _lines("Processor", "Cores.", Query(f"rate(process_cpu_seconds_total[$__rate_interval]) {_OURS}",
               "{{instance}}"), width=8, minimum=0),
        _lines("Memory", "Resident.", Query(f"process_resident_memory_bytes {_OURS}", "{{instance}}"),
               unit="bytes", width=8, minimum=0),
        Panel("Version and config", "table", "What runs.",
              (Query("governor_build_info"), Query("governor_config_info")), width=8,
              hidden=("Time", "Value #A", "Value #B", "__name__", "job")),
    ),
    closed=True,
)  # fmt: skip

ROWS = (NOW, PROMISES, LOAD, CAPACITY, WHY, ITSELF)


def build() -> Json:
    """The dashboard as Grafana imports it."""
    return dashboard(
        uid="inference-governor",
        title="Inference Governor",
        text="Are the promises kept, at what capacity, and why did Governor decide as it did?",
        rows=ROWS,
        variables=(datasource(), choice("pool", "Pool", "label_values(governor_signal_state, pool)")),
    )


def text() -> str:
    """The content of ``governor.json``."""
    return json.dumps(build(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
