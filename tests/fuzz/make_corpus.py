#!/usr/bin/env python3
"""Writes the seeds of the fuzzers: corpus/TARGET/seed-*, from the project's own test data and from the
lists below. Other files in those folders are inputs that once were findings; they stay.

    python3 tests/fuzz/make_corpus.py
"""
import gzip
import json
import random
import shutil
import struct
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "data"
CORPUS = HERE / "corpus"

# GGUF: value types, and what a tiny model says.
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
PIECES = ["<unk>", "<s>", "</s>", "<0x0A>", "<0xC3>", "▁", "▁a", "a", "b", "ab", "▁ab", "e", "l", "o", "▁h",
          "!"]
BYTE_PIECES = ["<|end|>", "a", "b", "c", "Ġ", "Ġa", "ab", "Ċ", "Ã", "¶", "1", "2", "12", "!", "e", "l"]

BODIES = [
    {"model": "m", "messages": [{"role": "user", "content": "Hello, wörld"}], "max_tokens": 8,
     "temperature": 0.5, "top_p": 0.9, "n": 2, "seed": 7, "stop": ["\n", "END"], "logprobs": True,
     "top_logprobs": 3, "logit_bias": {"12": -100, "7": 1.5}},
    {"messages": [{"role": "system", "content": [{"type": "text", "text": "a"}, "b"]},
                  {"role": "assistant", "content": None, "tool_calls": [
                      {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}}]},
                  {"role": "tool", "tool_call_id": "c", "content": "3"}],
     "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
     "tool_choice": "auto", "chat_template_kwargs": {"enable_thinking": False},
     "truncation": "auto", "response_format": {"type": "text"}, "max_completion_tokens": 4},
    {"prompt": ["one", "two"], "echo": True, "min_tokens": 1, "stop_token_ids": [3], "ignore_eos": True,
     "presence_penalty": 1, "frequency_penalty": -1, "repetition_penalty": 1.1, "top_k": -1, "min_p": 0.1},
    {"prompt": [[1, 2, 3], [4]], "logprobs": 2, "return_token_ids": True, "add_special_tokens": False},
    {"input": ["a", "b"], "encoding_format": "base64", "dimensions": 8},
    {"input": [1, 2, 3], "user": "u", "foo": 1},
]

JSON_TEXTS = [
    '{"a":[1,-0,0.5,1e10,1E-300,true,false,null],"b":{"":"\\u00e9\\ud83d\\ude00\\n"}}',
    '[18446744073709551615,-9223372036854775808,18446744073709551616,1e999,-1e999,1e-999]',
    ' \t\r\n[ ] ', '"\\/\\b\\f\\u0000"', '{"a":1,"a":2}', "[" * 256 + "]" * 256, "[" * 257 + "]" * 257,
    '"é€😀"', "0", "-", "01", '"\\ud800"', "\ufeff1", "nul", '{"k":}', "[1,]",
    json.dumps({f"k{i}": i for i in range(40)}),
]

HEADERS = [
    {"op": "hello", "version": 1, "client": "test"},
    {"op": "open", "id": 1, "key": "k", "name": "n", "priority": 10, "strict": True, "deadline_s": 60,
     "metadata": {"a": "b"}, "content_hash": "0" * 32, "model_fingerprint": "0123456789abcdef"},
    {"op": "data", "job": "batch_x", "offset": 90},
    {"op": "end", "job": "batch_x", "bytes": 100, "content_hash": None},
    {"op": "abort", "job": "batch_x", "code": "truncated_input", "message": "cut"},
    {"op": "request", "id": {"a": [1]}, "what": "status"},
    {"op": "bye"},
]

