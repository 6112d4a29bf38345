"""Lines that have broken other systems, hundreds in one job: each fails alone with its code, or runs."""
import json
import unittest

from driver import TINY_MODEL, ProgramTest

VOCAB_SIZE = 384  # of the tiny model
CONTEXT = 512
INVALID = "invalid_value"
MISSING = "missing_field"
UNSUPPORTED = "unsupported_parameter"
NOT_JSON = "invalid_json_line"

TYPED = {"a number": ["temperature", "top_p", "min_p", "top_k", "presence_penalty", "n", "seed",
                      "frequency_penalty", "repetition_penalty", "max_tokens", "top_logprobs",
                      "max_completion_tokens", "min_tokens"],
         "true or false": ["ignore_eos", "logprobs", "return_token_ids", "stream",
                           "continue_final_message", "add_generation_prompt"]}
WRONG_TYPES = {"a number": ["1", True, False, [1], {}], "true or false": ["true", 1, 0, [], {}]}
NULLABLE = ["stop", "stop_token_ids", "logit_bias", "tools", "chat_template_kwargs", "model",
            "response_format", "tool_choice", "stream_options", "audio", "modalities", "functions"]

BAD_VALUES = {
    "temperature": [-1, 2.1], "top_p": [-0.1, 1.1], "min_p": [-1, 2], "top_k": [-2, 1.5],
    "presence_penalty": [3], "frequency_penalty": [-3], "repetition_penalty": [0, -1],
    "n": [0, -1, 129, 10**12, 1.5], "max_tokens": [0, -1, 1.5], "max_completion_tokens": [0],
    "min_tokens": [-1, 99], "top_logprobs": [-1, 21], "seed": [2**64, -2**63 - 1, 1.5, 1e30],
    "stop": ["", [""], ["a", ""], [1], {}], "messages": [[], {}, "x", [1], [None], [[]]],
    "stop_token_ids": [[VOCAB_SIZE], [-1], 5, ["1"], [2**40]],
    "logit_bias": [{str(VOCAB_SIZE): 1}, {"-1": 1}, {"x": 1}, {"1": 101}, {"1": "5"}, {"1": True},
                   [1], {"9" * 20: 1}, {"": 1}, {"1.0": 1}],
    "tools": ["x", [1]], "chat_template_kwargs": ["x", []], "model": [5, ["default"]],
    "response_format": [{"type": "zebra"}, "json"], "tool_choice": ["zebra"],
}

# What stands in a body's JSON text, so that it may be no JSON at all.
BODY_TEXTS = {
    NOT_JSON: ['"temperature":NaN', '"top_p":Infinity', '"top_p":-Infinity', '"n":01', '"n":+1',
               '"n":.5', '"n":0x1', '"n":1,', '/*c*/"n":1', "'n':1", '"user":"\\ud800"',
               '"x":' + "[" * 300 + "]" * 300],
    INVALID: ['"temperature":1e999', '"seed":' + "9" * 30, '"top_k":9223372036854775808',
              '"min_tokens":9223372036854775807'],
    None: ['"temperature":-0.0', '"n":1e0', '"seed":18446744073709551615',
           '"seed":-9223372036854775808', '"n":5,"n":1', '"temperature":1e-300',
           '"repetition_penalty":5e-324,"temperature":0', '"repetition_penalty":1e308',
           '"top_k":9223372036854775807', '"top_p":0', '"min_p":1.0,"top_p":1e-9,"top_k":1',
           '"logit_bias":{"5":1,"05":2}', '"x":' + "[" * 200 + "]" * 200],
}

WHOLE_LINES = {
    NOT_JSON: [b"{} {}", b"[]", b"null", b"5", b'"x"', b"{", b"}", b"nul", b"\x00", b"\x1f\x8b",
               b"[" * 100_000, b'{"a":' * 100_000, b'{"custom_id":"a\tb"}', b'{"a":1}x',
               b'{"custom_id":"\xff"}', b'{"custom_id":"\xc0\xaf"}', b'{"custom_id":"\xed\xa0\x80"}',
               b'{"custom_id":"\xf4\x90\x80\x80"}', b'{"custom_id":"\xe2\x82"}',
               rb'{"custom_id":"\udc00x"}', rb'{"custom_id":"\ud800\u0041"}', rb'{"\ud800":1}'],
    MISSING: [b"{}", b'{"custom_id":null}'],
    INVALID: [b'{"custom_id":7}', b'{"custom_id":["x"]}', b'{"custom_id":true}'],
}

