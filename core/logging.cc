#include "core/logging.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>

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

absl::string_view FormatAskedFor() {
  const char* const format = std::getenv("MACAW_LOG_FORMAT");
  return format == nullptr ? "" : format;
}

bool IsKnown(absl::string_view format) {
  return format.empty() || format == "json" || format == "text";
}

// Writes into memory that is there, and leaves out what does not fit. One byte is kept for the line
// break.
class Pen {
 public:
  explicit Pen(std::span<char> line) : line_(line) {}
  void Keep(size_t bytes) { kept_ = bytes; }
  void Add(char c) {
    if (at_ + kept_ < line_.size()) line_[at_++] = c;
  }
  void Add(absl::string_view text) {
    for (const char c : text) Add(c);
  }
  void AddJson(absl::string_view text) {
    size_t wrong = FirstNotUtf8(text);
    for (size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      const auto byte = static_cast<unsigned char>(c);
      char code[7] = {c, '\0'};
      if (i == wrong) {
        std::snprintf(code, sizeof(code), "\\\\x%02x", byte);
        wrong = i + 1 + FirstNotUtf8(text.substr(i + 1));
      } else if (c == '"' || c == '\\') {
        std::snprintf(code, sizeof(code), "\\%c", c);
      } else if (byte < 0x20) {
        std::snprintf(code, sizeof(code), "\\u%04x", byte);
      }
      const absl::string_view piece(code);
      if (at_ + piece.size() + kept_ > line_.size()) return;  // whole escapes alone
      Add(piece);
    }
  }
  size_t EndLine() {
    if (!line_.empty()) line_[at_++] = '\n';
    return at_;
  }

 private:
  const std::span<char> line_;
  size_t at_ = 0;
  size_t kept_ = 1;
};

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

LogForm LogFormAskedFor() {
  if (FormatAskedFor() == "json") return LogForm::kJson;
  return std::getenv("JOURNAL_STREAM") != nullptr ? LogForm::kJournal : LogForm::kPlain;
}

void InitLogging(const std::string& process) {
  const LogForm form = LogFormAskedFor();
  AsJson() = form == LogForm::kJson;
  std::string pattern = "%Y-%m-%d %H:%M:%S.%e%z %^%L%$ " + process + " %v";
  if (AsJson()) {
    pattern = absl::StrCat(R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","process":)",
                           Quoted(process), ",%v}");
  } else if (form == LogForm::kJournal) {  // journald has time and process
    pattern = "<%*>%v";
  }
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<Priority>('*').set_pattern(pattern);
  Sink().set_level(spdlog::level::info);
  Sink().set_formatter(std::move(formatter));
  if (const absl::string_view format = FormatAskedFor(); !IsKnown(format)) {
    Logger("log").Warning(absl::StrCat("unknown_format MACAW_LOG_FORMAT=", format,
                                       ": json makes each line an object, text is the default"));
  }
}

size_t FormatEnding(LogForm form, const char* process, absl::string_view text,
                    std::span<char> line) {
  Pen pen(line);
  if (form == LogForm::kPlain) {
    pen.Add(text);
  } else if (form == LogForm::kJournal) {
    pen.Add("<3>");
    for (const char c : text) pen.Add(c == '\n' ? ' ' : c);
  } else {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    tm utc{};
    ::gmtime_r(&now.tv_sec, &utc);
    char date[32] = "", time[80];
    std::strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &utc);
    std::snprintf(time, sizeof(time), "%s.%03ld+00:00", date, now.tv_nsec / 1000000);
    pen.Add(R"({"time":")");
    pen.Add(time);
    pen.Add(R"(","level":"error","process":")");
    pen.AddJson(process);
    pen.Add(R"(","room":"end","message":")");
    pen.Keep(3);
    pen.AddJson(text);
    pen.Keep(1);
    pen.Add("\"}");
  }
  return pen.EndLine();
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
