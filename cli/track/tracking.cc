#include "cli/track/tracking.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/config/reader.h"
#include "cli/process/programs.h"
#include "cli/track/modules.h"
#include "core/files.h"
#include "core/python.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

// The process keeps its own time; this is for one that does not.
constexpr Duration kGrace = std::chrono::seconds(3);
constexpr int kSomethingLeft = 1;  // exit code of the process, which has said what

// What the interpreter runs first: it makes the package macaw of the texts in the program, beside
// an installed one or without one. Arguments: the descriptor of the texts, that of messages, and
// those of macaw.track.
constexpr char kBoot[] = R"(
import json, os, sys, types
if sys.version_info < (3, 10):
    found = sys.version.split()[0]
    line = "trackers need Python 3.10 or later, and %s is %s; name one in MACAW_PYTHON\n"
    os.write(int(sys.argv[2]), (line % (sys.executable, found)).encode())
    sys.exit(1)
sys.path[:] = [path for path in sys.path if path]
sys.modules["macaw"] = types.ModuleType("macaw")
with os.fdopen(int(sys.argv[1]), encoding="utf-8") as file:
    texts = json.load(file)
for name, text in texts:
    module = sys.modules["macaw." + name] = types.ModuleType("macaw." + name)
    module.__package__ = "macaw"
    exec(compile(text, "macaw/" + name + ".py", "exec"), module.__dict__)
sys.exit(sys.modules["macaw.track"].main(["--say", *sys.argv[2:]]))
)";

absl::StatusOr<Fd> Texts() {
  nlohmann::json texts = nlohmann::json::array();
  for (const PythonModule& module : kTrackModules) texts.push_back({module.name, module.text});
  return MemoryFile(texts.dump());
}

absl::Status NeedsPython(absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat("trackers need Python 3.10 or later, and ", why,
                                                    "; name one that has it in MACAW_PYTHON"));
}

// Makes the log of what trackers print, unless it is there.
absl::Status OpenLog(const std::string& folder, const std::string& log) {
  absl::Status opened = MakeDirectories(folder + "/logs");
  if (opened.ok()) {
    const Fd file(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!file.open()) opened = absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", log));
  }
  if (opened.ok()) return opened;
  return absl::FailedPreconditionError(
      absl::StrCat("trackers write into the folder of the run, and that fails: ", opened.message(),
                   "; copy the run to a folder that you may write to, and track the copy"));
}

int MillisecondsUntil(TimePoint time) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(time - SteadyClock().Now());
  return static_cast<int>(std::max<int64_t>(0, left.count()));
}

}  // namespace

absl::StatusOr<Tracking> Tracking::Start(const std::string& folder, const TrackConfig& config,
                                         Duration at_most) {
  Tracking tracking;
  tracking.at_most_ = at_most;
  if (config.to.empty()) return tracking;
  const absl::StatusOr<std::string> python = FindPython();
  if (!python.ok()) return NeedsPython(python.status().message());
  MACAW_ASSIGN_OR_RETURN(const std::string programs, ProgramFolder());
  MACAW_ASSIGN_OR_RETURN(const Fd texts, Texts());
  MACAW_ASSIGN_OR_RETURN(PipePair say, MakePipe());
  MACAW_ASSIGN_OR_RETURN(PipePair until, MakePipe());
  ChildSpec spec;
  spec.name = "trackers";
  spec.log = folder + "/logs/track.log";
  MACAW_RETURN_IF_ERROR(OpenLog(folder, spec.log));
  spec.argv = {*python,
               "-c",
               kBoot,
               absl::StrCat(texts.get()),
               absl::StrCat(say.write.get()),
               "--until",
               absl::StrCat(until.read.get()),
               "--at-most",
               absl::StrCat(ToSeconds(at_most)),
               "--to",
               absl::StrJoin(config.to, ","),
               absl::StrCat("--mlflow-uri=", config.mlflow_uri),
               absl::StrCat("--mlflow-experiment=", config.mlflow_experiment),
               absl::StrCat("--wandb-project=", config.wandb_project),
               "--macaw",
               programs + "/macaw",
               "--",
               folder};
  spec.inherit = {texts.get(), say.write.get(), until.read.get()};
  absl::StatusOr<Child> child = Child::Spawn(spec);
  if (!child.ok()) return NeedsPython(child.status().message());
  tracking.child_ = *std::move(child);
  tracking.python_ = *python;
  tracking.until_ = std::move(until.write);
  tracking.said_ = std::move(say.read);
  return tracking;
}