TEMPLATES = [
    "{{ bos_token }}{% for message in messages %}{{ '<|' ~ message['role'] ~ '|>' }}\n"
    "{{ message.content | trim }}{% if not loop.last %}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}",
    "{%- macro m(a, b=1) -%}[{{ a }}{{ b }}]{%- endmacro -%}{{ m('x', b=2) }}{% set n = namespace(i=0) %}"
    "{% for i in range(3) if i is odd %}{% set n.i = n.i + i %}{% else %}none{% endfor %}{{ n.i }}",
    "{% set x = {'a': [1, 2.5, none, true], 'b': (1,)} %}{{ x | tojson(indent=2) }}{{ x.a[::-1] | join(',') }}"
    "{{ x.items() | list }}{{ 'abc'[1:] ~ 'X'.lower() }}",
    "{% raw %}{{ x }}{% endraw %}{# c #}{{ 2 ** 100 // 7 % 5 }} {{ -7 // 2 }} {{ 1e16 }} {{ 'a' in 'cab' }}",
    "{% filter upper %}a{{ 'b' if x is defined else 'c' }}{% endfilter %}{% call(v) m() %}{{ v }}{% endcall %}",
    "{% for a in [[1, [2]], []] recursive %}{{ loop.depth }}{{ loop(a) if a is iterable }}{% endfor %}",
    "{% for m in messages[1:] %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles') }}{% endif %}{% endfor %}{{ strftime_now('%Y-%m-%d') }}",
    "{{ '%05.1f|%-4s|%x' % (3.14, 'ab', 255) }}{{ '{0:>5}{a!r}'.format(1, a='b') }}"
    "{{ [3, 1, 2] | sort | map('string') | select('ne', '2') | list }}",
    "{{ messages | selectattr('role', 'eq', 'user') | map(attribute='content') | first | replace('a', 'b') }}"
    "{{ messages | length }}{{ messages[0].content.split(' ') }}{{ 'a,b'.rsplit(',', 1) }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% block z %}{{ self }}{% endblock %}{% break %}",
]
VARIABLES = {"messages": [{"role": "user", "content": "Hi <|end|> there"},
                          {"role": "assistant", "content": "{{ 1 }}"}],
             "tools": [{"name": "f", "x": 1.5}], "add_generation_prompt": True}

TEXTS = ["Hello, world! 12345", "don't  STOP\r\n\r\n\tnow", "naïve café 中文 ひらがな 한국어 😀👍🏽",
         "<s>a</s><|end|><tool> ▁▁ x", "e\u0301 \u212b ﬁ İ ß", "\xff\xfe", "a" * 60, " \u3000\u00a0 ", "x=1;\n    y=2"]

CONFIG = """[queue]
endpoint = "tcp://127.0.0.1:5559"
max_line_bytes = 65536
upload_timeout_s = "15m"
[storage]
path = "~/x"
sync = false
compression = "zstd"
[[model]]
name = "small"
aliases = ["a", "*"]
path = 'm.gguf'
kv_dtype = "bf16"
max_context_tokens = 2048
[engine]
threads = 2
deterministic = true
[prices]
version = "2026-01"
currency = "EUR"
[prices.default]
input = "0.15"
output = "0.60"
[prices."small"]
cached_input = "0.000001"
[daemon]
drain_timeout_s = 30
log_level = "debug"
"""


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def array(kind, values):
    pack = {STRING: text, INT32: lambda v: struct.pack("<i", v), FLOAT32: lambda v: struct.pack("<f", v)}[kind]
    return struct.pack("<IQ", kind, len(values)) + b"".join(map(pack, values))


def gguf(keys, tensors):
    """keys: (name, type, bytes); tensors: (name, dims, type, bytes)."""
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for name, kind, value in keys:
        out += text(name) + struct.pack("<I", kind) + value
    data = b""
    for name, dims, kind, content in tensors:
        data += bytes(-len(data) % 32)
        out += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        out += struct.pack("<IQ", kind, len(data))
        data += content
    return out + bytes(-len(out) % 32) + data


