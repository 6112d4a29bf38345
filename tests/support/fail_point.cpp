#define BATCHMILL_FAIL_POINTS
#include "tests/support/fail_point.h"

#include <atomic>
#include <csignal>
#include <stdexcept>

#include "storage/fail_point.h"

namespace batchmill {
namespace {

std::string point;  // "WRITE.SIDE" or "any"
std::atomic<long> hits_left{0};
int signal_then = SIGKILL;

}  // namespace

void reach_fail_point(std::string_view what, std::string_view side) {
  if (point.empty()) return;
  const bool is_named = point.size() == what.size() + 1 + side.size() && point.starts_with(what) &&
                        point.ends_with(side);
  if ((is_named || point == "any") && --hits_left == 0) std::raise(signal_then);
}

namespace testing {

void set_fail_point(const std::string& text) {
  point.clear();
  if (text.empty()) return;
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) throw std::invalid_argument("no fail point: " + text);
  const bool stops = text.ends_with("=stop");
  signal_then = stops ? SIGSTOP : SIGKILL;
  hits_left = std::stol(text.substr(colon + 1));
  point = text.substr(0, colon);
}

}  // namespace testing
}  // namespace batchmill
