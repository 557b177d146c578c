"""What a gateway costs for one request, from arrival to end, in processor time (docs/gateway.md).

python -m benchmarks.gateway
"""

import time
from statistics import median

from routing.actions import Send
from routing.gateway import Gateway
from routing.knobs import Admission, Breaker, Concurrency, Klass, Knobs, Queue, Retries, Tenant
from routing.model import Replica, Request
from routing.strategies import make

COUNT = 4000
RUNS = 7
CLASSES = {
    "critical": Klass(rank=0, floor=0.5, target=2.0, delay_lo=1.6, delay_hi=2.4, load_lo=1.05, load_hi=1.25),
    "batch": Klass(rank=2, floor=0.05, target=2.0, delay_lo=0.25, delay_hi=1.0, load_lo=0.85, load_hi=1.0),
}
ALL = Knobs(
    concurrency=Concurrency(per_slot=1.0),
    queue=Queue(fair=True),
    classes=CLASSES,
    admission=Admission(deadlines=True, prefill_rate=1e7),
    other_tenants=Tenant(requests_per_s=1e6, request_burst=1e6, tokens_per_s=1e9, token_burst=1e9),
    breaker=Breaker(on=True),
    retries=Retries(attempts=2, client_budget=0.1),
    longest_prompt=100_000,
)


def cost(knobs: Knobs, tenants: int, slots: int) -> float:
    """Seconds of processor time for one request: arrival, first token, end."""
    gateway = Gateway(knobs, make("least-loaded"))
    for i in range(16):
        gateway.joined(Replica(f"r{i}", slots=slots), 0.0)
    requests = [
        Request(i, 1000, 256, tenant=f"t{i % tenants}", klass=("critical", "batch")[i % 2], deadline=1e6)
        for i in range(COUNT)
    ]
    sent: list[int] = []
    began, done = time.process_time(), 0
    for i, request in enumerate(requests):
        now = i * 1e-3
        sent += [action.id for action in gateway.arrive(request, now) if isinstance(action, Send)]
        if i >= 16 * slots and done < len(sent):
            gateway.first_token(sent[done], now)
            sent += [action.id for action in gateway.finished(sent[done], 100, now) if isinstance(action, Send)]
            done += 1
    return (time.process_time() - began) / COUNT


def main() -> None:
    """Print microseconds for one request, the median of several runs."""
    queueing = Knobs(concurrency=Concurrency(per_slot=1.0), queue=Queue(fair=True, length=10_000))
    for title, knobs, tenants in (
        ("all laws off", Knobs(), 10),
        ("all laws on", ALL, 10),
        ("a fair queue, 10 tenants", queueing, 10),
        ("a fair queue, 1,000 tenants", queueing, 1000),
    ):
        print(f"{title:<30}{median(cost(knobs, tenants, 16) for _ in range(RUNS)) * 1e6:6.1f} us")


if __name__ == "__main__":
    main()
