"""The OpenAI completions protocol, as far as vLLM's clients use it: bodies to requests, tokens to answers. No I/O.

The twin has no words, so a prompt's tokens are counted, not read: token ids as they are, text as a token for every
four characters. Equal beginnings of prompts share a prefix as they would in a real engine. An answer has as many tokens
as the request allows.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from routing.model import Request

BLOCK = 64  # tokens of one prefix hash
CHARACTERS = 4  # of text for one token
MOST = 10_000_000  # tokens; more is a mistake or an attack
DEFAULT_TOKENS = 16  # of an answer when the request does not say, as in vLLM's completions


class BadRequest(Exception):
    """What the client sent makes no sense; the message says why, `status` is HTTP's word for it."""

    status = 400


class NoSuchModel(BadRequest):
    """It asks for a model that is not served here."""

    status = 404


@dataclass(frozen=True, slots=True)
class Order:
    """A parsed body. `usage` says that a stream ends with the count of tokens."""

    request: Request
    stream: bool
    usage: bool
    chat: bool


def parse(raw: bytes, id_: int, model: str, *, chat: bool, headers: Mapping[str, str]) -> Order:
    """The order in a body for `model`; tenant and class come from the headers X-Tenant and X-Class. Raises
    BadRequest."""
    body = plain(raw)
    if body.get("model", model) != model:
        raise NoSuchModel(f"The model `{body['model']}` does not exist.")
    if body.get("n", 1) != 1:
        raise BadRequest("n must be 1: an answer has no other words than another")
    stream = body.get("stream", False)
    if not isinstance(stream, bool):
        raise BadRequest(f"stream must be true or false, got {stream!r}")
    pieces = _chat(body) if chat else _prompt(body)
    limit = _whole(body, "max_completion_tokens" if "max_completion_tokens" in body else "max_tokens", DEFAULT_TOKENS)
    if not 1 <= limit <= MOST:
        raise BadRequest(f"max_tokens must be between 1 and {MOST}, got {limit}")
    priority = _whole(body, "priority", 0)
    options = body.get("stream_options") or {}
    prefix, tokens = _hashes(pieces)
    request = Request(
        id_, tokens, limit, prefix, BLOCK,
        tenant=headers.get("X-Tenant", ""), klass=headers.get("X-Class", ""), priority=priority, model=model,
    )  # fmt: skip
    usage = isinstance(options, dict) and options.get("include_usage") is True
    return Order(request, stream, usage, chat)


def plain(raw: bytes) -> dict[str, Any]:
    """The object in a body, with finite numbers. Raises BadRequest."""
    try:
        body = json.loads(raw, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise BadRequest("the body is no JSON object")
    return body


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _whole(body: Mapping[str, Any], name: str, default: int) -> int:
    value = body.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadRequest(f"{name} must be a whole number, got {value!r}")
    return value


def _prompt(body: Mapping[str, Any]) -> Sequence[str | int]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], (str, list)):
        if len(prompt) > 1:
            raise BadRequest("one prompt for each request, please")
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt:
        return _text(prompt)
    if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        return prompt
    raise BadRequest("prompt must be a text or a list of token ids, and not empty")


def _chat(body: Mapping[str, Any]) -> Sequence[str | int]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages must be a list, and not empty")
    told = []
    for message in messages:
        if not isinstance(message, dict):
            raise BadRequest("each message must be an object")
        told.append(f"{message.get('role', '')}\n{_content(message.get('content'))}\n")
    return _text("".join(told))


def _content(content: object) -> str:
    """The text of a message: as it is, in parts, or none beside a tool call."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        if len(parts) == len(content) and all(isinstance(part, str) for part in parts):
            return "".join(map(str, parts))
    raise BadRequest("the content of a message must be a text, or a list of text parts")


def _text(text: str) -> Sequence[str]:
    return [text[at : at + CHARACTERS] for at in range(0, len(text), CHARACTERS)]


def _hashes(tokens: Sequence[str | int]) -> tuple[tuple[int, ...], int]:
    """Chained hashes of the whole leading blocks, and the number of tokens."""
    found: list[int] = []
    chain = b""
    for at in range(0, len(tokens) - BLOCK + 1, BLOCK):
        block = "\x00".join(map(str, tokens[at : at + BLOCK])).encode()
        chain = hashlib.blake2b(chain + block, digest_size=8).digest()
        found.append(int.from_bytes(chain) >> 1)
    return tuple(found), len(tokens)


class Answer:
    """The words of one answer. `created` is unix seconds."""

    def __init__(self, order: Order, created: float) -> None:
        self._order = order
        kind = "chat.completion" if order.chat else "text_completion"
        self._kind = f"{kind}.chunk" if order.stream and order.chat else kind
        self._frame = {
            "id": f"{'chatcmpl' if order.chat else 'cmpl'}-{order.request.id}",
            "object": self._kind,
            "created": int(created),
            "model": order.request.model,
        }

    def whole(self, tokens: int) -> str:
        """All of it."""
        text = _words(0, tokens)
        content = {"message": {"role": "assistant", "content": text}} if self._order.chat else {"text": text}
        choice = {"index": 0, **content, "finish_reason": "length"}
        return json.dumps({**self._frame, "choices": [choice], "usage": self._usage(tokens)})

    def chunk(self, made: int, tokens: int) -> str:
        """The event of the tokens from `made` on to `tokens`."""
        text = _words(made, tokens)
        role = {} if made else {"role": "assistant"}
        content = {"delta": {**role, "content": text}} if self._order.chat else {"text": text}
        return _event({**self._frame, "choices": [{"index": 0, **content, "finish_reason": None}]})

    def end(self, tokens: int) -> str:
        """The events after the last token."""
        content: dict[str, object] = {"delta": {}} if self._order.chat else {"text": ""}
        last = _event({**self._frame, "choices": [{"index": 0, **content, "finish_reason": "length"}]})
        usage = _event({**self._frame, "choices": [], "usage": self._usage(tokens)}) if self._order.usage else ""
        return f"{last}{usage}data: [DONE]\n\n"

    def _usage(self, tokens: int) -> dict[str, int]:
        prompt = self._order.request.prompt_tokens
        return {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}


def error(message: str, kind: str, status: int) -> str:
    """The body of a refusal."""
    return json.dumps({"error": {"message": message, "type": kind, "code": status}})


def _words(start: int, end: int) -> str:
    return "".join(f" w{number}" for number in range(start, end))


def _event(body: Mapping[str, object]) -> str:
    return f"data: {json.dumps(body)}\n\n"
