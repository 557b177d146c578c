"""A certificate for loopback, and a server that breaks TLS when it has read a request."""

import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def certificate(folder: Path) -> tuple[Path, Path]:
    """Certificate and key in PEM."""
    made = folder / "tls.crt", folder / "tls.key"
    request = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    more = ["-subj", "/CN=loopback", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", *request, *more, "-out", str(made[0]), "-keyout", str(made[1])]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    return made


@contextmanager
def breaking(folder: Path) -> Iterator[tuple[str, list[bytes]]]:
    """The URL, and the requests that were read whole; each answer is bytes that are no TLS."""
    cert, key = certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    read: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:
                return
            with (
                plain,
                suppress(OSError),  # of one that hangs up on us
                socket.fromfd(plain.fileno(), socket.AF_INET, socket.SOCK_STREAM) as wire,
                context.wrap_socket(plain, server_side=True) as talk,
            ):
                read.append(talk.recv(1 << 16))
                wire.sendall(b"HTTP/1.1 200 OK\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield f"https://127.0.0.1:{listener.getsockname()[1]}", read
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(5)
