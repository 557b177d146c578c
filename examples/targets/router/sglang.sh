#!/usr/bin/env bash
# sglang-router with a control plane that asks for a key. Needs WORKERS, "http://host:port http://host:port ...".
# Governor's key is of role admin; a key of role user may send requests and no commands.
set -euo pipefail
keys=()
[ -z "${CONTROL_KEY:-}" ] || keys=(--control-plane-api-keys "governor:governor:admin:$CONTROL_KEY")
# shellcheck disable=SC2086
exec sglang-router launch --host "${HOST:-0.0.0.0}" --port "${PORT:-30000}" \
  --prometheus-host "${HOST:-0.0.0.0}" --prometheus-port "${METRICS_PORT:-29000}" \
  --policy "${POLICY:-round_robin}" --worker-urls $WORKERS "${keys[@]}" "$@"
