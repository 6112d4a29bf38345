#include <algorithm>
#include <chrono>
#include <ctime>
#include <unordered_map>

#include "engine/jinja_builtins.h"
#include "engine/jinja_operators.h"
#include "engine/jinja_print.h"
#include "engine/jinja_runtime.h"

namespace batchmill::jinja {
namespace {

constexpr std::int64_t kMaxRange = 100'000;  // as in Jinja's sandbox
constexpr std::size_t kMaxDateBytes = 64 << 10;

Value range(const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("range", {"start", "stop", "step"}, 1);
  const bool has_stop = bound.has(1);
  const std::int64_t start = has_stop ? bound.integer(0, 0) : 0;
  const std::int64_t stop = bound.integer(has_stop ? 1 : 0, 0);
  const std::int64_t step = bound.integer(2, 1);
  if (step == 0) value_error("range() arg 3 must not be zero");
  auto out = std::make_shared<RangeObject>();
  out->start = start;
  out->stop = stop;
  out->step = step;
  const bool is_empty = step > 0 ? start >= stop : start <= stop;
  if (!is_empty) {
    const std::uint64_t distance =
        step > 0 ? static_cast<std::uint64_t>(stop) - static_cast<std::uint64_t>(start)
                 : static_cast<std::uint64_t>(start) - static_cast<std::uint64_t>(stop);
    const std::uint64_t stride =
        step > 0 ? static_cast<std::uint64_t>(step) : 0 - static_cast<std::uint64_t>(step);
    const std::uint64_t count = (distance - 1) / stride + 1;
    if (count > static_cast<std::uint64_t>(kMaxRange)) {
      fail("OverflowError",
           "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
    }
    out->count = static_cast<std::int64_t>(count);
  }
  return Value::object(Kind::kRange, std::move(out));
}

// What dict(…) collects from a mapping or from pairs, and from keywords.
std::vector<std::pair<Value, Value>> collect_items(const Arguments& arguments) {
  std::vector<std::pair<Value, Value>> items;
  if (arguments.positional.size() > 1) {
    type_error("dict expected at most 1 argument, got " +
               std::to_string(arguments.positional.size()));
  }
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is(Kind::kDict)) {
      charge(source.as<DictObject>().items.size());
      items = source.as<DictObject>().items;
    } else {
      for (const Value& pair : iterate(source)) {
        if (!is_iterable(pair)) type_error("cannot convert dictionary update sequence to a dict");
        std::vector<Value> parts = iterate(pair);
        if (parts.size() != 2) value_error("dictionary update sequence element needs 2 values");
        hash_of(parts[0]);
        items.emplace_back(std::move(parts[0]), std::move(parts[1]));
      }
    }
  }
  for (const auto& [name, value] : arguments.named) items.emplace_back(Value::string(name), value);
  return items;
}

Value dict(const Arguments& arguments) { return Value::dict_of(collect_items(arguments)); }

Value make_namespace(const Arguments& arguments) {
  auto out = std::make_shared<NamespaceObject>();
  const Value items = Value::dict_of(collect_items(arguments));
  for (const auto& [key, value] : items.as<DictObject>().items) {
    if (key.is(Kind::kString)) out->attributes.emplace_back(key.string_value(), value);
  }
  Runtime::current()->keep(out);
  return Value::object(Kind::kNamespace, std::move(out));
}

Value cycler(const Arguments& arguments) {
  if (!arguments.named.empty()) type_error("cycler() takes no keyword arguments");
  if (arguments.positional.empty()) fail("RuntimeError", "at least one item has to be provided");
  auto out = std::make_shared<CyclerObject>();
  out->items = arguments.positional;
  return Value::object(Kind::kCycler, std::move(out));
}

Value joiner(const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("joiner", {"sep"});
  auto out = std::make_shared<JoinerObject>();
  out->separator = bound.get(0, Value::string(", "));
  return Value::object(Kind::kJoiner, std::move(out));
}

Value raise_exception(const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("raise_exception", {"message"}, 1);
  fail("raise_exception", to_text(bound[0]).text);
}

// Fields that Python fills in itself; its value here has no microseconds and no time zone.
std::string without_python_fields(const std::string& format) {
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out.push_back(format[i]);
      continue;
    }
    const char field = format[++i];
    if (field == 'f') {
      out += "000000";
    } else if (field != 'z' && field != 'Z') {
      out.push_back('%');
      out.push_back(field);
    }
  }
  return out;
}

std::tm utc_fields(std::int64_t now_s) {
  using std::chrono::days;
  constexpr std::int64_t kMaxNowS = 253'402'300'799;  // the end of the year 9999
  const std::chrono::sys_seconds now{
      std::chrono::seconds{std::clamp<std::int64_t>(now_s, 0, kMaxNowS)}};
  const auto day = std::chrono::floor<days>(now);
  const std::chrono::year_month_day date(day);
  const auto new_year = std::chrono::sys_days(date.year() / std::chrono::January / 1);
  const std::chrono::hh_mm_ss time(now - day);
  std::tm out{};
  out.tm_year = static_cast<int>(date.year()) - 1900;
  out.tm_mon = static_cast<int>(static_cast<unsigned>(date.month())) - 1;
  out.tm_mday = static_cast<int>(static_cast<unsigned>(date.day()));
  out.tm_wday = static_cast<int>(std::chrono::weekday(day).c_encoding());
  out.tm_yday = static_cast<int>((day - new_year).count());
  out.tm_hour = static_cast<int>(time.hours().count());
  out.tm_min = static_cast<int>(time.minutes().count());
  out.tm_sec = static_cast<int>(time.seconds().count());
  return out;
}

Value strftime_now(const Arguments& arguments) {
  const BoundArguments bound = arguments.bind("strftime_now", {"format"}, 1);
  // The leading character tells an empty date from one that does not fit.
  const std::string format = " " + without_python_fields(bound.text(0, "").text);
  if (format.size() > kMaxDateBytes) fail("limit", "the date's format is too long");
  const std::tm fields = utc_fields(Runtime::current()->now_s());
  std::string out(kMaxDateBytes, '\0');
  const std::size_t size = std::strftime(out.data(), out.size(), format.c_str(), &fields);
  if (size == 0) fail("limit", "the date is too long");
  charge_bytes(kMaxDateBytes);
  return Value::string(std::string_view(out).substr(1, size - 1));
}

}  // namespace

Function find_global(std::string_view name) {
  static const std::unordered_map<std::string_view, Function> kGlobals = {
      {"cycler", cycler},
      {"dict", dict},
      {"joiner", joiner},
      {"namespace", make_namespace},
      {"raise_exception", raise_exception},
      {"range", range},
      {"strftime_now", strftime_now},
  };
  const auto it = kGlobals.find(name);
  return it == kGlobals.end() ? nullptr : it->second;
}

}  // namespace batchmill::jinja
