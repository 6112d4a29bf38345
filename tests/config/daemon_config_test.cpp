#include "config/daemon_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace batchmill {
namespace {

using testing::HasSubstr;

class DaemonConfigTest : public testing::Test {
 protected:
  DaemonConfig load(const std::string& text, const Environment& environment = {}) {
    return load_config(directory_.write("c.toml", text), environment);
  }

  // The message with which the text is refused, the file's directory taken off.
  std::string refusal(const std::string& text, const Environment& environment = {}) {
    try {
      load(text, environment);
    } catch (const ConfigError& error) {
      std::string message = error.what();
      const std::string prefix = directory_.path() + "/";
      if (message.starts_with(prefix)) message.erase(0, prefix.size());
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
      return message;
    }
    return "accepted";
  }

  TemporaryDirectory directory_;
};

TEST_F(DaemonConfigTest, RefusesAnIntegerThatIsNoMultiple) {
  DaemonConfig config;
  set(config, "engine.block_size_tokens", "48", "--block-size");
  EXPECT_EQ(config.engine.block_size_tokens, 48);
  try {
    set(config, "engine.block_size_tokens", "20", "--block-size");
    FAIL() << "taken";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("from 16 to 256, a multiple of 16"), std::string::npos)
        << error.what();
  }
}

TEST_F(DaemonConfigTest, RefusesWhatNoEndpointCanBe) {
  for (const char* good : {"", "tcp://127.0.0.1:5559", "tcp://*:1", "tcp://[::1]:65535",
                           "tcp://node-1.example:80", "ipc:///run/batchmill.sock", "ipc://@x"}) {
    EXPECT_EQ(load(std::string("[queue]\nendpoint = \"") + good + "\"").queue.endpoint, good);
  }
  const std::string long_path = "ipc:///" + std::string(107, 'x');
  for (const std::string& bad : std::vector<std::string>{
           "tcp://127.0.0.1:99999", "tcp://127.0.0.1:65536", "tcp://127.0.0.1:0",
           "tcp://127.0.0.1:*", "tcp://127.0.0.1", "tcp://127.0.0.1:", "tcp://:5559",
           "tcp://127.0.0.1:-1", "tcp://127.0.0.1:+80", "tcp://127.0.0.1:5559x",
           "tcp://127.0.0.1:00000000080", "tcp://a b:80", "ipc://", "ipc://*", "udp://127.0.0.1:80",
           "inproc://x", "127.0.0.1:5559", long_path}) {
    EXPECT_THAT(refusal("[queue]\nendpoint = \"" + bad + "\""),
                HasSubstr("c.toml:2: key 'queue.endpoint' must be ipc://PATH"))
        << bad;
  }
  DaemonConfig config;
  EXPECT_THROW(set(config, "queue.endpoint", "tcp://x:70000", "--endpoint"), ConfigError);
}

TEST_F(DaemonConfigTest, RefusesAFileWithoutAnEnd) {
  try {
    load_config("/dev/zero", {});
    FAIL() << "read";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/dev/zero: a configuration holds at most 1048576 bytes"));
  }
  EXPECT_THAT(refusal("#" + std::string(1 << 20, 'x')), HasSubstr("c.toml: a configuration holds"));
  EXPECT_EQ(config_values(load_config("/dev/null", {})), config_values(DaemonConfig{}));
}

TEST_F(DaemonConfigTest, HasDefaultsWithoutAFile) {
  const DaemonConfig config = load_config(std::nullopt, {});
  EXPECT_EQ(config_values(config), config_values(DaemonConfig{}));
  EXPECT_TRUE(config.models.empty());
}

