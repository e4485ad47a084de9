#include <poll.h>

#include <iostream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/log/table.h"
#include "cli/process/exit.h"
#include "cli/process/lock.h"
#include "cli/process/signals.h"
#include "core/files.h"
#include "core/shell.h"
#include "core/status.h"
#include "server/log/history.h"
#include "server/log/json.h"
#include "server/log/reader.h"

namespace macaw::cli {
namespace {

// `macaw log RUN`: what happened in a run's rounds, one line per event.
struct LogCommand {
  std::string run;
  bool json = false;              // one JSON object per line instead of the table
  bool follow = false;            // wait for new records until the run has ended
  std::optional<uint32_t> round;  // only this one
};

namespace log = server::log;

constexpr int kLookEveryMs = 200;

class Printer {
 public:
  explicit Printer(const LogCommand& command) : command_(command) {}

  void Print(const log::Entry& entry, log::Standing standing) {
    ended_ = std::holds_alternative<log::RunEnded>(entry.record);
    const Round round = log::PlaceOf(entry.record).first;
    if (command_.round.has_value() && round != Round(*command_.round)) {
      if (round.value > 0) last_ = std::max(last_, round);
      return table_.PassOver(entry.record);
    }
    if (!std::exchange(begun_, true) && !command_.json) std::cout << LogTable::Head();
    if (command_.json) {
      std::cout << log::JsonOf(entry, standing) << "\n";
    } else {
      std::cout << table_.Lines(entry, standing);
    }
  }

  bool ended() const { return ended_; }  // the last record ends the run
  bool begun() const { return begun_; }  // something was printed
  Round last() const { return last_; }   // of the rounds that were not

 private:
  const LogCommand& command_;
  LogTable table_;
  bool ended_ = false, begun_ = false;
  Round last_;
};

// Prints the available records and returns their number.
absl::StatusOr<uint64_t> PrintOn(log::Reader& reader, const log::Sessions& sessions,
                                 Printer& printer) {
  const uint64_t before = reader.sequence();
  while (true) {
    absl::StatusOr<std::optional<log::Entry>> entry = reader.Next();
    if (!entry.ok() || !entry->has_value()) std::cout << std::flush;
    MACAW_RETURN_IF_ERROR(entry.status());
    if (!entry->has_value()) return reader.sequence() - before;
    printer.Print(**entry, sessions.Of(**entry));
  }
}

// Prints records until one ends the run, no process runs it any more, or this process is
// interrupted.
absl::Status Follow(const LogCommand& command, log::Reader& reader, const log::Sessions& sessions,
                    Printer& printer) {
  MACAW_ASSIGN_OR_RETURN(const SignalFd signals, SignalFd::Open());
  bool nobody = false;  // no process held the folder at the last check
  while (!printer.ended()) {
    pollfd ends{.fd = signals.fd(), .events = POLLIN, .revents = 0};
    if (::poll(&ends, 1, nobody ? 0 : kLookEveryMs) > 0) return absl::OkStatus();
    MACAW_ASSIGN_OR_RETURN(const uint64_t news, PrintOn(reader, sessions, printer));
    if (news > 0 || printer.ended()) continue;
    const FolderLock lock = LookAtLock(command.run);
    if (lock == FolderLock::kUnknown) return UnknownLock(command.run);
    if (std::exchange(nobody, lock == FolderLock::kFree)) {
      std::cerr << "the run has not ended, but no process works on it (macaw simulate --resume "
                << ForShell(command.run) << ")" << std::endl;
      return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

absl::Status Show(const LogCommand& command) {
  const std::string path = command.run + "/rounds.log";
  if (!FileExists(path)) {
    if (!FileExists(command.run + "/config.toml"))
      return MissingFile(path, absl::StrCat(command.run, " is not the folder of a run"));
    return MissingFile(path, absl::StrCat(command.run, " has no log of its rounds (", path,
                                          "): an older Macaw has written it"));
  }
  log::Sessions sessions;
  {
    MACAW_ASSIGN_OR_RETURN(log::Reader reader, log::Reader::Open(path));
    while (true) {
      const absl::StatusOr<std::optional<log::Entry>> entry = reader.Next();
      // Damage is reported below, after the intact records.
      if (!entry.ok() || !entry->has_value()) break;
      sessions.Add(**entry);
    }
  }
  MACAW_ASSIGN_OR_RETURN(log::Reader reader, log::Reader::Open(path));
  Printer printer(command);
  MACAW_RETURN_IF_ERROR(PrintOn(reader, sessions, printer).status());
  if (command.follow) return Follow(command, reader, sessions, printer);
  MACAW_ASSIGN_OR_RETURN(const uint64_t torn, reader.TornBytes());
  if (torn > 0) {
    std::cerr << path << ": " << torn << " bytes behind record " << reader.sequence()
              << " are no whole record: one is being written, or a crash has torn it" << std::endl;
  }
  if (command.round.has_value() && !printer.begun()) {
    return absl::NotFoundError(absl::StrCat("--round ", *command.round, ": the log of ",
                                            command.run, " ends with round ",
                                            printer.last().value));
  }
  return absl::OkStatus();
}

int ShowLog(const LogCommand& command) { return Report(Show(command)); }

}  // namespace

void AddLog(CLI::App& app, std::function<int()>& run) {
  CLI::App* command = app.add_subcommand("log", "What happened in a run's rounds, a line each");
  auto options = std::make_shared<LogCommand>();
  command->add_option("RUN", options->run, "The run's folder")->required();
  command->add_flag("--json", options->json, "A JSON object a line, with every field");
  command->add_flag("-f,--follow", options->follow, "Wait for more until the run has ended");
  command->add_option("--round", options->round, "Show this round only")->type_name("N");
  command->footer(
      "Ctrl-C ends --follow. What the file holds: server/README.md, \"The log of rounds\".");
  command->final_callback([=, &run] { run = [options] { return ShowLog(*options); }; });
}

}  // namespace macaw::cli
