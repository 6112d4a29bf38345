// keys: who may connect to a daemon over tcp://. Works on files alone; a running daemon follows.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <utility>

#include "config/data_directory.h"
#include "config/environment.h"
#include "queue/allowed_clients.h"
#include "queue/curve_keys.h"
#include "queue/wire.h"
#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/table.h"

namespace batchmill {
namespace {

struct Places {
  std::string server_key;
  std::string allowed_clients;
};

// Makes the data directory if the files are to be there.
Places places_of(const Settings& settings) {
  const DaemonConfig config = settings.load();
  const std::string data = settings.data_directory(config);
  const std::string& configured = config.queue.options.curve_secret_key_file;
  Places places = {configured.empty() ? data + "/" + kServerKeyName : configured,
                   allowed_clients_file(config, data)};
  if (configured.empty() || config.queue.options.allowed_clients_file.empty()) {
    make_private_directory(data);
  }
  return places;
}

int new_keys(const Settings& settings, bool server, const std::string& file) {
  ::umask(077);
  if (server != file.empty()) {
    throw ToolError(kExitUsage, "keys new: name the new file of a client's key, or give --server");
  }
  const std::string path = server ? places_of(settings).server_key : file;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder);  // 0700 by the umask
  const CurveKeys keys = new_curve_keys();
  write_secret_key(path, keys);
  if (settings.json) {
    std::cout << Json{{"public_key", keys.public_key}, {"file", path}}.dump() << std::endl;
  } else {
    std::cout << keys.public_key << std::endl;
  }
  if (!settings.quiet) {
    std::cerr << (server ? "the daemon's secret key is in " + path +
                               "; a daemon that starts now asks for keys on tcp://. Its public key "
                               "(above) is what clients give as --server-key\n"
                         : "the secret key is in " + path +
                               "; let its public key (above) in on the daemon's machine:\n  "
                               "batchmill keys allow '" +
                               keys.public_key + "'\n");
  }
  return kExitDone;
}

// For people.
std::string name_of(const Caller& client) {
  return client.name.empty() ? "'" + client.key + "'" : client.name;
}

int allow(const Settings& settings, const Caller& client) {
  ::umask(077);
  if (!is_curve_key(client.key)) {
    throw ToolError(kExitUsage,
                    "keys allow: expected a public key of 40 characters, as `batchmill "
                    "keys new` prints it");
  }
  if (!client.name.empty() && !is_client_name(client.name)) {
    throw ToolError(kExitUsage, "--name: expected at most 64 letters, digits, '.', '_', '@', '-'");
  }
  const Places places = places_of(settings);
  bool is_new = true;
  edit_allowed_clients(places.allowed_clients, [&](std::vector<Caller>& clients) {
    const auto known = std::ranges::find(clients, client.key, &Caller::key);
    if (known == clients.end()) {
      clients.push_back(client);
    } else {
      *known = client;
      is_new = false;
    }
  });
  if (!settings.quiet) {
    std::cerr << name_of(client) << (is_new ? " may connect now" : " has these rights now")
              << std::endl;
  }
  return kExitDone;
}

int revoke(const Settings& settings, const std::string& who) {
  ::umask(077);
  std::vector<std::string> gone;
  edit_allowed_clients(places_of(settings).allowed_clients, [&](std::vector<Caller>& clients) {
    std::erase_if(clients, [&](const Caller& client) {
      const bool is_it = client.key == who || client.name == who;
      if (is_it) gone.push_back(name_of(client));
      return is_it;
    });
  });
  if (gone.empty()) throw ToolError(kExitNotFound, "no client is allowed by this key or name");
  if (!settings.quiet) {
    for (const std::string& name : gone) std::cerr << name << " may connect no more" << std::endl;
  }
  return kExitDone;
}

Json limit_json(std::uint64_t limit) { return limit == 0 ? Json() : Json(limit); }

int list(const Settings& settings) {
  const DaemonConfig config = settings.load();
  const AllowedClients allowed(allowed_clients_file(config, settings.data_directory(config)));
  Table table({"KEY", "NAME", "RIGHTS", "MAX BYTES", "MAX LINES", "MAX JOBS"});
  const auto text = [](std::uint64_t limit) { return limit == 0 ? "-" : std::to_string(limit); };
  for (const Caller& client : allowed.all()) {
    if (settings.json) {
      std::cout << Json{{"key", client.key},
                        {"name", client.name.empty() ? Json() : Json(client.name)},
                        {"admin", client.admin},
                        {"max_bytes", limit_json(client.max_bytes)},
                        {"max_lines", limit_json(client.max_lines)},
                        {"max_jobs", limit_json(client.max_jobs)}}
                       .dump()
                << "\n";
    }
    table.add({client.key, client.name.empty() ? "-" : client.name,
               client.admin ? "admin" : "own jobs", text(client.max_bytes), text(client.max_lines),
               text(client.max_jobs)});
  }
  if (!settings.json) std::cout << table.text() << std::flush;
  const std::string key_file = server_key_file(config, settings.data_directory(config));
  if (!settings.quiet && !key_file.empty()) {
    std::cerr << "the daemon's public key is '" << read_secret_key(key_file).public_key << "'"
              << std::endl;
  }
  return kExitDone;
}

}  // namespace