TEXT = {"type": "text", "text": "x"}
MESSAGES = {
    None: [[{"role": "user", "content": None}], [{"role": "user", "content": ""}],
           [{"role": "user", "content": [TEXT, TEXT]}], [{"role": "user", "content": "a\u2028\x00b"}],
           [{"role": "function", "name": "f", "content": "5"}],
           [{"role": "user", "content": "x"}, {"role": "assistant"}, {"role": "user", "content": "y"}],
           [{"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f"}}]},
            {"role": "tool", "tool_call_id": "1", "content": "5"}]],
    MISSING: [[{"role": "user"}], [{"content": "x"}], [{"role": None, "content": "x"}],
              [{"role": "user", "content": [{}]}], [{"role": "user", "content": [{"type": "text"}]}]],
    INVALID: [[{"role": 1, "content": "x"}], [{"role": "user", "content": 5}],
              [{"role": "user", "content": TEXT}], [{"role": "user", "content": [None]}],
              [{"role": "user", "content": [{"type": "text", "text": 1}]}]],
    UNSUPPORTED: [[{"role": "user", "content": [{"type": kind, kind: {"url": "x"}}]}]
                  for kind in ("image_url", "input_audio", "video_url", "file")],
}

PROMPTS = {
    None: ["<|im_end|>", [5, 6], [[5, 6], [7]], ["a", "b"], [4.0, 5], [0], ["a"] * 128],
    INVALID: ["", [], [[]], [""], 5, {}, ["a", [1]], [1, "a"], [True], [-1], [VOCAB_SIZE], [4.5],
              [None], ["a", None], [[["a"]]], ["a"] * 129],
    MISSING: [None],
    "context_length_exceeded": [[5] * CONTEXT, [[1], [5] * CONTEXT], "x y z " * CONTEXT],
}


class HostileLinesTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.lines = []  # bytes, expected code (None: runs), custom_id to be echoed

    def add(self, code, line, custom_id=None):
        self.lines.append((line, code, custom_id))

    def add_body(self, code, url="/v1/chat/completions", **fields):
        body = {"max_tokens": 2, "temperature": 0, **fields}
        if url.endswith("chat/completions"):
            body = {"messages": [{"role": "user", "content": "Hi there"}], **body}
        custom_id = f"line {len(self.lines) + 1}"
        line = {"custom_id": custom_id, "method": "POST", "url": url, "body": body}
        self.add(code, json.dumps(line, ensure_ascii=False).encode(), custom_id)
        return custom_id

    def add_completion(self, code, **fields):
        return self.add_body(code, "/v1/completions", **fields)

    def run_all(self):
        """Runs the lines as one job; returns the successes' bodies by custom_id."""
        path = self.dir / "in.jsonl"
        path.write_bytes(b"".join(line + b"\n" for line, _, _ in self.lines))
        self.batchmill("run", path, "-o", "out.jsonl", "--errors", "err.jsonl", "--model", TINY_MODEL,
                       exit_code=1 if any(code for _, code, _ in self.lines) else 0)
        errors = {record["error"]["line"]: record for record in self.read_lines(self.dir / "err.jsonl")}
        done = {record["custom_id"]: record["response"]["body"]
                for record in self.read_lines(self.dir / "out.jsonl")}
        for number, (line, code, custom_id) in enumerate(self.lines, 1):
            shown = f"line {number}: {line[:300]!r}"
            if code is None:
                self.assertNotIn(number, errors, shown)
                self.assertIn(custom_id, done, shown)
                continue
            self.assertIn(number, errors, shown)
            error = errors[number]
            self.assertEqual(error["error"]["code"], code, f"{shown}: {error}")
            self.assertLess(len(error["error"]["message"]), 1001, shown)
            if code != NOT_JSON:
                self.assertEqual(error["custom_id"], custom_id, shown)
        self.assertEqual(len(errors) + len(done), len(self.lines))
        return done

    def test_each_fails_alone_or_runs(self):
        for kind, names in TYPED.items():
            for name in names:
                for value in WRONG_TYPES[kind]:
                    self.add_body(INVALID, **{name: value})
                self.add_body(None, **{name: None})
        for name in NULLABLE:
            self.add_body(None, **{name: None})
        for name, values in BAD_VALUES.items():
            for value in values:
                self.add_body(INVALID, **{name: value})
        for code, texts in BODY_TEXTS.items():
            for text in texts:
                custom_id = f"line {len(self.lines) + 1}"
                self.add(code, ('{"custom_id":"%s","method":"POST","url":"/v1/chat/completions","body":'
                                '{"messages":[{"role":"user","content":"Hi"}],"max_tokens":2,%s}}'
                                % (custom_id, text)).encode(), custom_id)
        for code, lines in WHOLE_LINES.items():
            for line in lines:
                self.add(code, line)
        for code, conversations in MESSAGES.items():
            for messages in conversations:
                self.add_body(code, messages=messages)
        for code, prompts in PROMPTS.items():
            for prompt in prompts:
                self.add_completion(code, prompt=prompt, max_tokens=1)
        for url in ("/v1/score", "/v1/rerank", "/v1/chat/completions/", "/v1/chat/completions?x=1"):
            self.add_body("unsupported_url", url)
        self.add_body("unsupported_url", "/v1/embeddings", input="x")
        for name in ("", "m" * 100_000):
            self.add_body("model_not_found", model=name)
        for fields in ({"stream": True}, {"guided_json": {"type": "object"}}, {"use_beam_search": True},
                       {"echo": True}, {"response_format": {"type": "json_object"}}):
            self.add_body(UNSUPPORTED, **fields)
        self.add_completion(INVALID, prompt="x", max_tokens=0)
        self.add_completion(None, prompt="x", max_tokens=0, echo=True)
        self.add_completion("context_length_exceeded", prompt=[5] * CONTEXT, max_tokens=0, echo=True)
        self.add_body(INVALID, stop_token_ids=list(range(VOCAB_SIZE)), min_tokens=2)
        self.add_body(None, stop_token_ids=list(range(VOCAB_SIZE)))
        self.add_body(None, logit_bias={str(i): -100 for i in range(VOCAB_SIZE)})
        self.run_all()

    def test_the_chosen_token_of_a_completion_has_its_log_probability(self):
        custom_id = self.add_completion(None, prompt="x", logprobs=1, logit_bias={"40": 100})
        logprobs = self.run_all()[custom_id]["choices"][0]["logprobs"]
        for token, value, top in zip(logprobs["tokens"], logprobs["token_logprobs"],
                                     logprobs["top_logprobs"]):
            self.assertEqual(len(top), 2)  # the likeliest, and the one that the bias chose
            self.assertEqual(top[token], value)

    def test_a_continued_message_is_cut_at_its_own_end(self):
        # The template closes a turn with "<|im_end|>\n", which holds each of these texts.
        texts = ["<", ">", "|", "im", "end", "_e", "\n"]
        ids = [self.add_body(None, continue_final_message=True, return_token_ids=True,
                             messages=[{"role": "user", "content": "x"},
                                       {"role": "assistant", "content": "So " + text}])
               for text in texts]
        lone = [self.add_body(None, continue_final_message=True, return_token_ids=True,
                              messages=[{"role": "user", "content": "x"},
                                        {"role": "assistant", "content": text}])
                for text in texts[:-1]]
        done = self.run_all()
        for custom_id, text in list(zip(ids, ["So " + text for text in texts])) + list(zip(lone, texts)):
            prompt = done[custom_id]["prompt_token_ids"]
            shown, _ = self.batchmill("tokenize", "--model", TINY_MODEL, "--decode",
                                      ",".join(map(str, prompt)), "--json")
            self.assertEqual(json.loads(shown)["text"],
                             "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n" + text)


if __name__ == "__main__":
    unittest.main()
