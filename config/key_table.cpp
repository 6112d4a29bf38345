// The tables of all keys, in the order of config/batchmill.toml.
#include <cstdint>

#include "config/config_key.h"

namespace batchmill {
namespace {

constexpr std::int64_t kMaxInt32 = INT32_MAX;
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 50;  // 1 PiB
constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMiB = 1024 * kKiB;

using Key = ConfigKey<DaemonConfig>;
using ModelKey = ConfigKey<ModelConfigEntry>;
using PriceKey = ConfigKey<TokenPrice>;

Key later(std::string_view name, std::string_view meaning) {
  Key key;
  key.name = name;
  key.meaning = meaning;
  return key;
}

std::vector<Key> queue_keys() {
  return {
      Key{.name = "queue.endpoint",
          .type = KeyType::kEndpoint,
          .field = [](DaemonConfig& c) -> std::string& { return c.queue.endpoint; },
          .meaning = "ZeroMQ endpoint that the daemon serves and the tool connects to, such as "
                     "\"tcp://127.0.0.1:5559\" or \"ipc:///run/batchmill.sock\". Empty: "
                     "ipc://DATA/queue.sock (a shorter path under $XDG_RUNTIME_DIR if that one is "
                     "longer than 107 bytes), which is always served besides."},
      Key{.name = "queue.max_line_bytes",
          .type = KeyType::kInteger,
          .field = [](DaemonConfig& c) -> std::uint64_t& { return c.queue.options.max_line_bytes; },
          .min = kKiB,
          .max = 1024 * kMiB,
          .unit = "bytes",
          .meaning = "Longest line of a job; a longer one fails with line_too_long."},
      Key{.name = "queue.max_message_bytes",
          .type = KeyType::kInteger,
          .field = [](DaemonConfig& c) -> std::uint64_t& {
            return c.queue.options.max_message_bytes;
          },
          .min = 64 * kKiB,
          .max = 1024 * kMiB,
          .unit = "bytes",
          .meaning = "Largest message frame; a client that sends a larger one is disconnected."},
      Key{.name = "queue.credit_bytes",
          .type = KeyType::kInteger,
          .field = [](DaemonConfig& c) -> std::uint64_t& { return c.queue.options.credit_bytes; },
          .min = 64 * kKiB,
          .max = 1024 * kMiB,
          .unit = "bytes",
          .meaning = "Uploaded bytes that one client may have sent without their being durable."},
      Key{.name = "queue.max_connections",
          .type = KeyType::kInteger,
          .field = [](DaemonConfig& c) -> std::int32_t& { return c.queue.options.max_connections; },
          .min = 1,
          .max = 65'536,
          .unit = "clients",
          .meaning = "Most clients connected at a time."},
      Key{.name = "queue.upload_timeout_s",
          .type = KeyType::kDuration,
          .field = [](DaemonConfig& c) -> std::int32_t& {
            return c.queue.options.upload_timeout_s;
          },
          .min = 1,
          .max = 30 * 86'400,
          .unit = "seconds",
          .meaning = "An upload that is idle for so long ends its job with truncated_input."},
      later("queue.http_listen", "HOST:PORT of an HTTP gateway."),
      Key{.name = "queue.curve_secret_key_file",
          .type = KeyType::kPath,
          .field = [](DaemonConfig& c) -> std::string& {
            return c.queue.options.curve_secret_key_file;
          },
          .meaning = "The daemon's secret CURVE key, a file of mode 0600 that `batchmill keys new "
                     "--server` makes. With one, every tcp:// endpoint asks for a key; without, "
                     "only loopback may be served. Empty: DATA/server.key if that is there."},
      Key{.name = "queue.allowed_clients_file",
          .type = KeyType::kPath,
          .field = [](DaemonConfig& c) -> std::string& {
            return c.queue.options.allowed_clients_file;
          },
          .meaning = "Clients that may connect with a key, and their limits; `batchmill keys allow "
                     "and revoke` change it, a running daemon follows. Empty: "
                     "DATA/allowed_clients."},
      Key{.name = "queue.curve_client_key_file",
          .type = KeyType::kPath,
          .field = [](DaemonConfig& c) -> std::string& { return c.queue.curve_client_key_file; },
          .meaning = "The tool's own secret key (--key), for a tcp:// endpoint that asks for one."},
      Key{.name = "queue.curve_server_public_key",
          .type = KeyType::kText,
          .field = [](DaemonConfig& c) -> std::string& { return c.queue.curve_server_public_key; },
          .max = 40,
          .meaning = "The public key of the daemon at that endpoint (--server-key): 40 "
                     "characters."},
  };
}

std::vector<Key> storage_keys() {
  return {
      Key{.name = "storage.path",
          .type = KeyType::kPath,
          .field = [](DaemonConfig& c) -> std::string& { return c.storage.path; },
          .meaning = "The data directory. --data and $BATCHMILL_DATA go before it. Empty: "
                     "$XDG_STATE_HOME/batchmill, else ~/.local/state/batchmill."},
      Key{.name = "storage.sync",
          .type = KeyType::kBool,
          .field = [](DaemonConfig& c) -> bool& { return c.storage.options.sync; },
          .meaning =
              "Sync the log before a line is acked or a result becomes visible. Off: a power "
              "cut may lose the last second; a killed process loses nothing."},
      Key{.name = "storage.compression",
          .type = KeyType::kChoice,
          .field = [](DaemonConfig& c) -> std::string& { return c.storage.options.compression; },
          .choices = {"none", "lz4", "zstd"},
          .meaning = "Compression of the store's lower levels."},
      Key{.name = "storage.block_cache_bytes",
          .type = KeyType::kInteger,
          .field = [](DaemonConfig& c) -> std::uint64_t& {
            return c.storage.options.block_cache_bytes;
          },
          .min = kMiB,
          .max = kMaxBytes,
          .unit = "bytes",
          .meaning = "Memory for blocks read from the store."},
      Key{.name = "storage.write_buffer_bytes",
          .type = KeyType::kInteger,
          .field = [](DaemonConfig& c) -> std::uint64_t& {
            return c.storage.options.write_buffer_bytes;
          },
          .min = 4 * kMiB,
          .max = kMaxBytes,
          .unit = "bytes",
          .meaning = "Memory for what is not yet written to the store's tables."},
      Key{.name = "storage.max_total_wal_bytes",
          .type = KeyType::kInteger,
          .field = [](DaemonConfig& c) -> std::uint64_t& {
            return c.storage.options.max_total_wal_bytes;
          },
          .min = 4 * kMiB,
          .max = kMaxBytes,
          .unit = "bytes",
          .meaning = "Disk that the store's write-ahead logs may take."},
      Key{.name = "storage.max_open_files",
          .type = KeyType::kInteger,
          .field = [](DaemonConfig& c) -> std::int32_t& {
            return c.storage.options.max_open_files;
          },
          .min = 32,
          .max = 1'000'000,
          .unit = "files",
          .meaning = "Files that the store keeps open."},
      Key{.name = "storage.retention",
          .type = KeyType::kDuration,
          .field = [](DaemonConfig& c) -> std::int64_t& { return c.storage.retention_s; },
          .max = 100LL * 366 * 86'400,
          .unit = "seconds",
          .meaning = "A daemon removes jobs that ended longer ago than this, with their lines, "
                     "results and costs. 0: never."},
  };
}

std::vector<Key> engine_keys() {
  return {
      Key{.name = "engine.max_num_seqs",
          .type = KeyType::kInteger,
          .field = [](DaemonConfig& c) -> std::int32_t& { return c.engine.options.max_num_seqs; },
          .min = 1,
          .max = 4096,
          .unit = "sequences",
          .meaning = "Most sequences that share a step. More uses the device better and needs more "
                     "KV cache."},
      Key{.name = "engine.max_num_batched_tokens",
          .type = KeyType::kInteger,
          .field = [](DaemonConfig& c) -> std::int32_t& {
            return c.engine.options.max_num_batched_tokens;
          },
          .min = 16,
          .max = 1'048'576,
          .unit = "tokens",
          .meaning =
              "Most tokens of a step. Larger prefill chunks are more efficient; smaller ones "
              "keep the time between two tokens of a running sequence short."},
      Key{.name = "engine.generation_reserve_tokens",
          .type = KeyType::kInteger,
          .field = [](DaemonConfig& c) -> std::int32_t& {
            return c.engine.options.generation_reserve_tokens;
          },
          .min = 1,
          .max = 1'048'576,
          .unit = "tokens",
          .meaning = "Generated tokens for which KV cache must be free before a sequence starts "
                     "(fewer if its max_tokens is less)."},
      Key{.name = "engine.block_size_tokens",
          .type = KeyType::kInteger,
          .field = [](DaemonConfig& c) -> std::int32_t& { return c.engine.block_size_tokens; },
          .min = 16,
          .max = 256,
          .multiple_of = 16,
          .unit = "tokens",
          .meaning = "Tokens in one block of the KV cache."},
      Key{.name = "engine.kv_cache_bytes",
          .type = KeyType::kInteger,
          .field = [](DaemonConfig& c) -> std::int64_t& { return c.engine.kv_cache_bytes; },
          .max = kMaxBytes,
          .unit = "bytes",
          .meaning = "Size of a model's KV cache. 0: what fits in memory."},
      Key{.name = "engine.default_max_tokens",
          .type = KeyType::kInteger,
          .field = [](DaemonConfig& c) -> std::int32_t& { return c.engine.default_max_tokens; },
          .min = 1,
          .max = kMaxInt32,
          .unit = "tokens",
          .meaning = "Most tokens that a chat line without max_tokens generates."},
      Key{.name = "engine.max_choices",
          .type = KeyType::kInteger,
          .field = [](DaemonConfig& c) -> std::int32_t& { return c.engine.max_choices; },
          .min = 1,
          .max = 4096,
          .unit = "choices",
          .meaning = "Largest n of a line; more is invalid_value."},
      Key{.name = "engine.deterministic",
          .type = KeyType::kBool,
          .field = [](DaemonConfig& c) -> bool& { return c.engine.deterministic; },
          .meaning = "A line with a seed or temperature 0 gets the same answer whatever else "
                     "runs, also where that is slower."},
      Key{.name = "engine.threads",
          .type = KeyType::kInteger,
          .field = [](DaemonConfig& c) -> std::int32_t& { return c.engine.threads; },
          .max = 4096,
          .unit = "threads",
          .meaning = "Compute threads. 0: one for each core that the process may use."},
  };
}

std::vector<Key> price_list_keys() {
  return {
      Key{.name = "prices.version",
          .type = KeyType::kText,
          .field = [](DaemonConfig& c) -> std::string& { return c.prices.version; },
          .min = 1,
          .max = 64,
          .meaning = "Name of this price list, written beside every cost. Must be given when a "
                     "price is; change it whenever a price changes."},
      Key{.name = "prices.currency",
          .type = KeyType::kText,
          .field = [](DaemonConfig& c) -> std::string& { return c.prices.currency; },
          .min = 1,
          .max = 16,
          .meaning = "Currency or other unit of all prices."},
  };
}

std::vector<Key> daemon_keys() {
  return {
      Key{.name = "daemon.drain_timeout_s",
          .type = KeyType::kDuration,
          .field = [](DaemonConfig& c) -> std::int64_t& { return c.daemon.drain_timeout_s; },
          .max = 86'400,
          .unit = "seconds",
          .meaning = "At SIGTERM: time in which running lines may finish; the others go back."},
      Key{.name = "daemon.log_level",
          .type = KeyType::kChoice,
          .field = [](DaemonConfig& c) -> std::string& { return c.daemon.log_level; },
          .choices = {"trace", "debug", "info", "warn", "error", "off"},
          .meaning = "Least important message that is logged. Read again at SIGHUP."},
      later("daemon.metrics_listen", "HOST:PORT of GET /metrics."),
      later("daemon.on_complete", "Command that is run when a job ends."),
  };
}

std::vector<Key> cluster_keys() {
  return {
      later("cluster.role", "Part of this process in a cluster."),
      later("cluster.peers", "Addresses of the other processes."),
      later("cluster.tls_certificate_file", "File with the TLS certificate."),
      later("cluster.tls_key_file", "File with the TLS key."),
  };
}

}  // namespace

const std::vector<Key>& config_keys() {
  static const std::vector<Key> keys = [] {
    std::vector<Key> all;
    for (const auto& section : {queue_keys(), storage_keys(), engine_keys(), price_list_keys(),
                                daemon_keys(), cluster_keys()}) {
      all.insert(all.end(), section.begin(), section.end());
    }
    return all;
  }();
  return keys;
}

const std::vector<ModelKey>& model_keys() {
  static const std::vector<ModelKey> keys = {
      ModelKey{.name = "name",
               .type = KeyType::kText,
               .field = [](ModelConfigEntry& m) -> std::string& { return m.name; },
               .min = 1,
               .max = 256,
               .meaning = "What the \"model\" of a line says. Required, each name once. The first "
                          "model is also \"default\"."},
      ModelKey{.name = "aliases",
               .type = KeyType::kTextList,
               .field = [](ModelConfigEntry& m) -> std::vector<std::string>& { return m.aliases; },
               .meaning = "Further names. \"*\" stands for every name that no model has."},
      ModelKey{.name = "path",
               .type = KeyType::kPath,
               .field = [](ModelConfigEntry& m) -> std::string& { return m.path; },
               .meaning = "The model: a GGUF file or a Hugging Face folder. Required."},
      ModelKey{
          .name = "dtype",
          .type = KeyType::kChoice,
          .field = [](ModelConfigEntry& m) -> std::string& { return m.dtype; },
          .choices = {"auto", "f32", "bf16", "int8"},
          .meaning = "Type of weights and of matrix products. \"auto\": what is fastest here."},
      ModelKey{.name = "kv_dtype",
               .type = KeyType::kChoice,
               .field = [](ModelConfigEntry& m) -> std::string& { return m.kv_dtype; },
               .choices = {"auto", "f32", "bf16", "int8", "fp8"},
               .later = {"int4"},
               .meaning =
                   "Type of the KV cache. \"auto\": int8 if weights are, else as activations. The "
                   "CPU has no \"fp8\", GPUs have no \"f32\"."},
      ModelKey{.name = "device",
               .type = KeyType::kChoice,
               .field = [](ModelConfigEntry& m) -> std::string& { return m.device; },
               .choices = {"auto", "cpu"},
               .numbered = {"cuda"},
               .unlisted = {"emulated"},
               .meaning =
                   "Where the model runs. \"auto\": on every GPU that can run it, which share the "
                   "lines; on the CPU if there is none."},
      ModelKey{.name = "max_context_tokens",
               .type = KeyType::kInteger,
               .field = [](ModelConfigEntry& m) -> std::int32_t& { return m.max_context_tokens; },
               .max = kMaxInt32,
               .unit = "tokens",
               .meaning = "Longest prompt and answer together. 0: what the model was trained for."},
  };
  return keys;
}

const std::vector<PriceKey>& price_keys() {
  static const std::vector<PriceKey> keys = {
      PriceKey{.name = "input",
               .type = KeyType::kPrice,
               .field = [](TokenPrice& p) -> std::int64_t& { return p.input; },
               .max = kMaxPrice,
               .unit = "per 1,000,000 tokens",
               .meaning = "Prompt tokens that were computed."},
      PriceKey{.name = "cached_input",
               .type = KeyType::kPrice,
               .field = [](TokenPrice& p) -> std::int64_t& { return p.cached_input; },
               .max = kMaxPrice,
               .unit = "per 1,000,000 tokens",
               .meaning = "Prompt tokens taken from the prefix cache. Not given: as input."},
      PriceKey{.name = "output",
               .type = KeyType::kPrice,
               .field = [](TokenPrice& p) -> std::int64_t& { return p.output; },
               .max = kMaxPrice,
               .unit = "per 1,000,000 tokens",
               .meaning = "Generated tokens."},
  };
  return keys;
}

}  // namespace batchmill