void add_keys_command(CLI::App* app, const Settings* settings, Action* action) {
  CLI::App* keys = add_command(app, "keys", "Who may connect to a daemon over tcp://",
                               "batchmill keys new --server");
  keys->require_subcommand(1);

  CLI::App* made = add_command(keys, "new", "Make a pair of keys; prints the public one",
                               "batchmill keys new ~/.config/batchmill.key");
  auto file = std::make_shared<std::string>();
  auto server = std::make_shared<bool>(false);
  made->add_option("FILE", *file, "New file for a client's secret key");
  made->add_flag("--server", *server, "The daemon's keys instead, where it looks for them");
  made->callback([=] { *action = [=] { return new_keys(*settings, *server, *file); }; });

  CLI::App* allowed = add_command(keys, "allow", "Let a client in; once more: with other rights",
                                  "batchmill keys allow 'KEY' --name nightly --max-jobs 10");
  auto client = std::make_shared<Caller>();
  client->admin = false;
  allowed->add_option("KEY", client->key, "The client's public key")->required();
  allowed->add_option("--name", client->name, "A name for people")->type_name("S");
  allowed->add_flag("--admin", client->admin, "Every job, and backup, compact, prune");
  const auto add_limit = [&](const char* name, std::uint64_t Caller::*field, const char* what) {
    allowed->add_option(name, (*client).*field, what)
        ->check(CLI::Validator(
            [](std::string& text) {
              const bool is_number = !text.empty() && text.size() <= 19 &&
                                     text.find_first_not_of("0123456789") == std::string::npos &&
                                     text.find_first_not_of('0') != std::string::npos;
              return is_number ? "" : "expected a whole number from 1 on, not " + text;
            },
            ""))
        ->type_name("N");
  };
  add_limit("--max-bytes", &Caller::max_bytes, "Content of one job [no limit]");
  add_limit("--max-lines", &Caller::max_lines, "Lines of one job [no limit]");
  add_limit("--max-jobs", &Caller::max_jobs, "Jobs that have not ended [no limit]");
  allowed->callback([=] { *action = [=] { return allow(*settings, *client); }; });

  CLI::App* revoked = add_command(keys, "revoke", "Take a client's rights away, at once",
                                  "batchmill keys revoke nightly");
  auto who = std::make_shared<std::string>();
  revoked->add_option("KEY", *who, "The client's public key, or its name")->required();
  revoked->callback([=] { *action = [=] { return revoke(*settings, *who); }; });

  CLI::App* listed =
      add_command(keys, "list", "The clients that are allowed", "batchmill keys list --json");
  listed->callback([=] { *action = [=] { return list(*settings); }; });
}

}  // namespace batchmill