def model_keys(architecture, tokenizer):
    number = [("block_count", 1), ("context_length", 32), ("embedding_length", 8), ("feed_forward_length", 16),
              ("attention.head_count", 2), ("attention.head_count_kv", 1), ("rope.dimension_count", 4),
              ("attention.key_length", 4), ("attention.value_length", 4), ("pooling_type", 1)]
    if architecture == "gemma3":
        number += [("attention.sliding_window", 8)]
    if architecture == "deepseek2":
        number += [("expert_gating_func", 2), ("attention.kv_lora_rank", 8), ("expert_count", 2), ("expert_used_count", 1),
                   ("expert_feed_forward_length", 8), ("attention.key_length", 8)]
    keys = [("general.architecture", STRING, text(architecture)), ("general.name", STRING, text("tiny"))]
    keys += [(f"{architecture}.{name}", UINT32, struct.pack("<I", value)) for name, value in dict(number).items()]
    epsilon = "attention.layer_norm_epsilon" if architecture == "gpt2" else "attention.layer_norm_rms_epsilon"
    keys += [(f"{architecture}.{epsilon}", FLOAT32, struct.pack("<f", 1e-5)),
             (f"{architecture}.rope.freq_base", FLOAT32, struct.pack("<f", 10000))]
    keys += [("tokenizer.ggml.model", STRING, text(tokenizer))]
    if tokenizer == "llama":
        keys += [("tokenizer.ggml.tokens", ARRAY, array(STRING, PIECES)),
                 ("tokenizer.ggml.scores", ARRAY, array(FLOAT32, [-float(i) for i in range(len(PIECES))])),
                 ("tokenizer.ggml.token_type", ARRAY, array(INT32, [2, 3, 3, 6, 6] + [1] * (len(PIECES) - 5)))]
    elif tokenizer == "gpt2":
        keys += [("tokenizer.ggml.pre", STRING, text("smollm")),
                 ("tokenizer.ggml.tokens", ARRAY, array(STRING, BYTE_PIECES)),
                 ("tokenizer.ggml.token_type", ARRAY, array(INT32, [3] + [1] * (len(BYTE_PIECES) - 1))),
                 ("tokenizer.ggml.merges", ARRAY, array(STRING, ["Ġ a", "a b", "1 2"]))]
    else:
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁a", "b", "▁the", "s", "▁!", "c", "d", "e", "f", "g", "h", "i"]
        keys += [("tokenizer.ggml.tokens", ARRAY, array(STRING, words)),
                 ("tokenizer.ggml.token_type", ARRAY, array(INT32, [3] * 4 + [1] * 12)),
                 ("tokenizer.ggml.unknown_token_id", UINT32, struct.pack("<I", 1)),
                 ("bert.attention.causal", BOOL, b"\0")]
    keys += [("tokenizer.ggml.eos_token_id", UINT32, struct.pack("<I", 2)),
             ("tokenizer.ggml.add_bos_token", BOOL, b"\1"),
             ("tokenizer.chat_template", STRING, text(TEMPLATES[0]))]
    return keys


def floats(count):
    return struct.pack(f"<{count}f", *(i / 8 - 1 for i in range(count)))


def gguf_seeds():
    shapes = [("token_embd.weight", [8, 16]), ("output_norm.weight", [8]), ("blk.0.attn_q.weight", [8, 8]),
              ("blk.0.attn_k.weight", [8, 4]), ("blk.0.ffn_down.weight", [16, 8])]
    tensors = [(name, dims, 0, floats(dims[0] * (dims[1] if len(dims) > 1 else 1))) for name, dims in shapes]
    yield "llama", gguf(model_keys("llama", "llama"), tensors)
    yield "gpt2", gguf(model_keys("gpt2", "gpt2"), tensors)
    yield "bert", gguf(model_keys("bert", "bert"), tensors)
    for name in ("qwen2", "qwen3", "gemma3", "deepseek2"):
        keys = [key for key in model_keys(name, "gpt2") if not key[0].startswith("tokenizer")]
        yield name, gguf(keys, tensors[:1])
    # One row of every block format: type, bytes of a block and how many numbers it holds.
    blocks = [(1, 2, 1), (2, 18, 32), (3, 20, 32), (6, 22, 32), (7, 24, 32), (8, 34, 32), (10, 84, 256),
              (11, 110, 256), (12, 144, 256), (13, 176, 256), (14, 210, 256), (30, 2, 1)]
    rows = [(f"t{kind}", [numbers, 1], kind, bytes(range(size % 256)) if size < 256 else bytes(size))
            for kind, size, numbers in blocks]
    yield "blocks", gguf([("a", ARRAY, array(INT32, [1, -2]))], rows)
    yield "empty", gguf([], [])
    yield "no_scores", gguf([("tokenizer.ggml.model", STRING, text("llama")),
                             ("tokenizer.ggml.tokens", ARRAY, array(STRING, [])),
                             ("tokenizer.ggml.scores", ARRAY, array(FLOAT32, []))], [])


def safetensors(arrays):
    """arrays: name → (dtype, shape, bytes)."""
    header, data = {}, b""
    for name, (dtype, shape, content) in arrays.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    head = json.dumps(header).encode()
    return struct.pack("<Q", len(head)) + head + data


def parts(**files):
    return b"\n".join(b"#=" + name.encode() + b"\n" + content for name, content in files["files"].items())


def matrix(rows, cols):
    return ("F32", [rows, cols], floats(rows * cols))