void Tracking::ReadSaid() {
  for (std::string& line : reader_.Read(said_.get())) lines_.push_back(std::move(line));
  has_spoken_ = has_spoken_ || !lines_.empty();
  if (reader_.ended()) said_.Close();
}

std::vector<std::string> Tracking::TakeLines() {
  pollfd said{.fd = said_.get(), .events = POLLIN, .revents = 0};
  while (said_.open() && ::poll(&said, 1, 0) == 1) ReadSaid();
  return std::exchange(lines_, {});
}

// Reads what the process prints. Otherwise a full pipe would block the process.
Tracking::Waited Tracking::WaitForEnd(int signals) {
  const TimePoint deadline = SteadyClock().Now() + at_most_ + kGrace;
  while (true) {
    // A descriptor of -1 is passed over.
    pollfd events[] = {{.fd = child_->pidfd(), .events = POLLIN, .revents = 0},
                       {.fd = said_.open() ? said_.get() : -1, .events = POLLIN, .revents = 0},
                       {.fd = signals, .events = POLLIN, .revents = 0}};
    const int ready = ::poll(events, std::size(events), MillisecondsUntil(deadline));
    if (ready > 0 && events[1].revents != 0) ReadSaid();
    if (ready > 0 && events[0].revents != 0) return Waited::kEnded;
    if (ready > 0 && events[2].revents != 0) return Waited::kInterrupted;
    if (SteadyClock().Now() >= deadline) return Waited::kLate;
  }
}

bool Tracking::Finish(int signals) {
  if (!child_.has_value()) return true;
  until_.Close();
  const Waited waited = WaitForEnd(signals);
  if (waited != Waited::kEnded) child_->Kill();
  const Exit exit = child_->Reap();
  child_.reset();
  lines_ = TakeLines();
  if (waited == Waited::kLate) {
    lines_.push_back("the trackers' process did not end in time and was killed");
  } else if (waited == Waited::kInterrupted) {
    lines_.push_back("interrupted: the trackers may lack rows; run macaw track again");
  } else if (!exit.ok() && (exit.code != kSomethingLeft || !has_spoken_)) {
    lines_.push_back(
        absl::StrCat("the trackers' process (", python_, ") ended early: ", exit.Text()));
  }
  return exit.ok();
}

absl::Status CheckTrackers(const TrackConfig& config) {
  const size_t host = config.mlflow_uri.find("://");
  if (host == std::string::npos) return absl::OkStatus();
  const size_t begin = host + 3, end = config.mlflow_uri.find('/', begin);
  const std::string server = config.mlflow_uri.substr(begin, end - begin);
  if (server.find('@') == std::string::npos) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "run.mlflow.uri must not have a password in it, because the run's folder keeps it: set "
      "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN");
}

absl::StatusOr<TrackConfig> ReadTrackConfig(const std::string& folder) {
  MACAW_ASSIGN_OR_RETURN(const Document document, OpenDocument(folder + "/config.toml"));
  TrackConfig config;
  const settings::Section<TrackConfig> section = TrackSection();
  for (const settings::Field<TrackConfig>& field : section.fields()) {
    MACAW_ASSIGN_OR_RETURN(const std::optional<Value> value, Lookup(document, {}, field.key));
    if (value.has_value() && !field.set(config, *value)) {
      return absl::InvalidArgumentError(
          absl::StrCat(document.name, ": ", field.key, " must be ", field.expected));
    }
  }
  return config;
}

}  // namespace macaw::cli
