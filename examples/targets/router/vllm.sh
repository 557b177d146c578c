#!/usr/bin/env bash
# vllm-router. Needs WORKERS, "http://host:port http://host:port ...". Its commands ask for no key (its --api-key is
# for workers), so that nobody but Governor and those who send requests may reach its port.
set -euo pipefail
# shellcheck disable=SC2086
exec vllm-router --host "${HOST:-0.0.0.0}" --port "${PORT:-30000}" \
  --prometheus-host "${HOST:-0.0.0.0}" --prometheus-port "${METRICS_PORT:-29000}" \
  --policy "${POLICY:-round_robin}" --worker-urls $WORKERS "$@"
