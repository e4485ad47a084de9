#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace macaw {

enum class LogLevel { kInfo, kWarning, kError };

// How a line of the log looks: for people, for journald, or an object.
enum class LogForm : uint8_t { kPlain, kJournal, kJson };

// What the environment asks for: MACAW_LOG_FORMAT ("json", or "text" like none), then
// JOURNAL_STREAM.
LogForm LogFormAskedFor();

// Writes the process's log to standard error, one line per event: `DATE TIME+ZONE level process
// room: event key=value ...`. Under journald (JOURNAL_STREAM) the line begins with its priority and
// has no time. With MACAW_LOG_FORMAT=json it is an object with time, level, process, room and
// message. Info is at most a line a round; what happens to each client is in rounds.log.
// Measurements go to metrics.jsonl, never here. Call it before the first line. Loggers are
// thread-safe. Another MACAW_LOG_FORMAT than "json" and "text" is warned of.
void InitLogging(const std::string& process);

// Writes into `line` the last line of a process, which says why it ends, in this form, with a line
// break. Returns its length. What does not fit is cut off. Allocates nothing.
size_t FormatEnding(LogForm form, const char* process, absl::string_view text,
                    std::span<char> line);

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
