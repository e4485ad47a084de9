#pragma once

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace macaw {

enum class LogLevel { kInfo, kWarning, kError };

// Writes the process's log to standard error, one line per event: `DATE TIME+ZONE level process
// room: event key=value ...`. Under journald (JOURNAL_STREAM) the line begins with its priority and
// has no time. With MACAW_LOG_FORMAT=json it is an object with time, level, process, room and
// message. Info is at most a line a round; what happens to each client is in rounds.log.
// Measurements go to metrics.jsonl, never here. Call it before the first line. Loggers are
// thread-safe.
void InitLogging(const std::string& process);

// One per room, created where it is used: `const Logger log("server");`. Cheap to copy.
class Logger {
 public:
  explicit Logger(absl::string_view room);
  void Info(absl::string_view message) const { Write(LogLevel::kInfo, message); }
  void Warning(absl::string_view message) const { Write(LogLevel::kWarning, message); }
  void Error(absl::string_view message) const { Write(LogLevel::kError, message); }

 private:
  void Write(LogLevel level, absl::string_view message) const;
  std::string room_;
};

}  // namespace macaw
