#include "queue/json_reader.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <unordered_map>
#include <utility>

namespace batchmill {
namespace {

// Objects with more keys find repeated ones by a hash table; fewer are searched one by one.
constexpr std::size_t kLinearSearchKeys = 16;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

void append_utf8(std::uint32_t code_point, std::string* out) {
  const auto byte = [&](std::uint32_t value) { out->push_back(static_cast<char>(value)); };
  if (code_point < 0x80) {
    byte(code_point);
  } else if (code_point < 0x800) {
    byte(0xC0 | (code_point >> 6));
    byte(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    byte(0xE0 | (code_point >> 12));
    byte(0x80 | ((code_point >> 6) & 0x3F));
    byte(0x80 | (code_point & 0x3F));
  } else {
    byte(0xF0 | (code_point >> 18));
    byte(0x80 | ((code_point >> 12) & 0x3F));
    byte(0x80 | ((code_point >> 6) & 0x3F));
    byte(0x80 | (code_point & 0x3F));
  }
}

// What a decimal number that no double can hold becomes: 0 when it is too small, else infinity.
double out_of_range_value(std::string_view number) {
  const bool negative = number.front() == '-';
  std::int32_t exponent = 0;  // 32 bits: its sum with the places fits 64
  const std::size_t e = number.find_first_of("eE");
  if (e != std::string_view::npos) {
    std::string_view digits = number.substr(e + 1);
    if (digits.front() == '+') digits.remove_prefix(1);
    const auto [end, status] =
        std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
    if (status != std::errc()) {
      exponent = digits.front() == '-' ? std::numeric_limits<std::int32_t>::min()
                                       : std::numeric_limits<std::int32_t>::max();
    }
  }
  const std::string_view mantissa = number.substr(0, e);
  const std::size_t first = mantissa.find_first_of("123456789");
  if (first == std::string_view::npos) return negative ? -0.0 : 0.0;
  const std::size_t point = std::min(mantissa.find('.'), mantissa.size());
  const auto places = static_cast<std::int64_t>(point) - static_cast<std::int64_t>(first);
  if (places + exponent < 0) return negative ? -0.0 : 0.0;
  const double infinity = std::numeric_limits<double>::infinity();
  return negative ? -infinity : infinity;
}

class JsonReader {
 public:
  explicit JsonReader(std::string_view bytes) : bytes_(bytes) {}

  std::optional<Json> read(std::string* why) {
    Json value;
    skip_space();
    if (read_value(&value, 0)) {
      skip_space();
      if (at_ < bytes_.size()) fail("text after the end of the value");
    }
    if (why_.empty()) return value;
    if (why != nullptr) *why = fmt::format("{} (byte {})", why_, at_);
    return std::nullopt;
  }

 private:
  bool fail(std::string_view why) {
    why_ = why;
    return false;
  }

  char peek() const { return at_ < bytes_.size() ? bytes_[at_] : '\0'; }
  bool at_end() const { return at_ >= bytes_.size(); }

  void skip_space() {
    while (at_ < bytes_.size()) {
      const char c = bytes_[at_];
      if (c != ' ' && c != '\t' && c != '\n' && c != '\r') break;
      ++at_;
    }
  }

  bool read_value(Json* value, int depth) {
    if (at_end()) return fail("ends in the middle of a value");
    switch (bytes_[at_]) {
      case '{':
        return read_object(value, depth + 1);
      case '[':
        return read_array(value, depth + 1);
      case '"': {
        std::string text;
        if (!read_string(&text)) return false;
        *value = std::move(text);
        return true;
      }
      case 't':
        *value = true;
        return read_word("true");
      case 'f':
        *value = false;
        return read_word("false");
      case 'n':
        *value = nullptr;
        return read_word("null");
      default:
        return read_number(value);
    }
  }

  bool read_word(std::string_view word) {
    if (bytes_.substr(at_, word.size()) != word) return fail("not a JSON value");
    at_ += word.size();
    return true;
  }

  bool read_array(Json* value, int depth) {
    if (depth > kMaxJsonDepth) return fail("nested too deeply");
    ++at_;
    Json::array_t items;
    skip_space();
    if (peek() == ']') {
      ++at_;
    } else {
      for (bool more = true; more;) {
        skip_space();
        if (!read_value(&items.emplace_back(), depth)) return false;
        skip_space();
        if (at_end()) return fail("ends in the middle of an array");
        more = bytes_[at_] == ',';
        if (!more && bytes_[at_] != ']') return fail("',' or ']' expected");
        ++at_;
      }
    }
    *value = std::move(items);
    return true;
  }

  bool read_object(Json* value, int depth) {
    if (depth > kMaxJsonDepth) return fail("nested too deeply");
    ++at_;
    Json::object_t members;
    std::unordered_map<std::string, std::size_t> places;  // only of large objects
    skip_space();
    if (peek() == '}') {
      ++at_;
    } else {
      for (bool more = true; more;) {
        skip_space();
        if (at_end()) return fail("ends in the middle of an object");
        if (bytes_[at_] != '"') return fail("a key in double quotes expected");
        std::string key;
        if (!read_string(&key)) return false;
        skip_space();
        if (peek() != ':') {
          return fail(at_end() ? "ends in the middle of an object" : "':' expected");
        }
        ++at_;
        skip_space();
        Json member;
        if (!read_value(&member, depth)) return false;
        add_member(&members, &places, std::move(key), std::move(member));
        skip_space();
        if (at_end()) return fail("ends in the middle of an object");
        more = bytes_[at_] == ',';
        if (!more && bytes_[at_] != '}') return fail("',' or '}' expected");
        ++at_;
      }
    }
    *value = std::move(members);
    return true;
  }

  static void add_member(Json::object_t* members,
                         std::unordered_map<std::string, std::size_t>* places, std::string key,
                         Json member) {
    std::size_t place = members->size();
    if (members->size() < kLinearSearchKeys) {
      for (std::size_t i = 0; i < members->size(); ++i) {
        if (members->data()[i].first == key) place = i;
      }
    } else {
      if (places->empty()) {
        for (std::size_t i = 0; i < members->size(); ++i)
          places->emplace(members->data()[i].first, i);
      }
      place = places->try_emplace(key, place).first->second;
    }
    if (place < members->size()) {
      members->data()[place].second = std::move(member);
    } else {
      members->emplace_back(std::move(key), std::move(member));
    }
  }

  bool read_string(std::string* text) {
    ++at_;
    while (true) {
      const std::size_t start = at_;
      while (at_ < bytes_.size()) {
        const auto c = static_cast<unsigned char>(bytes_[at_]);
        if (c == '"' || c == '\\' || c < 0x20) break;
        if (c < 0x80) {
          ++at_;
          continue;
        }
        const std::size_t length = utf8_sequence_length(bytes_.substr(at_));
        if (length == 0) return fail("invalid UTF-8");
        at_ += length;
      }
      text->append(bytes_.substr(start, at_ - start));
      if (at_end()) return fail("ends in the middle of a string");
      if (bytes_[at_] == '"') break;
      if (bytes_[at_] != '\\') return fail("control character in a string");
      if (!read_escape(text)) return false;
    }
    ++at_;
    return true;
  }

  bool read_escape(std::string* text) {
    if (at_ + 1 >= bytes_.size()) return fail("ends in the middle of a string");
    const char c = bytes_[at_ + 1];
    constexpr std::string_view kLetters = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const std::size_t index = kLetters.find(c);
    if (index != std::string_view::npos) {
      text->push_back(kMeanings[index]);
      at_ += 2;
      return true;
    }
    if (c != 'u') return fail("unknown escape in a string");
    std::uint32_t unit = 0;
    if (!read_hex(at_ + 2, &unit)) return fail("four hex digits expected after \\u");
    if (unit >= 0xDC00 && unit <= 0xDFFF) return fail("lone surrogate");
    if (unit >= 0xD800 && unit <= 0xDBFF) {
      std::uint32_t low = 0;
      if (bytes_.substr(at_ + 6, 2) != "\\u" || !read_hex(at_ + 8, &low) || low < 0xDC00 ||
          low > 0xDFFF) {
        return fail("lone surrogate");
      }
      unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
      at_ += 6;
    }
    at_ += 6;
    append_utf8(unit, text);
    return true;
  }

  bool read_hex(std::size_t at, std::uint32_t* unit) const {
    if (at + 4 > bytes_.size()) return false;
    const char* const begin = bytes_.data() + at;
    const auto [end, status] = std::from_chars(begin, begin + 4, *unit, 16);
    return status == std::errc() && end == begin + 4 && *begin != '-';
  }

  bool read_number(Json* value) {
    const std::size_t start = at_;
    if (peek() == '-') ++at_;
    if (!is_digit(peek())) {
      at_ = start;
      return fail("not a JSON value");
    }
    if (peek() == '0') {
      ++at_;
    } else {
      skip_digits();
    }
    bool integer = true;
    if (peek() == '.') {
      integer = false;
      ++at_;
      if (!is_digit(peek())) return fail("a digit expected");
      skip_digits();
    }
    if (peek() == 'e' || peek() == 'E') {
      integer = false;
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      if (!is_digit(peek())) return fail("a digit expected");
      skip_digits();
    }
    store_number(bytes_.substr(start, at_ - start), integer, value);
    return true;
  }

  void skip_digits() {
    while (is_digit(peek())) ++at_;
  }

  static void store_number(std::string_view text, bool integer, Json* value) {
    const char* const begin = text.data();
    const char* const end = begin + text.size();
    if (integer) {
      std::int64_t small = 0;
      if (std::from_chars(begin, end, small).ec == std::errc()) {
        *value = small;
        return;
      }
      std::uint64_t large = 0;
      if (text.front() != '-' && std::from_chars(begin, end, large).ec == std::errc()) {
        *value = large;
        return;
      }
    }
    double number = 0.0;
    if (std::from_chars(begin, end, number).ec != std::errc()) number = out_of_range_value(text);
    // An integer just below -2^63 would round to it and look like one that fits.
    constexpr double kLowest = -9223372036854775808.0;
    if (integer && number == kLowest) number = std::nextafter(kLowest, -HUGE_VAL);
    *value = number;
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
  std::string why_;
};

}  // namespace

std::optional<Json> read_json(std::string_view bytes, std::string* why) {
  return JsonReader(bytes).read(why);
}

std::size_t utf8_sequence_length(std::string_view bytes) {
  if (bytes.empty()) return 0;
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const auto tail = [&](std::size_t i, unsigned char low, unsigned char high) {
    return i < bytes.size() && at(i) >= low && at(i) <= high;
  };
  const unsigned char lead = at(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return tail(1, 0x80, 0xBF) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const unsigned char low = lead == 0xE0 ? 0xA0 : 0x80;
    const unsigned char high = lead == 0xED ? 0x9F : 0xBF;
    return tail(1, low, high) && tail(2, 0x80, 0xBF) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const unsigned char low = lead == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = lead == 0xF4 ? 0x8F : 0xBF;
    return tail(1, low, high) && tail(2, 0x80, 0xBF) && tail(3, 0x80, 0xBF) ? 4 : 0;
  }
  return 0;
}

std::string_view utf8_prefix(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  std::size_t end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

}  // namespace batchmill