def llama_folder():
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 16, "hidden_size": 8,
              "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
              "max_position_embeddings": 32, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
              "tie_word_embeddings": True, "eos_token_id": 2}
    layer = "model.layers.0."
    weights = {"model.embed_tokens.weight": matrix(16, 8), "model.norm.weight": ("F32", [8], floats(8)),
               layer + "input_layernorm.weight": ("F32", [8], floats(8)),
               layer + "post_attention_layernorm.weight": ("F32", [8], floats(8)),
               layer + "self_attn.q_proj.weight": matrix(8, 8), layer + "self_attn.k_proj.weight": matrix(4, 8),
               layer + "self_attn.v_proj.weight": matrix(4, 8), layer + "self_attn.o_proj.weight": matrix(8, 8),
               layer + "mlp.gate_proj.weight": matrix(16, 8), layer + "mlp.up_proj.weight": matrix(16, 8),
               layer + "mlp.down_proj.weight": matrix(8, 16)}
    return config, weights


def small_tokenizer(kind):
    """A tokenizer.json of a dozen entries."""
    if kind == "bpe":
        return {"added_tokens": [{"id": 0, "content": "<|end|>", "special": True, "normalized": False}],
                "normalizer": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False,
                                                      "trim_offsets": True, "use_regex": True},
                "decoder": {"type": "ByteLevel"}, "post_processor": None,
                "model": {"type": "BPE", "vocab": {p: i for i, p in enumerate(BYTE_PIECES)},
                          "merges": ["Ġ a", ["a", "b"], "1 2"]}}
    if kind == "sentencepiece":
        original = json.loads((DATA / "tokenizers/spaces-none/tokenizer.json").read_text())
        original["added_tokens"] = original["added_tokens"][:1]
        original["model"]["vocab"] = {p: i for i, p in enumerate(PIECES)}
        original["model"]["merges"] = ["▁ a", "a b", "▁a b"]
        return original
    original = json.loads((DATA / "tokenizers/words/tokenizer.json").read_text())
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "the", "##s", "!", "c"]
    original["model"]["vocab"] = {w: i for i, w in enumerate(words)}
    return original


def model_folder_seeds():
    config, weights = llama_folder()
    compact = lambda value: json.dumps(value, ensure_ascii=False).encode()
    yield "llama", parts(files={
        "config.json": compact(config), "model.safetensors": safetensors(weights),
        "tokenizer.json": compact(small_tokenizer("bpe")),
        "tokenizer_config.json": compact({"add_bos_token": False, "eos_token": "<|end|>",
                                          "chat_template": TEMPLATES[0]}),
        "generation_config.json": compact({"do_sample": True, "temperature": 0.7, "top_k": 20,
                                           "eos_token_id": [0, 2]})})
    names = list(weights)
    shards = {"a.safetensors": names[:4], "b.safetensors": names[4:]}
    index = {"metadata": {}, "weight_map": {n: f for f, of in shards.items() for n in of}}
    files = {"config.json": compact(config), "model.safetensors.index.json": compact(index)}
    files |= {f: safetensors({n: weights[n] for n in of}) for f, of in shards.items()}
    yield "shards", parts(files=files)
    yield "bert", parts(files={name: (DATA / "models/bert" / name).read_bytes() for name in
                               ("config.json", "modules.json", "1_Pooling/config.json")})


def packed_seeds():
    for kind in ("awq", "gptq", "gptq-act-order", "gptq-v2"):
        config = json.loads((DATA / "packed" / kind / "config.json").read_text())["quantization_config"]
        file = (DATA / "packed" / kind / "model.safetensors").read_bytes()
        size, = struct.unpack("<Q", file[:8])
        header, data = json.loads(file[8:8 + size]), file[8 + size:]
        prefix = "model.layers.0.self_attn.v_proj."
        arrays = {"w." + name[len(prefix):]: (a["dtype"], a["shape"], data[slice(*a["data_offsets"])])
                  for name, a in header.items() if name.startswith(prefix)}
        yield kind, parts(files={"config": json.dumps(config).encode(), "model.safetensors": safetensors(arrays)})


def model_config_seeds():
    for path in sorted(DATA.glob("*/*/config.json")):
        yield path.parent.name, path.read_bytes()
    for path in sorted(DATA.glob("models/*/config-v4.json")):
        yield path.parent.name + "-v4", path.read_bytes()


