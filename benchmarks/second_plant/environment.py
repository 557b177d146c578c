"""Where Dynamo runs: a virtual environment of its own, a model folder without a model, and a tokenizer of words.

The packages come from PyPI with pinned hashes, as those of the tests do. The mock worker has no weights, but frontend
and worker want a config and a tokenizer: one of 2,048 words, so that every token has a text and the client sees each as
it comes.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "scripts" / "real" / "dynamo.lock"
WORDS = 2048


def installed() -> Path:
    """The interpreter with Dynamo in it, made when it is not there or the lock is another."""
    subprocess.run([str(ROOT / "scripts" / "real-programs.sh"), "dynamo-python"], check=True, stdout=subprocess.DEVNULL)
    return ROOT / "build" / "tools" / "dynamo" / "bin" / "python"


def version() -> str:
    """The release of Dynamo that is pinned."""
    lines = LOCK.read_text("utf-8").split()
    return next(word.removeprefix("ai-dynamo==") for word in lines if word.startswith("ai-dynamo=="))


def model(folder: Path) -> Path:
    """The folder of a model that has a tokenizer and nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files().items():
        (folder / name).write_text(json.dumps(data), encoding="utf-8")
    return folder


def files() -> dict[str, object]:
    """What is in that folder."""
    begin, end = WORDS, WORDS + 1
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    words = {f"w{number}": number for number in range(WORDS)} | {"<s>": begin, "</s>": end}
    return {
        "tokenizer.json": {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [{"id": begin, "content": "<s>", **special}, {"id": end, "content": "</s>", **special}],
            "normalizer": None,
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": None,
            "decoder": None,
            "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"},
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "model_max_length": 32768,
            "chat_template": "{% for message in messages %}{{ message.content }}{% endfor %}",
        },
        "generation_config.json": {"bos_token_id": begin, "eos_token_id": end},
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "vocab_size": WORDS + 2,
            "max_position_embeddings": 32768,
            "bos_token_id": begin,
            "eos_token_id": end,
        },
    }


def variables(store: Path) -> Mapping[str, str]:
    """The environment of Dynamo's processes: no etcd, no NATS, nothing fetched, loopback. `store` is the folder through
    which they find each other."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {
        **kept,
        "HF_HUB_OFFLINE": "1",
        "DYN_DISCOVERY_BACKEND": "file",
        "DYN_FILE_KV": str(store),
        "DYN_REQUEST_PLANE": "tcp",
        "DYN_EVENT_PLANE": "zmq",
        "DYN_TCP_RPC_HOST": "127.0.0.1",
        "DYN_SYSTEM_HOST": "127.0.0.1",
        "DYN_LOG": "error",
        "DYN_RUNTIME_NUM_WORKER_THREADS": "1",
        "DYN_RUNTIME_MAX_BLOCKING_THREADS": "4",
    }
