#include "core/logging.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "core/one_line.h"

namespace macaw {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

// The logger that is used before InitLogging: warnings and errors only, so that libraries and tests
// are quiet.
spdlog::logger& Sink() {
  static const std::shared_ptr<spdlog::logger> sink = [] {
    auto logger = std::make_shared<spdlog::logger>(
        "macaw", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    logger->set_level(spdlog::level::warn);
    logger->set_pattern("%H:%M:%S.%e %^%L%$ %v");
    return logger;
  }();
  return *sink;
}

}  // namespace

void InitLogging(const std::string& process) {
  Sink().set_level(spdlog::level::info);
  Sink().set_pattern("%H:%M:%S.%e %^%L%$ " + process + " %v");
}

Logger::Logger(absl::string_view room) : room_(room) {}

void Logger::Write(LogLevel level, absl::string_view message) const {
  Sink().log(ToSpdlog(level), "{}: {}", room_, OneLine(message));
}

}  // namespace macaw
