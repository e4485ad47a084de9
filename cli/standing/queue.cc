#include "cli/standing/queue.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kStates[] = {"waiting",     "running", "finished",
                                   "interrupted", "failed",  "withdrawn"};

// Of the files in docs/guides/runs.md those that an operator reads. Not here: what only a run from
// Python has (metrics.own.jsonl, callbacks.json, normalisation.npz), what goes on with the run
// (node.toml, checkpoints/, model.round.safetensors), what clients keep (state/), logs/, and what
// run.track writes. plan.toml and holdings are of a standing server's runs.
constexpr const char* kResults[] = {"plan.toml",
                                    "config.toml",
                                    "summary.json",
                                    "metrics.jsonl",
                                    "clients.jsonl",
                                    "events.jsonl",
                                    "rounds.log",
                                    "timeline.json",
                                    "confusion.json",
                                    "clients_evaluated.json",
                                    "contributions.jsonl",
                                    "model.safetensors",
                                    "model.best.safetensors",
                                    "trained.safetensors",
                                    "base.safetensors",
                                    "holdings"};
// Folders with a model a file.
constexpr const char* kResultFolders[] = {"models", "unlearned"};

std::string TimeText(absl::Time time) {
  return time == absl::InfinitePast()
             ? ""
             : absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

bool ReadTime(const std::string& text, absl::Time& time) {
  time = absl::InfinitePast();
  std::string error;
  return text.empty() || absl::ParseTime("%Y-%m-%dT%H:%M:%SZ", text, &time, &error);
}

Json ToJson(const QueuedRun& run) {
  return {{"name", run.name},
          {"state", NameOf(run.state)},
          {"by", run.by},
          {"why", run.why},
          {"submitted", TimeText(run.submitted)},
          {"began", TimeText(run.began)},
          {"ended", TimeText(run.ended)}};
}

std::optional<QueuedRun> FromJson(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  const auto text = [&](const char* key) {
    const auto it = json.find(key);
    return it != json.end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  QueuedRun run;
  run.name = text("name");
  run.by = text("by");
  run.why = text("why");
  run.request_id = text("request_id");
  const auto withdrawn = json.find("withdrawn");
  if (withdrawn != json.end() && !withdrawn->is_boolean()) return std::nullopt;
  run.withdrawn = withdrawn != json.end() && withdrawn->get<bool>();
  const auto state = std::ranges::find(kStates, text("state"));
  const bool known = state != std::end(kStates) && CheckRunName(run.name).ok() &&
                     ReadTime(text("submitted"), run.submitted) &&
                     ReadTime(text("began"), run.began) && ReadTime(text("ended"), run.ended);
  if (!known) return std::nullopt;
  run.state = static_cast<QueuedState>(state - std::begin(kStates));
  return run;
}

// Whether a submission that failed left the folder: such a folder has a plan alone.
bool HoldsAPlanAlone(const std::string& folder) {
  std::error_code error;
  int entries = 0;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    ++entries;
  return !error && entries == 1 && FileExists(folder + "/plan.toml");
}

}  // namespace

const char* NameOf(QueuedState state) { return kStates[static_cast<size_t>(state)]; }

absl::Status CheckRunName(const std::string& name) {
  const auto fits = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  };
  if (!name.empty() && name.size() <= 64 && name[0] != '.' && std::ranges::all_of(name, fits))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", name,
                   "\" is no name for a run: letters, digits, '-', '_' and '.', at most 64, the "
                   "first no '.'"));
}

std::string JsonOf(const std::vector<QueuedRun>& runs) {
  Json json = Json::array();
  for (const QueuedRun& run : runs) json.push_back(ToJson(run));
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<std::unique_ptr<RunQueue>> RunQueue::Open(const std::string& folder) {
  MACAW_RETURN_IF_ERROR(MakeDirectories(folder + "/runs"));
  std::unique_ptr<RunQueue> queue(new RunQueue(folder));
  MACAW_RETURN_IF_ERROR(queue->Load());
  return queue;
}

absl::Status RunQueue::Load() {
  const std::string path = folder_ + "/queue.json";
  if (!FileExists(path)) return absl::OkStatus();
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  absl::MutexLock lock(&mutex_);
  bool whole = json.is_array();
  for (size_t i = 0; whole && i < json.size(); ++i) {
    std::optional<QueuedRun> run = FromJson(json[i]);
    whole = run.has_value();
    if (whole) runs_.push_back(*std::move(run));
  }
  if (whole) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path, " is not a list of runs that this version reads"));
}

