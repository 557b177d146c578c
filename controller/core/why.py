"""The closed catalogue of reasons. A member is at once the metric label, the Kubernetes event reason and the anchor in
``docs/reasons.md``; the sentence is what ``explain`` prints."""

from enum import StrEnum


class Why(StrEnum):
    """Why a value was asked for, changed or kept."""

    # asked by policies
    DEMAND = "demand"
    FORECAST = "forecast"
    BACKLOG = "backlog"
    QUEUE_CLEARS = "queue_clears"
    TRIM = "trim"
    LATENCY_HIGH = "latency_high"
    LATENCY_LOW = "latency_low"
    LATENCY_FALLS = "latency_falls"
    NOBODY_WAITS = "nobody_waits"
    ABOVE_THRESHOLD = "above_threshold"
    BELOW_THRESHOLD = "below_threshold"
    KV_PRESSURE = "kv_pressure"
    BUDGET_BURN = "budget_burn"
    SURPLUS = "surplus"
    STEADY = "steady"
    NO_TRAFFIC = "no_traffic"
    TIMETABLE = "timetable"
    CAPACITY_UNAVAILABLE = "capacity_unavailable"
    # asked of single replicas
    PACE = "pace"
    SLOW_START = "slow_start"
    HIT_RATE_LOST = "hit_rate_lost"
    ROUTER_BALANCES = "router_balances"
    LEAVES = "leaves"
    STAYS = "stays"
    SLOW_REPLICA = "slow_replica"
    FAILING_REPLICA = "failing_replica"
    WORSE_VERSION = "worse_version"
    STUCK_REPLICA = "stuck_replica"
    FAULTY_REPLICA = "faulty_replica"
    RESTARTED = "restarted"
    PROBE = "probe"
    WELL_AGAIN = "well_again"
    FLEET_SLOW = "fleet_slow"
    STANDING_CAP = "standing_cap"
    FAIR_SHARE = "fair_share"
    GUARANTEE_INFEASIBLE = "guarantee_infeasible"
    OPERATING_POINT = "operating_point"
    PROMPT_FITS = "prompt_fits"
    OUT_OF_MEMORY = "out_of_memory"
    SHORTFALL = "shortfall"
    CARRIED = "carried"
    NO_CONSENT = "no_consent"
    NO_ROOM = "no_room"
    UNEVEN = "uneven"
    OTHERS_BUSY = "others_busy"
    EVEN = "even"
    # no relaxing without evidence
    STALE = "stale"
    MISSING = "missing"
    PARTIAL = "partial"
    UNDERFILLED = "underfilled"
    UNSUPPORTED = "unsupported"
    WORK_WAITING = "work_waiting"
    STUCK_ENGINE = "stuck_engine"
    # guards
    NOT_DUE = "not_due"
    STABILISE = "stabilise"
    IN_FLIGHT = "in_flight"
    OUTCOME_UNKNOWN = "outcome_unknown"
    PENDING_CAPACITY = "pending_capacity"
    REPLICAS_OUT = "replicas_out"
    DRAINING = "draining"
    UNSAFE_WITHOUT_ONE = "unsafe_without_one"
    COOLDOWN = "cooldown"
    RATE = "rate"
    GROUP_BUDGET = "group_budget"
    EJECTION_CAP = "ejection_cap"
    MIN_BOUND = "min_bound"
    NOTHING_WAKES = "nothing_wakes"
    MAX_BOUND = "max_bound"
    QUANTUM = "quantum"
    FLEET_GUARD = "fleet_guard"
    RATIO = "ratio"
    CHEAPEST = "cheapest"
    NEXT_BEST = "next_best"
    NO_EFFECT = "no_effect"
    UNDO = "undo"
    DAMPED = "damped"
    LEDGER_FULL = "ledger_full"
    # people and ownership
    PIN = "pin"
    BY_HAND = "by_hand"
    MODE_OFF = "mode_off"
    MODE_OBSERVE = "mode_observe"
    MODE_PROTECT = "mode_protect"
    FOREIGN_WRITER = "foreign_writer"
    UNREADABLE_TARGET = "unreadable_target"
    BOOT = "boot"
    POLICY_ERROR = "policy_error"


