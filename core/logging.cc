#include "core/logging.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/one_line.h"
#include "core/utf8.h"

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

// The number that syslog and journald have for a level.
class Priority final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& to) override {
    to.push_back(message.level >= spdlog::level::err    ? '3'
                 : message.level >= spdlog::level::warn ? '4'
                                                        : '6');
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<Priority>();
  }
};

bool& AsJson() {
  static bool json = false;
  return json;
}

// `text` is one line. JSON is UTF-8, so other bytes become "\xe9".
std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  while (!text.empty()) {
    const size_t wrong = std::min(FirstNotUtf8(text), text.size());
    absl::StrAppend(&quoted,
                    absl::StrReplaceAll(text.substr(0, wrong), {{"\\", "\\\\"}, {"\"", "\\\""}}));
    if (wrong < text.size())
      absl::StrAppend(&quoted, "\\\\x", absl::Hex(static_cast<uint8_t>(text[wrong])));
    text.remove_prefix(std::min(wrong + 1, text.size()));
  }
  return quoted + "\"";
}

}  // namespace

void InitLogging(const std::string& process) {
  const char* const format = std::getenv("MACAW_LOG_FORMAT");
  AsJson() = format != nullptr && std::string_view(format) == "json";
  std::string pattern = "%Y-%m-%d %H:%M:%S.%e%z %^%L%$ " + process + " %v";
  if (AsJson()) {
    pattern = absl::StrCat(R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","process":)",
                           Quoted(process), ",%v}");
  } else if (std::getenv("JOURNAL_STREAM") != nullptr) {  // journald has time and process
    pattern = "<%*>%v";
  }
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<Priority>('*').set_pattern(pattern);
  Sink().set_level(spdlog::level::info);
  Sink().set_formatter(std::move(formatter));
}

Logger::Logger(absl::string_view room) : room_(room) {}

void Logger::Write(LogLevel level, absl::string_view message) const {
  const std::string line = OneLine(message);
  if (AsJson()) {
    Sink().log(ToSpdlog(level), R"("room":{},"message":{})", Quoted(room_), Quoted(line));
  } else {
    Sink().log(ToSpdlog(level), "{}: {}", room_, line);
  }
}

}  // namespace macaw