absl::Status RunQueue::Change(const std::function<void(std::vector<QueuedRun>&)>& change) {
  std::vector<QueuedRun> changed = runs_;
  change(changed);
  Json json = Json::array();
  for (const QueuedRun& run : changed) {
    json.push_back(ToJson(run));
    json.back()["withdrawn"] = run.withdrawn;
    json.back()["request_id"] = run.request_id;
  }
  MACAW_RETURN_IF_ERROR(AtomicWriteFile(
      folder_ + "/queue.json", json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"));
  runs_ = std::move(changed);
  return absl::OkStatus();
}

QueuedRun* RunQueue::Find(const std::string& name) {
  const auto found = std::ranges::find(runs_, name, &QueuedRun::name);
  return found != runs_.end() ? &*found : nullptr;
}

absl::Status RunQueue::Submit(const admin::Submission& submission, absl::Time now) {
  MACAW_RETURN_IF_ERROR(CheckRunName(submission.name));
  absl::MutexLock lock(&mutex_);
  const QueuedRun* same = Find(submission.name);
  const std::string request_id = absl::BytesToHexString(submission.request_id);
  if (same != nullptr && !request_id.empty() && same->request_id == request_id)
    return absl::OkStatus();
  const std::string folder = FolderOf(submission.name);
  if (same != nullptr || (FileExists(folder) && !HoldsAPlanAlone(folder))) {
    return absl::AlreadyExistsError(absl::StrCat("there is a run \"", submission.name,
                                                 "\" already: give this one another name"));
  }
  MACAW_RETURN_IF_ERROR(MakeDirectories(folder));
  if (absl::Status status = AtomicWriteFile(folder + "/plan.toml", submission.plan); !status.ok()) {
    std::error_code ignored;
    fs::remove(folder, ignored);  // if it is empty
    return status;
  }
  QueuedRun run;
  run.name = submission.name;
  run.by = submission.by;
  run.request_id = request_id;
  run.submitted = now;
  run.began = run.ended = absl::InfinitePast();
  return Change([&](std::vector<QueuedRun>& runs) { runs.push_back(std::move(run)); });
}

absl::StatusOr<bool> RunQueue::Withdraw(const std::string& name, const std::string& why,
                                        absl::Time now) {
  absl::MutexLock lock(&mutex_);
  const QueuedRun* found = Find(name);
  if (found == nullptr) return absl::NotFoundError(absl::StrCat("there is no run \"", name, "\""));
  const QueuedState state = found->state;
  if (state != QueuedState::kWaiting && state != QueuedState::kRunning) {
    return absl::FailedPreconditionError(
        absl::StrCat("the run \"", name, "\" is over: ", NameOf(state)));
  }
  const auto index = static_cast<size_t>(found - runs_.data());
  MACAW_RETURN_IF_ERROR(Change([&](std::vector<QueuedRun>& runs) {
    runs[index].why = why;
    runs[index].withdrawn = true;
    if (state == QueuedState::kRunning) return;  // End does the rest
    runs[index].state = QueuedState::kWithdrawn;
    runs[index].ended = now;
  }));
  return state == QueuedState::kRunning;
}

absl::StatusOr<std::optional<std::string>> RunQueue::Begin(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  auto next = std::ranges::find(runs_, QueuedState::kRunning, &QueuedRun::state);
  if (next != runs_.end()) return next->name;
  next = std::ranges::find(runs_, QueuedState::kWaiting, &QueuedRun::state);
  if (next == runs_.end()) return std::nullopt;
  const auto index = static_cast<size_t>(next - runs_.begin());
  MACAW_RETURN_IF_ERROR(Change([&](std::vector<QueuedRun>& runs) {
    runs[index].state = QueuedState::kRunning;
    runs[index].began = now;
  }));
  return runs_[index].name;
}

absl::Status RunQueue::End(const std::string& name, QueuedState state, const std::string& why,
                           absl::Time now) {
  absl::MutexLock lock(&mutex_);
  const QueuedRun* found = Find(name);
  if (found == nullptr) return absl::NotFoundError(absl::StrCat("there is no run \"", name, "\""));
  const auto index = static_cast<size_t>(found - runs_.data());
  return Change([&](std::vector<QueuedRun>& runs) {
    QueuedRun& run = runs[index];
    const bool withdrawn = run.withdrawn && state == QueuedState::kInterrupted;
    run.state = withdrawn ? QueuedState::kWithdrawn : state;
    if (!withdrawn) run.why = why;
    run.ended = now;
  });
}

absl::Status RunQueue::Note(const std::string& name, const std::string& why) {
  absl::MutexLock lock(&mutex_);
  const QueuedRun* found = Find(name);
  if (found == nullptr) return absl::NotFoundError(absl::StrCat("there is no run \"", name, "\""));
  if (found->withdrawn) return absl::OkStatus();  // it says by whom
  const auto index = static_cast<size_t>(found - runs_.data());
  return Change([&](std::vector<QueuedRun>& runs) { runs[index].why = why; });
}

std::vector<QueuedRun> RunQueue::runs() const {
  absl::MutexLock lock(&mutex_);
  return runs_;
}

absl::StatusOr<std::vector<admin::ResultFile>> RunQueue::Results(const std::string& name) const {
  {
    absl::MutexLock lock(&mutex_);
    if (std::ranges::find(runs_, name, &QueuedRun::name) == runs_.end())
      return absl::NotFoundError(absl::StrCat("there is no run \"", name, "\""));
  }
  std::vector<admin::ResultFile> files;
  for (const char* file : kResults) {
    const std::string path = absl::StrCat(FolderOf(name), "/", file);
    if (FileExists(path)) files.push_back({.name = file, .path = path});
  }
  for (const char* folder : kResultFolders) {
    std::set<std::string> names;
    std::error_code error;
    for (const fs::directory_entry& entry :
         fs::directory_iterator(absl::StrCat(FolderOf(name), "/", folder), error)) {
      if (entry.path().extension() == ".safetensors")
        names.insert(absl::StrCat(folder, "/", entry.path().filename().string()));
    }
    for (const std::string& file : names)
      files.push_back({.name = file, .path = absl::StrCat(FolderOf(name), "/", file)});
  }
  return files;
}

uint64_t RunQueue::ahead_of(const std::string& name) const {
  absl::MutexLock lock(&mutex_);
  uint64_t ahead = 0;
  for (const QueuedRun& run : runs_) {
    if (run.name == name) break;
    ahead += run.state == QueuedState::kWaiting || run.state == QueuedState::kRunning ? 1 : 0;
  }
  return ahead;
}

}  // namespace macaw::cli
