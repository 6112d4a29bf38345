"""Who may connect: keys, rights, limits, and that secrets and prompts stay where they belong."""
import json
import os
import re
import signal
import socket
import stat
import subprocess
import unittest
from pathlib import Path

from driver import BIN, DEADLINE_S, TINY_MODEL, ProgramTest, chat_line, wait_until


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class KeysTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.endpoint = f"tcp://127.0.0.1:{free_port()}"

    def new_key(self, name):
        out, _ = self.batchmill("keys", "new", self.dir / name)
        return out.strip()

    def server_key(self):
        return self.batchmill("keys", "new", "--server", "--quiet")[0].strip()

    def serve(self, level="warn"):
        return self.start_daemon(env={"BATCHMILL_QUEUE_ENDPOINT": self.endpoint,
                                      "BATCHMILL_DAEMON_LOG_LEVEL": level})

    def as_client(self, name, server, *args, **kwargs):
        """The tool with a client's key, and another data directory than the daemon's."""
        data, self.data = self.data, self.dir / "elsewhere"
        try:
            return self.batchmill("--endpoint", self.endpoint, "--key", self.dir / name,
                                  "--server-key", server, *args, **kwargs)
        finally:
            self.data = data

    def submit_as(self, name, server, lines, *args, **kwargs):
        out, _ = self.as_client(name, server, "submit", lines, *args, **kwargs)
        return out.strip()

    def test_every_command_has_help_with_an_example(self):
        for command in ("new", "allow", "revoke", "list"):
            out, _ = self.batchmill("keys", command, "--help")
            self.assertIn(f"Example:\n  batchmill keys {command}", out)

    def test_keys_are_files_of_their_own(self):
        key = self.new_key("client.key")
        self.assertRegex(key, r"\A\S{40}\Z")
        file = self.dir / "client.key"
        self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)
        before = file.read_text()
        _, err = self.batchmill("keys", "new", file, exit_code=2)
        self.assertIn("there already", err)
        self.assertEqual(file.read_text(), before)
        self.batchmill("keys", "new", exit_code=2)
        made = json.loads(self.batchmill("keys", "new", "--server", "--json")[0])
        self.assertEqual(made["file"], str(self.data / "server.key"))
        self.assertEqual(stat.S_IMODE((self.data / "server.key").stat().st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(self.data.stat().st_mode), 0o700)
        self.assertNotIn(made["public_key"], before)
        # Who needs it again gets it here.
        out, err = self.batchmill("keys", "list")
        self.assertEqual(err, f"the daemon's public key is '{made['public_key']}'\n")
        self.assertEqual(out, "KEY  NAME  RIGHTS  MAX BYTES  MAX LINES  MAX JOBS\n")

    def test_a_missing_folder_of_a_key_is_made(self):
        self.new_key("home/.config/client.key")
        for folder in ("home", "home/.config"):
            self.assertEqual(stat.S_IMODE((self.dir / folder).stat().st_mode), 0o700)
        self.assertEqual(stat.S_IMODE((self.dir / "home/.config/client.key").stat().st_mode), 0o600)

    def test_allow_revoke_list(self):
        self.assertEqual(self.batchmill("keys", "list", "--json")[0], "")
        first, second = self.new_key("a"), self.new_key("b")
        _, err = self.batchmill("keys", "allow", first, "--name", "nightly", "--max-jobs", 3)
        self.assertEqual(err, "nightly may connect now\n")
        _, err = self.batchmill("keys", "allow", second, "--admin")
        self.assertEqual(err, f"'{second}' may connect now\n")
        listed = [json.loads(line) for line in
                  self.batchmill("keys", "list", "--json")[0].splitlines()]
        self.assertEqual({entry["key"]: entry for entry in listed},
                         {first: {"key": first, "name": "nightly", "admin": False,
                                  "max_bytes": None, "max_lines": None, "max_jobs": 3},
                          second: {"key": second, "name": None, "admin": True,
                                   "max_bytes": None, "max_lines": None, "max_jobs": None}})
        self.batchmill("keys", "allow", first)
        self.assertNotIn("nightly", self.batchmill("keys", "list")[0])
        _, err = self.batchmill("keys", "allow", first, "--name", "nightly")
        self.assertEqual(err, "nightly has these rights now\n")
        _, err = self.batchmill("keys", "revoke", "nightly")
        self.assertEqual(err, "nightly may connect no more\n")
        self.batchmill("keys", "revoke", "nightly", exit_code=4)
        self.assertNotIn(first, self.batchmill("keys", "list")[0])
        for wrong in (("allow", "abc"), ("allow", second, "--name", "a b"),
                      ("allow", second, "--max-jobs", "0"), ("allow", second, "--max-jobs", "-1"),
                      ("allow", second, "--max-lines", "1.5")):
            _, err = self.batchmill("keys", *wrong, exit_code=2)
            self.assertLess(len(err), 300)

    def test_other_machines_need_keys(self):
        for endpoint in ("tcp://*:5559", "tcp://0.0.0.0:5560", "udp://127.0.0.1:9"):
            daemon = self.start("batchmilld", "--model", TINY_MODEL,
                                env={"BATCHMILL_QUEUE_ENDPOINT": endpoint})
            _, err = daemon.communicate(timeout=DEADLINE_S)
            self.assertEqual(daemon.returncode, 2, err)
            self.assertIn(endpoint, err)
            self.assertEqual(err.count("\n"), 1)
        # A key that others may read is none.
        self.server_key()
        (self.data / "server.key").chmod(0o644)
        daemon = self.start("batchmilld", "--model", TINY_MODEL)
        _, err = daemon.communicate(timeout=DEADLINE_S)
        self.assertEqual(daemon.returncode, 2, err)
        self.assertIn("chmod 600", err)

    def test_a_key_sees_its_own_jobs_alone(self):
        server = self.server_key()
        keys = {name: self.new_key(name) for name in ("ann", "bob", "root")}
        self.batchmill("keys", "allow", keys["ann"])
        self.batchmill("keys", "allow", keys["bob"])
        self.batchmill("keys", "allow", keys["root"], "--admin")
        daemon = self.serve()
        lines = self.write_lines("in.jsonl", [chat_line(f"l{i}", f"hello {i}") for i in range(3)])
        # The same idempotency key is another job for another client.
        job = {name: self.submit_as(name, server, lines, "--idempotency-key", "nightly", "--wait")
               for name in ("ann", "bob")}
        local = self.batchmill("submit", lines, "--idempotency-key", "nightly", "--wait")[0].strip()
        self.assertEqual(len({local, *job.values()}), 3)

        def listed(*args):
            return {entry["id"]: entry["batchmill"]["owner"]
                    for entry in map(json.loads, self.as_client(*args)[0].splitlines())}
        for round_of in ("before a restart", "after it"):
            with self.subTest(round_of):
                self.assertEqual(listed("ann", server, "list", "--json"),
                                 {job["ann"]: keys["ann"]})
                self.assertEqual(listed("root", server, "list", "--json"),
                                 {job["ann"]: keys["ann"], job["bob"]: keys["bob"], local: None})
                for command in ("status", "results", "costs", "cancel", "pause", "resume"):
                    self.as_client("bob", server, command, job["ann"], exit_code=4)
                    self.as_client("bob", server, command, local, exit_code=4)
                self.as_client("bob", server, "explain", job["ann"], "l0", exit_code=4)
                for name, count in (("ann", 1), ("root", 3)):
                    rows = self.as_client(name, server, "costs", "--json")[0].splitlines()
                    self.assertEqual(len(rows), count)
                    total = json.loads(self.as_client(name, server, "costs", "--by", "model",
                                                      "--json")[0])
                    self.assertEqual(total["lines"]["completed"], 3 * count)
                self.assertEqual(
                    len(self.as_client("ann", server, "results", job["ann"])[0].splitlines()), 3)
                self.as_client("root", server, "cancel", job["ann"])
                _, err = self.as_client("ann", server, "compact", exit_code=2)
                self.assertIn("admin", err)
                self.as_client("root", server, "compact")
            self.end(daemon)
            daemon = self.serve()
        # The store itself is the operator's.
        self.end(daemon)
        self.assertEqual(len(self.batchmill("list", "--json")[0].splitlines()), 3)

    def test_a_running_daemon_follows_the_list(self):
        server = self.server_key()
        key = self.new_key("ann")
        self.serve()
        _, err = self.as_client("ann", server, "list", exit_code=2)
        self.assertIn(f"batchmill keys allow '{key}'", err)
        self.batchmill("keys", "allow", key, "--name", "ann")
        self.as_client("ann", server, "list")
        self.batchmill("keys", "revoke", "ann")
        self.as_client("ann", server, "list", exit_code=2)
        # Without a key, or with one half of what it takes.
        data, self.data = self.data, self.dir / "elsewhere"
        # It is a matter of luck which end sees first that only one of them wants keys.
        done = subprocess.run([BIN / "batchmill", "--endpoint", self.endpoint, "list"],
                              capture_output=True, text=True, timeout=DEADLINE_S, env=self.env, check=False)
        self.assertIn(done.returncode, (2, 3))
        self.assertIn("--key FILE --server-key 'KEY'", done.stderr)
        self.batchmill("--endpoint", self.endpoint, "--key", self.dir / "ann", "list", exit_code=2)
        self.batchmill("--endpoint", self.endpoint, "--key", self.dir / "ann", "--server-key", "x",
                       "list", exit_code=2)
        self.data = data
        self.batchmill("list")  # the operator needs none

    def test_limits_of_a_key(self):
        server = self.server_key()
        key = self.new_key("ann")
        lines = self.write_lines("in.jsonl", [chat_line(f"l{i}", f"hello {i}") for i in range(9)])
        # A blank line is no line of the job.
        lines.write_text("\n" + lines.read_text(encoding="utf-8"), encoding="utf-8")
        one = self.write_lines("one.jsonl", [chat_line("l", "hello")])
        self.serve()
        for flag, value in (("--max-lines", 8), ("--max-bytes", lines.stat().st_size - 1)):
            self.batchmill("keys", "allow", key, flag, value)
            _, err = self.as_client("ann", server, "submit", lines, exit_code=2)
            self.assertIn(f"may have {value} {flag[6:]}", err)
            newest = json.loads(self.as_client("ann", server, "list", "--json", "--limit",
                                               "1")[0])
            batch = wait_until("the end", lambda job=newest["id"]: (
                lambda b: b if b["status"] == "failed" else None)(
                    json.loads(self.as_client("ann", server, "status", job, "--json")[0])))
            self.assertEqual(batch["errors"]["data"][0]["code"], "limit_exceeded")
            if flag == "--max-lines":
                self.assertEqual(batch["request_counts"]["total"], 8)
                self.assertIn(f"its first 8 lines are kept and run as {newest['id']}", err)
                self.assertIn(f"batchmill cancel {newest['id']}", err)
            else:  # all of it came in one message, which was over the limit
                self.assertEqual(batch["request_counts"]["total"], 0)
                self.assertIn("nothing of it is kept", err)
            self.submit_as("ann", server, one, "--wait")
        self.batchmill("keys", "allow", key, "--max-jobs", 1, "--max-lines", 9)
        long = self.write_lines("long.jsonl", [chat_line(f"l{i}", f"long {i}", max_tokens=400)
                                               for i in range(9)])
        job = self.submit_as("ann", server, long)
        self.as_client("ann", server, "pause", job)
        _, err = self.as_client("ann", server, "submit", one, exit_code=2)
        self.assertIn("1 unfinished", err)
        self.as_client("ann", server, "cancel", job)
        self.submit_as("ann", server, one, "--wait")

    def test_secrets_and_texts_stay_where_they_belong(self):
        secret_prompt, server = "xylophone-quartz-4711", self.server_key()
        key = self.new_key("ann")
        self.batchmill("keys", "allow", key)
        daemon = self.serve(level="trace")
        good = chat_line("good", secret_prompt, max_tokens=32, ignore_eos=True)
        bad = {"custom_id": "bad", "method": "POST", "url": "/v1/chat/completions",
               "body": {"messages": [{"role": "user", "content": secret_prompt}], "top_p": 7}}
        lines = self.write_lines("in.jsonl", [good, bad])
        job = self.submit_as("ann", server, lines, "--wait", exit_code=1)
        results, _ = self.as_client("ann", server, "results", job)
        completion = json.loads(results)["response"]["body"]["choices"][0]["message"]["content"]
        self.assertGreater(len(completion.strip()), 8)
        said = ""
        for command in (("status", job, "--json"), ("status", job), ("list",), ("list", "--json"),
                        ("costs", job, "--json"), ("costs", job, "--by", "line"),
                        ("explain", job, "good")):
            said += "".join(self.as_client("ann", server, *command))
        for command in (("doctor", "--json"), ("keys", "list")):
            said += "".join(self.batchmill(*command))
        said += "".join(self.as_client("ann", server, "watch", job, exit_code=1))
        secrets = [re.findall(r"^\S{40}$", (self.dir / "ann").read_text(), re.M),
                   re.findall(r"^\S{40}$", (self.data / "server.key").read_text(), re.M)]
        self.assertEqual([len(found) for found in secrets], [1, 1])
        # Errors about keys: one that is cut, one that is another client's, none that is allowed.
        (self.dir / "cut").write_text((self.dir / "ann").read_text().replace(
            secrets[0][0], secrets[0][0][:-1]))
        (self.dir / "cut").chmod(0o600)
        said += "".join(self.as_client("cut", server, "list", exit_code=2))
        self.batchmill("keys", "revoke", key)
        said += "".join(self.as_client("ann", server, "list", exit_code=2))
        process = Path(f"/proc/{daemon.pid}")
        environment = (process / "environ").read_text(encoding="utf-8")
        core_limit = re.search(r"Max core file size\s+(\S+)",
                               (process / "limits").read_text(encoding="utf-8"))
        self.assertIn(core_limit[1], ("0", "1"))
        log = self.end(daemon)
        self.assertIn("is taken in", log)  # it is what it should be
        said += log
        for [secret] in secrets:
            self.assertNotIn(secret[:-1], said + environment)
        self.assertNotIn(secret_prompt, said)
        self.assertNotIn(completion, said)

    def test_sockets_and_files_are_private_whatever_the_umask(self):
        before = os.umask(0)
        try:
            daemon = self.start_daemon(env={"BATCHMILL_QUEUE_ENDPOINT":
                                            f"ipc://{self.dir}/shared.sock"})
        finally:
            os.umask(before)
        self.assertEqual(stat.S_IMODE(self.data.stat().st_mode), 0o700)
        for path in (self.dir / "shared.sock", *self.data.rglob("*")):
            mode = stat.S_IMODE(path.stat().st_mode)
            self.assertEqual(mode & 0o077, 0, f"{path}: {mode:o}")
            if path.suffix == ".sock":
                self.assertEqual(mode, 0o600, path)
        self.end(daemon, signal.SIGTERM)


if __name__ == "__main__":
    unittest.main()
