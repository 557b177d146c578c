#!/usr/bin/env bash
# A frontend of Dynamo whose thresholds Governor can move. Needs the discovery, request and event planes of the fleet in
# its environment. In no router mode but kv does it count the blocks of its workers; in others it refuses late.
# Nobody but Governor and those who send requests may reach its port: /busy_threshold asks for no key.
set -euo pipefail
exec "${PYTHON:-python}" -m dynamo.frontend --http-host "${HOST:-0.0.0.0}" --http-port "${PORT:-8000}" \
  --router-mode kv "$@"
