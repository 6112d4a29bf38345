// CURVE keys as users handle them: 40 characters (Z85), a secret one alone in a private file.
#pragma once

#include <string>
#include <string_view>

namespace batchmill {

struct CurveKeys {
  std::string public_key;
  std::string secret_key;
};

CurveKeys new_curve_keys();
bool is_curve_key(std::string_view text);

// Writes the secret key to a new file of mode 0600. Throws std::runtime_error if the file is there
// already or cannot be written.
void write_secret_key(const std::string& path, const CurveKeys& keys);

// Reads such a file. Throws std::runtime_error if it cannot be read, holds no key, or may be read
// by others; the message holds nothing of its content.
CurveKeys read_secret_key(const std::string& path);

// What a client needs for a server that asks for keys.
struct ClientKeys {
  std::string server_public_key;
  CurveKeys own;
};

}  // namespace batchmill
