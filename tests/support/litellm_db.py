"""The management API of a LiteLLM with a database, as its source of 1.108.7 has it. The real one's database mode does
not run here: it gets the engine of its database client from a site of its own. What the fake knows was read off
``model_management_endpoints.py``, ``key_management_endpoints.py`` and ``proxy_server.py``: which fields merge, which
replace, and what the errors look like.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass
class Database:
    """`models` and `keys` by id. `script`: how it treats the next writes: a status, or lost (does it, and hangs up),
    mute (never answers), text (200 with a web page), half (writes, then 500)."""

    url: str = ""
    master_key: str = "sk-master"
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    keys: dict[str, dict[str, Any]] = field(default_factory=dict)
    script: list[int | str] = field(default_factory=list)
    page: str = ""  # instead of every answer to a reading
    writes: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)

    def model(self, name: str, group: str, weight: float | None = None, **info: Any) -> None:
        params: dict[str, Any] = {"model": "openai/m", "api_base": f"http://{name}:8000/v1"}
        if weight is not None:
            params["weight"] = weight
        self.models[name] = {
            "model_name": group,
            "litellm_params": params,
            "model_info": {"id": name, "db_model": True, **info},
        }

    def key(self, token: str, tpm: int | None, **metadata: Any) -> None:
        self.keys[token] = {"key_alias": token, "tpm_limit": tpm, "rpm_limit": None, "metadata": metadata}


def _error(message: str, code: int) -> tuple[int, dict[str, Any]]:
    return code, {"error": {"message": message, "type": "None", "param": "None", "code": str(code)}}


class _Handler(BaseHTTPRequestHandler):
    data: Database
    wbufsize = 1 << 16

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if self.data.page:
            self._send(200, self.data.page.encode())
        elif not self._admitted():
            self._json(*_error("Authentication Error, Invalid proxy server token passed", 401))
        elif parts.path == "/v1/model/info":
            self._json(200, {"data": list(self.data.models.values())})
        elif parts.path == "/key/info":
            token = parse_qs(parts.query)["key"][0]
            if token in self.data.keys:
                self._json(200, {"key": token, "info": self.data.keys[token]})
            else:
                self._json(*_error("Key not found in database", 404))
        else:
            self._json(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        self._write()

    def do_PATCH(self) -> None:
        self._write()

    def _write(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self._admitted():
            self._json(*_error("Authentication Error, Invalid proxy server token passed", 401))
            return
        step = self.data.script.pop(0) if self.data.script else "do"
        if isinstance(step, int):
            self._json(*_error("no", step))
            return
        if step == "mute":
            self.data.released.wait(30)
            self.close_connection = True
            return
        answer = self._model(body) if self.command == "PATCH" else self._key(body)
        if step == "lost":
            self.close_connection = True
        elif step == "text":
            self._send(200, b"<html>Welcome</html>")
        elif step == "half":
            self._json(*_error("Error updating model: serving is degraded", 500))
        else:
            self._json(*answer)

    def _model(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        name = unquote(self.path.split("/")[2])
        row = self.data.models.get(name)
        if row is None:
            return _error(f"Model {name} not found on proxy.", 404)
        if not row["model_info"]["db_model"]:
            return _error("Cannot edit config-based model. Store model in DB via /model/new first.", 400)
        self.data.writes.append((name, body))
        row["litellm_params"].update(body.get("litellm_params", {}))
        row["model_info"].update(body.get("model_info", {}))
        return 200, {"model_id": name, **row}

    def _key(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        token = body.pop("key")
        if token not in self.data.keys:
            return _error("Key not found in database", 404)
        self.data.writes.append((token, body))
        self.data.keys[token].update(body)  # metadata as a whole
        return 200, {"key": token, **self.data.keys[token]}

    def _admitted(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {self.data.master_key}"

    def _json(self, status: int, body: dict[str, Any]) -> None:
        self._send(status, json.dumps(body).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silence."""


@contextmanager
def litellm_database() -> Iterator[Database]:
    data = Database()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"data": data}))
    data.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield data
    finally:
        data.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
