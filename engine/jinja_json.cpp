#include <algorithm>
#include <cmath>

#include "engine/jinja_objects.h"
#include "engine/jinja_operators.h"
#include "engine/jinja_print.h"
#include "engine/jinja_runtime.h"

namespace batchmill::jinja {
namespace {

void append_unicode_escape(std::string& out, char32_t unit) {
  out += "\\u";
  for (int i = 3; i >= 0; --i) out.push_back("0123456789abcdef"[(unit >> (4 * i)) & 15U]);
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void write(const Value& value) {
    charge();
    const Nested nested;
    switch (value.kind()) {
      case Kind::kNone:
        out_.append("null");
        break;
      case Kind::kBoolean:
        out_.append(value.integer_value() != 0 ? "true" : "false");
        break;
      case Kind::kInteger:
      case Kind::kBigInteger:
        out_.append(to_text(value));
        break;
      case Kind::kFloating:
        out_.append(number(value.floating_value()));
        break;
      case Kind::kString:
        write_string(value.text_value());
        break;
      case Kind::kList:
      case Kind::kTuple:
        write_list(value.items());
        break;
      case Kind::kDict:
        write_dict(value.as<DictObject>().items);
        break;
      default:
        type_error("Object of type " + type_name(value) + " is not JSON serializable");
    }
  }

  Text take() { return std::move(out_); }

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return float_repr(value);
  }

  void write_string(const Text& text) {
    check_size(out_.size() + text.size());
    charge_bytes(text.size());
    out_.append("\"");
    MarkReader marks(text);
    for (std::size_t i = 0; i < text.size();) {
      const bool marked = marks.at(i);
      const std::size_t begin = i;
      const char32_t c = read_utf8(text.text, i);
      std::string escaped;
      switch (c) {
        case '"':
          escaped = "\\\"";
          break;
        case '\\':
          escaped = "\\\\";
          break;
        case '\n':
          escaped = "\\n";
          break;
        case '\r':
          escaped = "\\r";
          break;
        case '\t':
          escaped = "\\t";
          break;
        case '\b':
          escaped = "\\b";
          break;
        case '\f':
          escaped = "\\f";
          break;
        default:
          if (c < 0x20 || (style_.ensure_ascii && c > 0x7E && c < 0x10000)) {
            append_unicode_escape(escaped, c);
          } else if (style_.ensure_ascii && c >= 0x10000) {
            append_unicode_escape(escaped, 0xD800U + ((c - 0x10000U) >> 10));
            append_unicode_escape(escaped, 0xDC00U + ((c - 0x10000U) & 0x3FFU));
          } else {
            escaped.assign(text.text, begin, i - begin);
          }
      }
      out_.append(escaped, marked);
    }
    out_.append("\"");
  }

  void new_line() {
    if (!style_.indent) return;
    charge_bytes(style_.indent->size() * level_);
    check_size(out_.size());
    out_.append("\n");
    for (std::size_t i = 0; i < level_; ++i) out_.append(*style_.indent);
  }

  template <typename Item, typename Write>
  void write_items(const char* open, const char* close, const std::vector<Item>& items,
                   Write write_item) {
    out_.append(open);
    if (!items.empty()) {
      ++level_;
      new_line();
      for (std::size_t i = 0; i < items.size(); ++i) {
        if (i != 0) {
          out_.append(style_.item_separator);
          new_line();
        }
        write_item(items[i]);
      }
      --level_;
      new_line();
    }
    out_.append(close);
  }

  void write_list(const std::vector<Value>& items) {
    write_items("[", "]", items, [&](const Value& item) { write(item); });
  }

  void write_dict(const std::vector<std::pair<Value, Value>>& unsorted) {
    std::vector<std::pair<Value, Value>> items = unsorted;
    if (style_.sort_keys) {
      std::stable_sort(items.begin(), items.end(),
                       [](const auto& a, const auto& b) { return less(a.first, b.first); });
    }
    write_items("{", "}", items, [&](const std::pair<Value, Value>& item) {
      write_string(key_text(item.first));
      out_.append(style_.key_separator);
      write(item.second);
    });
  }

  static Text key_text(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        return key.text_value();
      case Kind::kNone:
        return Text("null");
      case Kind::kBoolean:
        return Text(key.integer_value() != 0 ? "true" : "false");
      case Kind::kInteger:
      case Kind::kBigInteger:
        return to_text(key);
      case Kind::kFloating:
        return Text(number(key.floating_value()));
      default:
        type_error("keys must be str, int, float, bool or None, not " + type_name(key));
    }
  }

  const JsonStyle& style_;
  Text out_;
  std::size_t level_ = 0;
};

}  // namespace

Text to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value);
  return writer.take();
}

}  // namespace batchmill::jinja
