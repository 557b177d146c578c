"""A real Prometheus on loopback: blocks written by promtool, a server ended by its pid."""

import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from sources.frames import Sample
from tests.support.ports import free_port

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="prometheus and promtool are not installed (Debian: apt-get install prometheus)",
)


def series(name: str, labels: Mapping[str, str], value: float) -> Sample:
    return Sample(name, tuple(sorted(labels.items())), value)


def write_blocks(scrapes: Iterable[tuple[float, Iterable[Sample]]], storage: Path) -> None:
    """Turn scrapes (unix seconds, samples) into TSDB blocks under `storage`."""
    text = storage.parent / f"{storage.name}.om"
    with text.open("w") as out:
        for at, samples in scrapes:
            for name, pairs, value in samples:
                out.write(f"{name}{{{','.join(f'{k}={_quoted(v)}' for k, v in pairs)}}} {value!r} {at:.3f}\n")
        out.write("# EOF\n")
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(storage)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text.unlink()


@contextmanager
def prometheus(storage: Path, config: str = "", flags: Iterable[str] = ()) -> Iterator[str]:
    """Serve what is in `storage`; gives the address. Old blocks are kept, whatever their age."""
    storage.mkdir(exist_ok=True)
    file = storage.parent / f"{storage.name}.yml"
    file.write_text(config or "global: {}\n")
    address = f"127.0.0.1:{free_port()}"
    command = [
        "prometheus",
        f"--config.file={file}",
        f"--storage.tsdb.path={storage}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address={address}",
        *flags,
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        reader: threading.Thread | None = None
        try:
            reader = _until_ready(server)
            yield f"http://{address}"
        finally:
            server.terminate()
            try:
                server.wait(15)
            except subprocess.TimeoutExpired:
                server.kill()
            if reader is not None:
                reader.join()  # before the pipe is closed under it


def _until_ready(server: "subprocess.Popen[str]") -> threading.Thread:
    """Wait for the server's own word, then keep its pipe empty in the thread that is given back."""
    assert server.stderr is not None
    pipe = server.stderr
    said: list[str] = []
    for line in pipe:
        said.append(line)
        if "Server is ready to receive web requests" in line:
            reader = threading.Thread(target=lambda: [None for _ in pipe], daemon=True)
            reader.start()
            return reader
    raise AssertionError(f"prometheus did not start: {''.join(said[-5:])}")


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
