#include "identity/audit.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/logging.h"
#include "core/status.h"

namespace macaw::identity {
namespace {

constexpr size_t kMostText = 500;  // of a field that comes from outside

std::string Cut(const std::string& text) { return text.substr(0, kMostText); }

std::string KindOf(const Refusal& refusal) {
  return absl::StrCat(refusal.who, "\n", refusal.from, "\n", refusal.call, "\n", refusal.why);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Audit>> Audit::Open(const std::string& path) {
  MACAW_ASSIGN_OR_RETURN(ChainedLog log, ChainedLog::Open(path));
  MACAW_RETURN_IF_ERROR(log.ReadOn([](const LogEntry&) { return absl::OkStatus(); }));
  return std::unique_ptr<Audit>(new Audit(std::move(log)));
}

Audit::Audit(ChainedLog log) : log_(std::move(log)), executor_("audit", 1) {}

Audit::~Audit() {
  absl::MutexLock lock(&mutex_);
  for (const auto& [kind, seen] : seen_) {
    if (seen.second > 0) Write(seen.first, seen.second, absl::Now());
  }
  executor_.WaitIdle();
}

void Audit::Refused(const Refusal& refusal, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  if (now - minute_ >= absl::Minutes(1)) {
    for (const auto& [kind, seen] : seen_) {
      if (seen.second > 0) Write(seen.first, seen.second, now);
    }
    if (others_ > 0) Write({.why = "refusals of many kinds"}, others_, now);
    seen_.clear();
    others_ = 0;
    minute_ = now;
  }
  const Refusal cut = {Cut(refusal.who), Cut(refusal.from), Cut(refusal.call), Cut(refusal.why)};
  const std::string kind = KindOf(cut);
  if (const auto it = seen_.find(kind); it != seen_.end()) {
    ++it->second.second;
  } else if (seen_.size() < kMostKinds) {
    seen_[kind] = {cut, 0};
    Write(cut, 1, now);
  } else {
    ++others_;
  }
}

void Audit::Write(const Refusal& refusal, uint64_t times, absl::Time now) {
  LogEntry entry{.time = now,
                 .what = "refused",
                 .details = {{"who", refusal.who},
                             {"from", refusal.from},
                             {"call", refusal.call},
                             {"why", refusal.why},
                             {"times", absl::StrCat(times)}}};
  executor_.Post([this, entry = std::move(entry)] {
    const absl::Status status = log_.Append([](const LogEntry&) { return absl::OkStatus(); },
                                            [&]() -> absl::StatusOr<LogEntry> { return entry; });
    if (!status.ok())
      Logger("audit").Warning(absl::StrCat("cannot_write_audit why=", status.message()));
  });
}

}  // namespace macaw::identity