def tokenizer_file_seeds():
    for kind in ("bpe", "sentencepiece", "wordpiece"):
        file = json.dumps(small_tokenizer(kind), ensure_ascii=False).encode()
        yield kind, parts(files={"tokenizer.json": file, "text": b"ab a <|end|> 12"})
    yield "vocab", parts(files={"vocab.txt": b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n##b\nthe\n",
                                "tokenizer_config.json": b'{"do_lower_case": true}', "text": b"The ab"})
    ranks = (DATA / "tokenizers/ranks.tiktoken").read_bytes().split(b"\n")[:300]
    yield "ranks", parts(files={"ranks": b"\n".join(ranks) + b"\n", "text": b"hello there"})


def number(value, size):
    return value.to_bytes(size, "big", signed=value < 0)


def field(value):
    return number(len(value.encode()), 4) + value.encode()


def record_seeds():
    """The first byte is the record's kind, as record_fuzz.cpp counts."""
    usage = b"".join(number(n, 8) for n in (9, 4, 5, 0, 7, 1000, 2000, 1))
    yield "number", b"\0" + b"\1" + number(77, 8)
    yield "request", (b"\1" + b"\1" + field("name") + number(-3, 4) + b"\1" + number(60, 8) + field("key")
                      + field("") + field("0123456789abcdef") + number(1, 4) + field("a") + field("b"))
    yield "upload", b"\2" + b"\1" + b"\2" + number(5, 8) + number(4, 8) + number(900, 8) + field("f" * 32)
    yield "progress", (b"\3" + b"\1" + number(5, 8) + b"\0\1" + b"".join(number(n, 8) for n in range(8))
                       + number(100, 8) + number(60, 8) + field("batch_expired") + field("late") + number(1, 4)
                       + field("code") + field("message") + number(3, 8) + number(1, 4) + field("warning"))
    yield "line", b"\4" + b"\1" + b"\0" + number(1234567, 8) + b'{"custom_id":"a"}'
    yield "result", (b"\5" + b"\1" + number(8, 8) + number(1, 4) + b"\1\1" + usage
                     + b"".join(number(n, 8) for n in (1, 2, 3, 4, 150000, 75000, 600000))
                     + field("v1") + field("USD") + field("id-1") + field("") + field("m") + field("cpu:0")
                     + field("{}"))
    sums = lambda count: b"\1" + b"".join(number(n - 2, 16) for n in range(count))
    yield "counters", b"\6" + sums(11)
    yield "ledger", b"\7" + sums(13)
    yield "sums", b"\x08" + sums(3)
    job = bytes(range(16))
    plan_key = b"\x0a\1" + bytes(range(8)) + b"\0\0\x05\0\0\x09" + b"\0\0\0" + job + number(3, 8)
    yield "line_key", b"\x09" + job + number(3, 8)
    yield "ledger_key", b"\x09" + job + number(20000, 4) + field("m") + field("USD") + field("v1")
    yield "plan_key", b"\x09" + plan_key
    long_ids = b"".join(number(i % 500 + 1, 3) for i in range(1024))
    yield "long_plan_key", b"\x09" + plan_key[:10] + long_ids + b"\x12\x34\0\0" + job + number(3, 8)
    yield "job_id", b"\x09" + b"batch_01jd8z4k3m9p2q5r7s8t0v1w2x"
    yield "price", b"\x09" + b"0.150001"
    entry = (b"\1" + number(6, 8) + number(4, 4) + number(1, 4) + number(16, 4) + field("m") + field("request")
             + number(2, 4) + number(2, 4) + number(2, 4) + b"\0\0\x01\0\0\x02")
    yield "plan_entry", b"\x0a" + number(len(plan_key), 2) + plan_key + entry


def messagepack(value):
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return b"\xd3" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        return bytes([0xa0 + len(value.encode())]) + value.encode()
    if isinstance(value, list):
        return bytes([0x90 + len(value)]) + b"".join(map(messagepack, value))
    return b"\xde" + struct.pack(">H", len(value)) + b"".join(
        messagepack(k) + messagepack(v) for k, v in value.items())


def line_work_seeds():
    params = {"temperature": 0.5, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "presence_penalty": 0.0,
              "frequency_penalty": 0.0, "repetition_penalty": 1.0, "logit_bias": [[5, 1.5]], "seed": 7,
              "max_tokens": 16, "min_tokens": 0, "ignore_eos": False, "stop_token_ids": [2], "stop": ["x"],
              "logprobs": 3, "prompt_logprobs": False}
    work = {"custom_id": "a", "endpoint": 1, "model": "m", "n": 1, "echo": False, "echo_texts": ["t"],
            "token_ids": False, "base64": True, "truncation": [1, 2], "queued_us": 123456789, "params": params}
    yield "chat", messagepack(work)
    yield "embeddings", messagepack({**work, "endpoint": 3, "truncation": [0, 0]})


