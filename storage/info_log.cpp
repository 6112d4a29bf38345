#include "storage/info_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <string_view>
#include <utility>

namespace batchmill {
namespace {

constexpr std::size_t kMaxFileBytes = 1 << 20;
constexpr std::size_t kMaxRemarkBytes = 4096;

}  // namespace

InfoLog::InfoLog(std::string directory)
    : rocksdb::Logger(rocksdb::InfoLogLevel::WARN_LEVEL), directory_(std::move(directory)) {}

InfoLog::~InfoLog() {
  if (fd_ >= 0) ::close(fd_);
}

void InfoLog::Logv(const char* format, std::va_list arguments) {
  std::array<char, kMaxRemarkBytes> remark{};
  const int wanted = std::vsnprintf(remark.data(), remark.size(), format, arguments);
  if (wanted < 0) return;
  const std::string_view text(remark.data());
  const std::size_t at = text.find(".log: dropping");
  if (at != std::string_view::npos) {
    const std::size_t slash = text.rfind('/', at);
    const std::lock_guard lock(mutex_);
    damaged_log_ = text.substr(slash == std::string_view::npos ? 0 : slash + 1);
  }
  std::size_t size = std::min(static_cast<std::size_t>(wanted), remark.size() - 1);
  remark[size++] = '\n';
  const std::lock_guard lock(mutex_);
  if (!open()) return;
  const ssize_t written = ::write(fd_, remark.data(), size);
  if (written > 0) size_bytes_ += static_cast<std::size_t>(written);
}

std::string InfoLog::damaged_log() const {
  const std::lock_guard lock(mutex_);
  return damaged_log_;
}

bool InfoLog::open() {
  if (directory_.empty()) return false;
  const std::string path = directory_ + "/LOG";
  if (fd_ >= 0 && size_bytes_ > kMaxFileBytes) {
    ::rename(path.c_str(), (path + ".old").c_str());
    ::close(fd_);
    fd_ = -1;
  }
  if (fd_ >= 0) return true;
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  struct stat status {};
  size_bytes_ =
      fd_ >= 0 && ::fstat(fd_, &status) == 0 ? static_cast<std::size_t>(status.st_size) : 0;
  return fd_ >= 0;
}

}  // namespace batchmill
