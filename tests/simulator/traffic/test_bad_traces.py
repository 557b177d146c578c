"""A trace that cannot be used: the error names the file, the line and the mend."""

import gzip
import re
from pathlib import Path

import pytest

from controller.core.errors import InputError
from simulator.traffic.build import build
from simulator.traffic.files import files, within
from simulator.traffic.lengths import Empirical, Pairs
from simulator.traffic.spec import (
    Agentic,
    Azure,
    Conversations,
    Generated,
    Mooncake,
    Prefix,
    Requests,
    ServeGen,
    Stream,
)
from simulator.traffic.traces import read

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
REQUESTS = "arrival_s,tenant,input_tokens,output_tokens\n"
CLIENTS = "client_id,t_s,rate_rps,cv,arrival_pattern,arg1,arg2\n"
SESSION = '{"block_size": 64, "requests": [{"t": 0, "in": 70, "out": 3, "hash_ids": [1]}]}\n'


def stream(kind: str, file: Path) -> Stream:
    kinds: dict[str, Stream] = {
        "azure": Azure(name="s", file=str(file)),
        "mooncake": Mooncake(name="s", file=str(file)),
        "requests": Requests(name="s", file=str(file)),
        "servegen": ServeGen(name="s", file=str(file)),
        "agentic": Agentic(name="s", file=str(file), rate=1.0),
    }
    return kinds[kind]


@pytest.mark.parametrize(
    ("kind", "text", "place", "words"),
    [
        ("azure", "", 1, "there is no column TIMESTAMP; this kind of trace has TIMESTAMP, ContextTokens"),
        ("azure", "TIMESTAMP,ContextTokens\n", 1, "there is no column GeneratedTokens"),
        ("azure", AZURE, 1, "there are no requests in it; give a file with at least one"),
        ("azure", AZURE + "2023-11-16 18:15:46.6805900,374,44\nyesterday,1,1\n", 3, "TIMESTAMP is 'yesterday'"),
        ("azure", AZURE + "2023-11-16 18:15:46,many,44\n", 2, "ContextTokens is 'many', not a number; mend the line"),
        ("azure", AZURE + "2023-11-16 18:15:46,1,44,9\n", 2, "4 columns, but the first line has 3"),
        ("requests", REQUESTS + "1,a,5,5\n\n2,a,-5,5\n", 4, "input_tokens is '-5', not a number of 0 or more"),
        ("requests", REQUESTS + "nan,a,5,5\n", 2, "arrival_s is 'nan', not a number of 0 or more"),
        ("requests", REQUESTS + "1,a,5,1e300\n", 2, "output_tokens is '1e300', not a whole number of tokens"),
        ("requests", REQUESTS + "1,a,5,1.5\n", 2, "output_tokens is '1.5', not a whole number of tokens"),
        ("mooncake", '{"timestamp": 0}\n', 1, "input_length is None, not a number"),
        ("mooncake", "{\n", 1, "not JSON"),
        ("mooncake", "\n[1]\n", 2, "not an object"),
        ("mooncake", "[" * 100_000 + "\n", 1, "not JSON"),
        (
            "mooncake",
            '{"timestamp": 0, "input_length": 5, "output_length": 5, "hash_ids": [0.5]}\n',
            1,
            "hash_ids is not a list of whole numbers",
        ),
        (
            "mooncake",
            '{"timestamp": true, "input_length": 5, "output_length": 5, "hash_ids": []}\n',
            1,
            "timestamp is True",
        ),
        ("servegen", CLIENTS + "0,0,1,1,Pareto,1,1\n", 2, "arrival_pattern is 'Pareto', not Gamma, Weibull"),
        ("servegen", CLIENTS, 1, "there are no windows below the header"),
        ("agentic", '{"block_size": 0, "requests": []}\n', 1, "block_size is 0, not 1 or more"),
        ("agentic", SESSION + SESSION.replace("64", "32"), 2, "block_size is 32, but 64 above"),
        ("agentic", '{"block_size": 64, "requests": {}}\n', 1, "requests is not a list of objects"),
        ("agentic", SESSION.replace('"out": 3', '"out": "x"'), 1, "out is 'x', not a number"),
        ("agentic", '{"block_size": 64, "requests": []}\n', 1, "there are no requests in it"),
    ],
)
def test_a_trace_with_a_mistake_is_an_error_with_its_line(
    tmp_path: Path, kind: str, text: str, place: int, words: str
) -> None:
    file = tmp_path / "trace"
    file.write_text(text)
    with pytest.raises(InputError, match=re.escape(f"{file}:{place}: {words}")):
        build([stream(kind, file)], seed=1, start=0.0, duration=60.0)


@pytest.mark.parametrize("kind", ["azure", "mooncake", "requests", "servegen", "agentic"])
def test_a_trace_that_is_not_there_or_not_text(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "trace"
    with pytest.raises(InputError, match="no such trace; write its path"):
        build([stream(kind, file)], seed=1, start=0.0, duration=60.0)
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        build([stream(kind, tmp_path)], seed=1, start=0.0, duration=60.0)
    file.write_bytes(b"\xff\xfe\x00\n")
    with pytest.raises(InputError, match="cannot be read: 'utf-8' codec"):
        build([stream(kind, file)], seed=1, start=0.0, duration=60.0)
    file.write_bytes(gzip.compress(AZURE.encode() * 1000)[:40])
    with pytest.raises(InputError, match=r"trace: cannot be read: .*; give a text file, plain or gzip"):
        build([stream(kind, file)], seed=1, start=0.0, duration=60.0)


def test_lengths_from_a_file_that_is_not_there(tmp_path: Path) -> None:
    file = str(tmp_path / "none")
    law = Empirical(format="azure", file=file, column="prompt")
    for one in (
        Generated(name="a", rate=1, prompt=law),
        Generated(name="a", rate=1, answer=law),
        Generated(name="a", rate=1, pairs=Pairs(format="azure", file=file)),
        Generated(name="a", rate=1, prefix=Prefix(tokens=law)),
        Generated(name="a", rate=1, conversations=Conversations(follow=law)),
    ):
        with pytest.raises(InputError, match="none: no such trace"):
            build([one], seed=1, start=0.0, duration=60.0)


def test_files_are_found_from_the_folder_of_the_scenario(tmp_path: Path) -> None:
    law = Empirical(format="azure", file="lengths.csv", column="prompt")
    one = within(Generated(name="a", rate=1, prompt=law, prefix=Prefix(tokens=law)), "folder")
    assert list(files(one)) == [
        (("prompt", "file"), "folder/lengths.csv"),
        (("prefix", "tokens", "file"), "folder/lengths.csv"),
    ]
    assert within(Azure(name="a", file="/abs/t.csv"), "folder").file == "/abs/t.csv"
    assert within(Generated(name="a", rate=1), "folder") == Generated(name="a", rate=1)


def test_a_trace_out_of_order_or_packed_or_changed(tmp_path: Path) -> None:
    file = tmp_path / "trace"
    file.write_text(REQUESTS + "9,a,1,1\n3,b,2,2\n5,a,0,0\n")
    trace = read("requests", str(file))
    assert trace.at.tolist() == [3.0, 5.0, 9.0]
    assert trace.prompt.tolist() == [2, 1, 1]  # an empty prompt still has one token
    assert [trace.tenants[i] for i in trace.tenant] == ["b", "a", "a"]
    file.write_bytes(gzip.compress((REQUESTS + "1,a,77,1\n").encode()))
    assert read("requests", str(file)).prompt.tolist() == [77]