SENTENCE: dict[Why, str] = {
    Why.DEMAND: "the load offered now needs it",
    Why.FORECAST: "the load expected when new capacity would be warm needs it",
    Why.BACKLOG: "the queue must be worked off",
    Why.QUEUE_CLEARS: "those who wait are served before a new replica would be warm, so none is added for them",
    Why.TRIM: "measured latency corrected the model",
    Why.LATENCY_HIGH: "the signal that is held is above its target",
    Why.LATENCY_LOW: "the signal that is held is well below its target",
    Why.LATENCY_FALLS: (
        "the signal that is held is above its target and falls, so a part of what was done against it is taken back"
    ),
    Why.NOBODY_WAITS: "no request waits any more, so what was cut for the wait is given back",
    Why.ABOVE_THRESHOLD: "the signal is above its upper threshold",
    Why.BELOW_THRESHOLD: "the signal is below its lower threshold",
    Why.KV_PRESSURE: "KV cache is nearly full",
    Why.BUDGET_BURN: "the error budget burns too fast",
    Why.SURPLUS: "less capacity is enough",
    Why.STEADY: "nothing needs to change",
    Why.NO_TRAFFIC: "there is no traffic",
    Why.TIMETABLE: "the timetable of known events wants it",
    Why.CAPACITY_UNAVAILABLE: "replicas that were asked for do not come, so no more are asked for until a later try",
    Why.PACE: "each replica gets the share that it can serve",
    Why.SLOW_START: "a new replica gets its share step by step",
    Why.HIT_RATE_LOST: "the last move of the weights cost cache hits, so it was undone and they rest",
    Why.ROUTER_BALANCES: "the router balances load itself, so weights stay neutral",
    Why.LEAVES: "this replica goes with the next lowering, so it gets no new requests",
    Why.STAYS: "this replica stays after all, so it gets its traffic back",
    Why.SLOW_REPLICA: "this replica is much slower than its peers at a like batch",
    Why.FAILING_REPLICA: "this replica fails far more of its requests than the others",
    Why.WORSE_VERSION: "this replica runs a version that fails or lags where the others do not",
    Why.STUCK_REPLICA: "this replica holds work and produces nothing",
    Why.FAULTY_REPLICA: "the GPU of this replica told a fault",
    Why.RESTARTED: "this replica was restarted, so it proves itself on little traffic first",
    Why.PROBE: "a little traffic shows whether this replica is well again",
    Why.WELL_AGAIN: "this replica has shown that it is well again",
    Why.FLEET_SLOW: "too many replicas look bad at once, so none is taken out",
    Why.STANDING_CAP: (
        "the tenant's standing cap is the highest of its guarantee, room beyond its busiest use, and most of what is "
        "spare"
    ),
    Why.FAIR_SHARE: "it is the tenant's fair share while demand is above what the pool carries",
    Why.GUARANTEE_INFEASIBLE: "more is guaranteed than the pool carries, so only a part of it stands",
    Why.OPERATING_POINT: "it is what one replica holds at its operating point, and a little more",
    Why.PROMPT_FITS: "it is the longest prompt that leaves enough of one replica's KV cache to others",
    Why.OUT_OF_MEMORY: "replicas were killed for want of memory",
    Why.SHORTFALL: "demand is above what serving capacity carries",
    Why.CARRIED: "serving capacity carries more of the demand again",
    Why.NO_CONSENT: "nobody who asks now agreed to it",
    Why.NO_ROOM: "the receiving pool has no room for more",
    Why.UNEVEN: "one replica has far more work than the others, and the pool as a whole is not short",
    Why.OTHERS_BUSY: "one replica has far more work than the others, and they are too busy to take it off",
    Why.EVEN: "replicas are even again, and cache hits come back with affinity",
    Why.STALE: "the data is too old to relax on",
    Why.MISSING: "data is missing, so nothing is relaxed",
    Why.PARTIAL: "only part of the fleet answered, so nothing is relaxed",
    Why.UNDERFILLED: "the window is not full yet, so nothing is relaxed",
    Why.UNSUPPORTED: "the engine does not expose what the policy reads",
    Why.WORK_WAITING: "requests are waiting, so capacity is not lowered",
    Why.STUCK_ENGINE: "an engine holds work and produces nothing, so capacity is not lowered",
    Why.NOT_DUE: "this lever is not due at this tick",
    Why.STABILISE: (
        "the recent past still counts: of capacity its highest need, the older the less, of all else its most careful "
        "value"
    ),
    Why.IN_FLIGHT: "the previous change has not settled",
    Why.OUTCOME_UNKNOWN: "the previous write has an unknown outcome and is being verified",
    Why.PENDING_CAPACITY: "capacity that was asked for is still on its way",
    Why.REPLICAS_OUT: "replicas are out of rotation, and a healthy one may be the one that goes",
    Why.DRAINING: "the replicas that go finish their requests first",
    Why.UNSAFE_WITHOUT_ONE: "one replica fewer would not be safe",
    Why.COOLDOWN: "the last change is too recent",
    Why.RATE: "the rate limit allows no more for now",
    Why.GROUP_BUDGET: "the shared budget allows no more",
    Why.EJECTION_CAP: "no more replicas may be out of rotation at once",
    Why.MIN_BOUND: "it may not be below the configured minimum",
    Why.NOTHING_WAKES: "without a replica nothing would tell that a request came, so one stays",
    Why.MAX_BOUND: "it may not be above the configured maximum",
    Why.QUANTUM: "it is rounded to what the target can take",
    Why.FLEET_GUARD: "too much of the fleet would be lowered at once",
    Why.RATIO: "prefill and decode are sized together",
    Why.CHEAPEST: "another variant of the model does the same work for less",
    Why.NEXT_BEST: "the cheaper variant of the model cannot be had now, so this one is asked",
    Why.NO_EFFECT: "it was moved twice and nothing came of it, so the next lever is asked",
    Why.UNDO: "the last change made things worse and is taken back",
    Why.DAMPED: "this lever was swinging by itself, so it relaxes more slowly",
    Why.LEDGER_FULL: "the ledger cannot be written, so nothing is relaxed",
    Why.PIN: "a person pinned it",
    Why.BY_HAND: "a person put it back",
    Why.MODE_OFF: "the lever is off",
    Why.MODE_OBSERVE: "the lever only observes",
    Why.MODE_PROTECT: "the lever may only protect",
    Why.FOREIGN_WRITER: "somebody else changed this target",
    Why.UNREADABLE_TARGET: "the target could not be read",
    Why.BOOT: "Governor started recently and has not seen a full window",
    Why.POLICY_ERROR: "the policy failed and was skipped",
}