def archive_seeds():
    content = b'{"custom_id":"a"}\n' * 40
    yield "plain", content[:200]
    yield "gzip", gzip.compress(content, mtime=0) + gzip.compress(b"second member\n", mtime=0)
    yield "bomb.gz", gzip.compress(bytes(1 << 20), mtime=0)
    yield "xz", b"\xfd7zXZ\0\0"
    zstd = shutil.which("zstd")
    if zstd:
        pack = lambda data: subprocess.run([zstd, "-q", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout
        skippable = struct.pack("<II", 0x184D2A50, 4) + b"skip"
        yield "zstd", pack(content) + skippable + pack(b"second frame\n")
        yield "bomb.zst", pack(bytes(1 << 20))


def upload_seeds():
    chance = random.Random(7)
    for i in range(4):
        steps = b""
        for _ in range(20):
            data = bytes(chance.choice(b'ab"\n\r\xef\xbb\xbf ') for _ in range(chance.randrange(60)))
            steps += bytes([chance.choice([0, 0, 0, 4, 5, 6, 14, 68]), len(data)]) + data
        yield f"steps{i}", steps + b"\7\0"
    yield "long_line", (b"\0\xff" + b"a" * 255) * 22 + b"\0\2\nb" + b"\7\0"


def lines(bodies):
    urls = {"messages": "chat/completions", "prompt": "completions", "input": "embeddings"}
    for i, body in enumerate(bodies):
        url = next(url for key, url in urls.items() if key in body)
        yield {"custom_id": f"id-{i}", "method": "POST", "url": "/v1/" + url, "body": body}


def seeds():
    """target → (name, bytes)."""
    encode = lambda value: json.dumps(value, ensure_ascii=False).encode()
    kinds = {"messages": b"\0", "prompt": b"\1", "input": b"\2"}
    numbered = lambda texts: [(f"{i:02}", t) for i, t in enumerate(texts)]
    known = (DATA / "jobs/ex_values.jsonl").read_bytes().splitlines()[:40]
    return {
        "archive": archive_seeds(),
        "batch_line": numbered([encode(line) for line in lines(BODIES)] + known),
        "body": numbered([next(k for n, k in kinds.items() if n in b) + encode(b) for b in BODIES]),
        "config": [("all", CONFIG.encode()), ("duration", b"15m"), ("empty", b"\n")],
        "gguf": gguf_seeds(),
        "json": numbered([t.encode("utf-8", "surrogatepass") for t in JSON_TEXTS]),
        "line_work": line_work_seeds(),
        "message_marks": numbered([t.encode() for t in TEMPLATES if "%" not in t.replace("{%", "").replace("%}", "")
                                   and "\\" not in t and "format" not in t]),
        "model_config": model_config_seeds(),
        "model_folder": model_folder_seeds(),
        "packed": packed_seeds(),
        "record": record_seeds(),
        "safetensors": [("folder", safetensors(llama_folder()[1])),
                        ("kinds", safetensors({"a": ("F16", [2, 2], bytes(8)), "b": ("BF16", [3], bytes(6)),
                                               "c": ("I32", [1], bytes(4)), "d": ("F32", [0, 4], b"")}))],
        "template": numbered([parts(files={"template": t.encode(), "variables": encode(VARIABLES)})
                              for t in TEMPLATES]),
        "tokenizer": [(f"{i:02}-{kind}", bytes([kind]) + t.encode("latin-1" if t == "\xff\xfe" else "utf-8"))
                      for i, t in enumerate(TEXTS) for kind in (0, 1, 4, 5, 6, 8, 10)],
        "tokenizer_file": tokenizer_file_seeds(),
        "upload": upload_seeds(),
        "wire": numbered([encode(h) for h in HEADERS] +
                         [b"\n".join(b"#=" + encode(h) + b"\n" + b'{"a":1}\n' for h in HEADERS)]),
    }


if __name__ == "__main__":
    for target, inputs in seeds().items():
        folder = CORPUS / target
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("seed-*"):
            old.unlink()
        for name, content in inputs:
            (folder / f"seed-{name}").write_bytes(content)
