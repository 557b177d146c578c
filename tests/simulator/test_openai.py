"""Bodies as clients send them, and what they are told."""

import json
from typing import Any

import pytest

from simulator.serve import openai


def order(body: object, *, chat: bool = False, headers: dict[str, str] | None = None) -> openai.Order:
    return openai.parse(json.dumps(body).encode(), 7, "llama", chat=chat, headers=headers or {})


def test_a_prompt_of_token_ids_is_counted_as_it_is_and_text_by_its_length() -> None:
    assert order({"prompt": list(range(1000)), "max_tokens": 5}).request.prompt_tokens == 1000
    assert order({"prompt": "x" * 401}).request.prompt_tokens == 101
    assert order({"messages": [{"role": "user", "content": "x" * 400}]}, chat=True).request.prompt_tokens > 100


def test_a_router_that_hashes_beginnings_sees_two_turns_of_a_conversation_as_strangers() -> None:
    """Prefix hashes must chain: equal as far as the prompts are, and different from there on."""
    first = order({"prompt": list(range(200))}).request.prefix
    second = order({"prompt": list(range(640))}).request.prefix
    other = order({"prompt": [9, *range(1, 640)]}).request.prefix
    assert (len(first), len(second)) == (200 // openai.BLOCK, 640 // openai.BLOCK)
    assert second[: len(first)] == first
    assert not set(other) & set(second)


def test_what_a_client_says_of_itself_reaches_the_request() -> None:
    got = order(
        {"model": "llama", "prompt": "x", "max_tokens": 9, "priority": -1, "stream": True,
         "stream_options": {"include_usage": True}},
        headers={"X-Tenant": "acme", "X-Class": "batch"},
    )  # fmt: skip
    request = got.request
    assert (request.tenant, request.klass, request.priority, request.max_tokens) == ("acme", "batch", -1, 9)
    assert got.stream
    assert got.usage


@pytest.mark.parametrize(
    ("body", "chat", "said"),
    [
        ([], False, "no JSON object"),
        ({"prompt": ""}, False, "not empty"),
        ({"prompt": [True]}, False, "token ids"),
        ({"prompt": "x", "max_tokens": 0}, False, "between 1 and"),
        ({"prompt": "x", "max_tokens": 1.5}, False, "whole number"),
        ({"prompt": "x", "max_tokens": "9"}, False, "whole number"),
        ({"prompt": "x", "priority": 1.5}, False, "priority must be a whole number"),
        ({"prompt": "x", "model": "gpt"}, False, "`gpt` does not exist"),
        ({"messages": []}, True, "not empty"),
        ({"messages": ["x"]}, True, "each message"),
        ({"messages": [{"content": [{"type": "image_url"}]}]}, True, "list of text parts"),
        ({"messages": [{"content": 7}]}, True, "must be a text"),
        ({"prompt": ["a", "b"]}, False, "one prompt for each"),
        ({"prompt": "x", "n": 3}, False, "n must be 1"),
        ({"prompt": "x", "stream": "yes"}, False, "stream must be true or false"),
        ({"prompt": "x"}, True, "messages must be a list"),
    ],
)
def test_a_body_that_makes_no_sense_is_refused_in_words(body: object, chat: bool, said: str) -> None:
    with pytest.raises(openai.BadRequest, match=said):
        order(body, chat=chat)


def test_bodies_as_load_generators_send_them() -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "x" * 400}]}, {"role": "assistant", "content": None}]
    assert order({"messages": parts}, chat=True).request.prompt_tokens > 100
    assert order({"prompt": [[1, 2, 3]]}).request.prompt_tokens == 3
    assert order({"prompt": ["x" * 40]}).request.prompt_tokens == 10


@pytest.mark.parametrize(
    "raw", [b"[" * 100_000, b'{"prompt": NaN}', b'{"prompt": Infinity}'], ids=["deep", "nan", "inf"]
)
def test_a_hostile_body_is_a_bad_request_and_no_crash(raw: bytes) -> None:
    with pytest.raises(openai.BadRequest, match="no JSON"):
        openai.parse(raw, 1, "llama", chat=False, headers={})


def test_bytes_that_are_no_json_are_refused_in_words() -> None:
    with pytest.raises(openai.BadRequest, match="no JSON"):
        openai.parse(b"\xff{", 1, "llama", chat=False, headers={})


@pytest.mark.parametrize("chat", [False, True], ids=["completions", "chat"])
def test_the_chunks_of_a_stream_are_the_words_of_the_whole_answer(chat: bool) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}]} if chat else {"prompt": "hi"}
    asked = {**body, "max_tokens": 5, "stream": True, "stream_options": {"include_usage": True}}
    answer = openai.Answer(order(asked, chat=chat), 1.0)
    events = (answer.chunk(0, 2) + answer.chunk(2, 5) + answer.end(5)).strip().split("\n\n")
    assert events[-1] == "data: [DONE]"
    told: list[dict[str, Any]] = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
    choices = [event["choices"][0] for event in told if event["choices"]]
    text = "".join(c["delta"].get("content", "") if chat else c["text"] for c in choices)
    whole = json.loads(openai.Answer(order({**body, "max_tokens": 5}, chat=chat), 1.0).whole(5))
    choice = whole["choices"][0]
    assert text == (choice["message"]["content"] if chat else choice["text"])
    assert choices[-1]["finish_reason"] == "length"
    assert told[-1]["usage"] == whole["usage"] == {"prompt_tokens": whole["usage"]["prompt_tokens"],
                                                    "completion_tokens": 5,
                                                    "total_tokens": whole["usage"]["prompt_tokens"] + 5}  # fmt: skip
