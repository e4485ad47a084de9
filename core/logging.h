#pragma once

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace macaw {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Writes the process's log to standard error, one line per event: `HH:MM:SS.mmm room level event
// key=value ...`. Info is one line per round, Debug one line per client. Measurements go to
// metrics.jsonl, never here. Thread-safe.
void InitLogging(LogLevel minimum, const std::string& process);

// One per room, created where it is used: `const Logger log("server");`. Cheap to copy.
class Logger {
 public:
  explicit Logger(absl::string_view room);
  void Debug(absl::string_view message) const { Write(LogLevel::kDebug, message); }
  void Info(absl::string_view message) const { Write(LogLevel::kInfo, message); }
  void Warning(absl::string_view message) const { Write(LogLevel::kWarning, message); }
  void Error(absl::string_view message) const { Write(LogLevel::kError, message); }

 private:
  void Write(LogLevel level, absl::string_view message) const;
  std::string room_;
};

}  // namespace macaw