TEST_F(DaemonConfigTest, ReadsEverySection) {
  const DaemonConfig config = load(R"(
[queue]
endpoint = "tcp://127.0.0.1:5559"
upload_timeout_s = "2h"
[storage]
path = "/var/lib/batchmill"
sync = false
compression = "lz4"
[[model]]
name = "smol"
path = "/models/smol.gguf"
aliases = ["gpt-4o-mini", "*"]
dtype = "f32"
max_context_tokens = 512
[[model]]
name = "other"
path = "other.gguf"
[engine]
max_num_seqs = 8
kv_cache_bytes = 4294967296
deterministic = true
[prices]
version = "2026-01"
currency = "EUR"
[prices.default]
input = "0.15"
output = "0.6"
[prices."smol"]
input = "1"
cached_input = "0.000001"
[daemon]
drain_timeout_s = 5
log_level = "debug"
)");
  EXPECT_EQ(config.queue.endpoint, "tcp://127.0.0.1:5559");
  EXPECT_EQ(config.queue.options.upload_timeout_s, 7200);
  EXPECT_EQ(config.storage.path, "/var/lib/batchmill");
  EXPECT_FALSE(config.storage.options.sync);
  EXPECT_EQ(config.storage.options.compression, "lz4");
  ASSERT_EQ(config.models.size(), 2u);
  EXPECT_EQ(config.models[0].name, "smol");
  EXPECT_THAT(config.models[0].aliases, testing::ElementsAre("gpt-4o-mini", "*"));
  EXPECT_EQ(config.models[0].dtype, "f32");
  EXPECT_EQ(config.models[0].max_context_tokens, 512);
  EXPECT_EQ(config.models[1].path, directory_.path("other.gguf"));
  EXPECT_EQ(config.engine.options.max_num_seqs, 8);
  EXPECT_EQ(config.engine.kv_cache_bytes, 4294967296);
  EXPECT_TRUE(config.engine.deterministic);
  EXPECT_EQ(config.prices.version, "2026-01");
  EXPECT_EQ(config.prices.currency, "EUR");
  EXPECT_EQ(config.prices.price_of("none").input, 150'000);
  EXPECT_EQ(config.prices.price_of("none").cached_input, 150'000);
  EXPECT_EQ(config.prices.price_of("none").output, 600'000);
  EXPECT_EQ(config.prices.price_of("smol").cached_input, 1);
  EXPECT_EQ(config.daemon.drain_timeout_s, 5);
  EXPECT_EQ(config.daemon.log_level, "debug");
}

TEST_F(DaemonConfigTest, NamesFileLineKeyAndExpectation) {
  EXPECT_EQ(refusal("[engine]\n\nmax_num_seqs = \"many\"\n"),
            "c.toml:3: key 'engine.max_num_seqs' must be an integer from 1 to 4096, is \"many\"");
  EXPECT_EQ(refusal("[engine]\nmax_num_seqs = 0\n"),
            "c.toml:2: key 'engine.max_num_seqs' must be an integer from 1 to 4096, is 0");
  EXPECT_EQ(refusal("[engine]\nmax_num_seqs = 4097"),
            "c.toml:2: key 'engine.max_num_seqs' must be an integer from 1 to 4096, is 4097");
  EXPECT_EQ(refusal("[storage]\nsync = 1"),
            "c.toml:2: key 'storage.sync' must be true or false, is 1");
  EXPECT_EQ(refusal("[storage]\ncompression = \"gzip\""),
            "c.toml:2: key 'storage.compression' must be one of \"none\", \"lz4\", \"zstd\", is "
            "\"gzip\"");
  EXPECT_EQ(refusal("[daemon]\ndrain_timeout_s = \"2x\""),
            "c.toml:2: key 'daemon.drain_timeout_s' must be whole seconds from 0 to 86400 or a "
            "duration such as \"15m\", is \"2x\"");
  EXPECT_EQ(refusal("[engine]\nthreads = {a = 1}"),
            "c.toml:2: key 'engine.threads' must be an integer from 0 to 4096, is a table");
}

TEST_F(DaemonConfigTest, RefusesEveryWrongType) {
  for (const char* value : {"true", "1.0", "\"8\"", "[8]", "{}", "1979-05-27", "07:32:00", "inf"}) {
    EXPECT_THAT(refusal(std::string("[engine]\nmax_num_seqs = ") + value),
                HasSubstr("c.toml:2: key 'engine.max_num_seqs' must be an integer"))
        << value;
  }
  for (const char* value : {"true", "3", "[\"a\", 3]", "\"a\"", "[\"\"]", "[[\"a\"]]"}) {
    EXPECT_THAT(refusal(std::string("[[model]]\nname = \"m\"\npath = \"p\"\naliases = ") + value),
                HasSubstr("c.toml:4: key 'model.aliases' must be a list of texts"))
        << value;
  }
  EXPECT_THAT(refusal("engine = 3"), HasSubstr("c.toml:1: key 'engine' must be a table"));
  EXPECT_THAT(refusal("[model]\nname = \"a\""), HasSubstr("must be a list of tables ([[model]])"));
  EXPECT_THAT(refusal("model = [1]"), HasSubstr("must be a list of tables ([[model]])"));
}

TEST_F(DaemonConfigTest, RefusesUnknownKeys) {
  EXPECT_EQ(refusal("[engine]\nthread = 4"), "c.toml:2: unknown key 'engine.thread'");
  EXPECT_EQ(refusal("[engin]\nthreads = 4"), "c.toml:1: unknown key 'engin'");
  EXPECT_EQ(refusal("threads = 4"), "c.toml:1: unknown key 'threads'");
  EXPECT_EQ(refusal("[[model]]\nname = \"m\"\npth = \"p\""), "c.toml:3: unknown key 'model.pth'");
  EXPECT_EQ(refusal("[prices]\nversion = \"1\"\n[prices.m]\nprompt = \"1\""),
            "c.toml:4: unknown key 'prices.m.prompt'");
  EXPECT_EQ(refusal("[prices]\nmodel = \"1\""), "c.toml:2: unknown key 'prices.model'");
}

TEST_F(DaemonConfigTest, RefusesWhatIsNotSupportedYet) {
  for (const char* text :
       {"[queue]\nhttp_listen = \"127.0.0.1:80\"", "[daemon]\nmetrics_listen = \"127.0.0.1:9\"",
        "[daemon]\non_complete = \"true\"", "[cluster]\nrole = \"worker\"",
        "[cluster]\npeers = []"}) {
    EXPECT_THAT(refusal(text), HasSubstr("is not supported yet")) << text;
    EXPECT_THAT(refusal(text), HasSubstr("c.toml:2: key '")) << text;
  }
  const std::string model = "[[model]]\nname = \"m\"\npath = \"p\"\n";
  EXPECT_THAT(refusal(model + "kv_dtype = \"int4\""), HasSubstr("is not supported yet"));
  EXPECT_THAT(refusal(model + "dtype = \"fp8\""), HasSubstr("must be one of \"auto\", \"f32\""));
  for (const char* device : {"cudax", "cuda", "cuda:", "cuda:x", "cpu:0", "cuda:1234"}) {
    EXPECT_THAT(refusal(model + "device = \"" + device + "\""),
                HasSubstr("must be one of \"auto\", \"cpu\", \"cuda:N\""))
        << device;
  }
}

TEST_F(DaemonConfigTest, RefusesSecretsNowhereButInFiles) {
  EXPECT_EQ(refusal("[queue]\ncurve_secret_key = \"s3cret\""),
            "c.toml:2: unknown key 'queue.curve_secret_key'");
}

TEST_F(DaemonConfigTest, RefusesPricesThatAreNoDecimalTexts) {
  for (const char* value : {"0.15", "1", "\"-1\"", "\"0.0000001\"", "\"1e2\"", "true"}) {
    EXPECT_THAT(
        refusal(std::string("[prices]\nversion = \"1\"\n[prices.default]\ninput = ") + value),
        HasSubstr("c.toml:4: key 'prices.default.input' must be a decimal text"))
        << value;
  }
}

TEST_F(DaemonConfigTest, ShowsANumberAsItWasTyped) {
  for (const char* value : {"0.1", "1.0", "0.15"}) {
    EXPECT_THAT(refusal(std::string("[prices.default]\ninput = ") + value),
                HasSubstr(std::string(", is ") + value));
  }
}

TEST_F(DaemonConfigTest, PricesNeedAVersion) {
  EXPECT_THAT(refusal("[prices.default]\ninput = \"1\""), HasSubstr("key 'prices.version'"));
}

TEST_F(DaemonConfigTest, NamesTheLineOfASyntaxError) {
  EXPECT_THAT(refusal("[engine]\nthreads = \n"), HasSubstr("c.toml:2: not valid TOML: "));
  EXPECT_THAT(refusal("[engine]\nthreads = 1\nthreads = 2\n"),
              HasSubstr("c.toml:3: not valid TOML: "));
  EXPECT_THAT(refusal(std::string("[engine]\n\xff\n")), HasSubstr("not valid TOML: "));
}

TEST_F(DaemonConfigTest, NamesAFileThatCannotBeRead) {
  try {
    load_config(directory_.path("missing.toml"), {});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("missing.toml: cannot be read: No such file"));
  }
  EXPECT_THROW(load_config(directory_.path(), {}), ConfigError);
}

TEST_F(DaemonConfigTest, AcceptsAnEmptyFile) {
  EXPECT_EQ(config_values(load("")), config_values(DaemonConfig{}));
}

TEST_F(DaemonConfigTest, ModelsNeedANameAndAPath) {
  EXPECT_EQ(refusal("\n[[model]]\nname = \"m\""), "c.toml:2: key 'model.path' is missing");
  EXPECT_EQ(refusal("[[model]]\npath = \"m\""), "c.toml:1: key 'model.name' is missing");
}

TEST_F(DaemonConfigTest, ModelNamesAreUnique) {
  EXPECT_THAT(refusal("[[model]]\nname=\"a\"\npath=\"p\"\n[[model]]\nname=\"b\"\npath=\"p\"\n"
                      "aliases=[\"a\"]"),
              HasSubstr("c.toml:4: key 'model.name': 'a' is the name of more than one model"));
}

TEST_F(DaemonConfigTest, ResolvesPathsBesideTheFileAndAtHome) {
  const DaemonConfig config =
      load("[storage]\npath = \"data/../d\"\n[[model]]\nname=\"a\"\npath=\"~/m.gguf\"",
           {{"HOME", "/h/u"}});
  EXPECT_EQ(config.storage.path, directory_.path("d"));
  EXPECT_EQ(config.models.at(0).path, "/h/u/m.gguf");
  EXPECT_THAT(refusal("[storage]\npath = \"~/d\""),
              HasSubstr("c.toml:2: key 'storage.path' needs"));
}

TEST_F(DaemonConfigTest, EnvironmentGoesBeforeTheFile) {
  const DaemonConfig config = load(
      "[engine]\nthreads = 2\nmax_num_seqs = 3\n[[model]]\nname=\"a\"\npath=\"p\"\ndtype=\"f32\"",
      {{"BATCHMILL_ENGINE_THREADS", "7"},
       {"BATCHMILL_STORAGE_SYNC", "false"},
       {"BATCHMILL_DAEMON_DRAIN_TIMEOUT_S", "2m"},
       {"BATCHMILL_MODEL_DTYPE", "bf16"},
       {"BATCHMILL_ENGINE_MAX_NUM_SEQS", ""}});
  EXPECT_EQ(config.engine.threads, 7);
  EXPECT_EQ(config.engine.options.max_num_seqs, 3);
  EXPECT_FALSE(config.storage.options.sync);
  EXPECT_EQ(config.daemon.drain_timeout_s, 120);
  EXPECT_EQ(config.models.at(0).dtype, "bf16");
}

TEST_F(DaemonConfigTest, NamesTheEnvironmentVariable) {
  EXPECT_EQ(refusal("", {{"BATCHMILL_ENGINE_THREADS", "lots"}}),
            "environment variable BATCHMILL_ENGINE_THREADS: key 'engine.threads' must be an "
            "integer from 0 to 4096, is \"lots\"");
  EXPECT_EQ(refusal("", {{"BATCHMILL_ENGINE_THREDS", "4"}}),
            "environment variable BATCHMILL_ENGINE_THREDS: no such key in section [engine]");
  EXPECT_THAT(refusal("", {{"BATCHMILL_QUEUE_HTTP_LISTEN", "x"}}),
              HasSubstr("is not supported yet"));
}

TEST_F(DaemonConfigTest, LeavesOtherVariablesAlone) {
  EXPECT_EQ(refusal("", {{"BATCHMILL_DATA", "/d"}, {"BATCHMILL_MODEL", "m"}, {"PATH", "p"}}),
            "accepted");
}

TEST_F(DaemonConfigTest, FlagsGoBeforeAll) {
  DaemonConfig config = load("[engine]\nthreads = 2", {{"BATCHMILL_ENGINE_THREADS", "7"}});
  set(config, "engine.threads", "4", "--threads");
  EXPECT_EQ(config.engine.threads, 4);
}

TEST_F(DaemonConfigTest, SetNamesTheFlag) {
  DaemonConfig config;
  const auto refusal_of = [&](const std::string& key, const std::string& value) -> std::string {
    try {
      set(config, key, value, "--flag");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal_of("engine.threads", "4.0"),
            "--flag: key 'engine.threads' must be an integer from 0 to 4096, is \"4.0\"");
  EXPECT_EQ(refusal_of("engine.nothing", "4"), "--flag: unknown key 'engine.nothing'");
  EXPECT_EQ(refusal_of("model.path", "x"), "--flag: unknown key 'model.path'");
  EXPECT_THAT(refusal_of("model.device", "tpu:0"), HasSubstr("must be one of"));
  EXPECT_EQ(refusal_of("model.device", "cuda:1"), "accepted");
  EXPECT_EQ(refusal_of("engine.deterministic", "true"), "accepted");
  EXPECT_TRUE(config.engine.deterministic);
}

TEST_F(DaemonConfigTest, ModelGivenByPathIsTheDefaultOne) {
  DaemonConfig config = load("[[model]]\nname=\"a\"\npath=\"p\"");
  set(config, "model.dtype", "f32", "--dtype");
  add_model(config, "/m/Tiny-1B.Q8_0.gguf", {"*"});
  ASSERT_EQ(config.models.size(), 2u);
  EXPECT_EQ(config.models[0].name, "Tiny-1B.Q8_0");
  EXPECT_EQ(config.models[0].dtype, "f32");
  EXPECT_THAT(config.models[0].aliases, testing::ElementsAre("*"));
  EXPECT_EQ(config.models[1].dtype, "f32");
  EXPECT_THROW(add_model(config, "/n/a.gguf", {}), ConfigError);
  EXPECT_EQ(config.models.size(), 2u);
}

}  // namespace
}  // namespace batchmill
