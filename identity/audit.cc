#include "identity/audit.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/files.h"
#include "core/logging.h"
#include "core/status.h"
#include "identity/signed_head.h"

namespace macaw::identity {
namespace {

constexpr size_t kMostText = 500;  // of a field that comes from outside
constexpr size_t kMostOfStrangersText = 120;

// The reason up to its first name or number: texts of ours, which nobody outside can make longer.
std::string ReasonClass(absl::string_view why) {
  size_t end = 0;
  while (end < why.size() && end < 80 && why[end] != '"' && why[end] != ':' &&
         !absl::ascii_isdigit(static_cast<unsigned char>(why[end]))) {
    ++end;
  }
  return std::string(why.substr(0, end));
}

std::string KindOf(const Refusal& refusal) {
  switch (refusal.standing) {
    case Standing::kStranger:
      return absl::StrCat("stranger\n", ReasonClass(refusal.why));
    case Standing::kKnown:
      return absl::StrCat("known\n", refusal.who, "\n", refusal.call, "\n",
                          ReasonClass(refusal.why));
    case Standing::kBanned:
      return absl::StrCat("banned\n", refusal.who, "\n", refusal.call);
  }
  return "";
}

Refusal Cut(const Refusal& refusal) {
  const size_t most = refusal.standing == Standing::kStranger ? kMostOfStrangersText : kMostText;
  return {refusal.standing, refusal.who.substr(0, most), refusal.from.substr(0, most),
          refusal.call.substr(0, most), refusal.why.substr(0, kMostText)};
}

struct Budget {
  std::string whose;
  size_t kinds;  // a minute
};
Budget BudgetOf(const Refusal& refusal) {
  switch (refusal.standing) {
    case Standing::kStranger:
      return {"strangers", Audit::kMostOfStrangers};
    case Standing::kKnown:
      return {absl::StrCat("known\n", refusal.who), Audit::kMostOfNode};
    case Standing::kBanned:
      return {absl::StrCat("banned\n", refusal.who), Audit::kMostOfBanned};
  }
  return {};
}

// Of "audit.jsonl" the file audit.3.jsonl.
std::string FileNumber(const std::string& path, int number) {
  return absl::StrCat(absl::StripSuffix(path, ".jsonl"), ".", number, ".jsonl");
}

absl::Status Nothing(const LogEntry&) { return absl::OkStatus(); }

}  // namespace

absl::StatusOr<std::unique_ptr<Audit>> Audit::Open(const std::string& path, Options options) {
  MACAW_ASSIGN_OR_RETURN(ChainedLog log, ChainedLog::Open(path));
  MACAW_RETURN_IF_ERROR(log.ReadOn(Nothing));
  return std::unique_ptr<Audit>(new Audit(path, options, std::move(log)));
}

Audit::Audit(std::string path, const Options& options, ChainedLog log)
    : path_(std::move(path)),
      key_(options.key != nullptr ? std::make_unique<const PrivateKey>(*options.key) : nullptr),
      most_bytes_(options.most_bytes),
      log_(std::move(log)),
      executor_("audit", 1) {}

Audit::~Audit() {
  absl::MutexLock lock(&mutex_);
  CloseMinute(absl::Now());
  executor_.WaitIdle();
}

void Audit::CloseMinute(absl::Time now) {
  for (const auto& [kind, seen] : seen_) {
    if (seen.since > 0) Write(seen.refusal, seen.since, now);
  }
  seen_.clear();
  kinds_.clear();
}

void Audit::Refused(const Refusal& refusal, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  // Also a clock that was set back. Calls come in the order of their times, to a moment.
  if (absl::AbsDuration(now - minute_) >= absl::Minutes(1)) {
    CloseMinute(now);
    minute_ = now;
  }
  Refusal cut = Cut(refusal);
  std::string kind = KindOf(cut);
  if (const auto it = seen_.find(kind); it != seen_.end()) {
    ++it->second.since;
    return;
  }
  const Budget budget = BudgetOf(cut);
  if (size_t& used = kinds_[budget.whose]; used < budget.kinds) {
    ++used;
  } else {
    // What is too much for a budget is one kind more.
    kind = absl::StrCat("others\n", budget.whose);
    if (const auto it = seen_.find(kind); it != seen_.end()) {
      ++it->second.since;
      return;
    }
    const bool stranger = cut.standing == Standing::kStranger;
    cut = {
        .standing = cut.standing, .who = stranger ? "" : cut.who, .why = "refusals of many kinds"};
  }
  Write(cut, 1, now);
  seen_[kind] = {std::move(cut), 0};
}

void Audit::Write(const Refusal& refusal, uint64_t times, absl::Time now) {
  LogEntry entry{.time = now,
                 .what = "refused",
                 .details = {{"from", refusal.from},
                             {"call", refusal.call},
                             {"why", refusal.why},
                             {"times", absl::StrCat(times)}}};
  const bool proven = refusal.standing != Standing::kStranger;
  if (proven || !refusal.who.empty()) entry.details[proven ? "who" : "claims"] = refusal.who;
  executor_.Post([this, entry = std::move(entry)] {
    const absl::Status status = Append(entry);
    if (!status.ok())
      Logger("audit").Warning(absl::StrCat("cannot_write_audit why=", status.message()));
  });
}

absl::Status Audit::LockNewest() {
  while (true) {
    MACAW_RETURN_IF_ERROR(log_.Lock());
    if (!log_.WasReplaced() && !log_.WasShortened()) return log_.ReadOn(Nothing);
    // Another process has begun a new file. What is assigned closes the old one, and unlocks it.
    MACAW_ASSIGN_OR_RETURN(log_, ChainedLog::Open(path_));
  }
}

absl::Status Audit::Append(const LogEntry& entry) {
  const absl::Cleanup unlock = [this] { log_.Unlock(); };
  MACAW_RETURN_IF_ERROR(LockNewest());
  if (log_.bytes() > most_bytes_) {
    // Without a new file the present one grows on.
    if (const absl::Status begun = BeginNewFile(entry.time); !begun.ok())
      Logger("audit").Warning(absl::StrCat("cannot_begin_new_file why=", begun.message()));
  }
  absl::Status is_signed;
  MACAW_RETURN_IF_ERROR(log_.AppendLocked(
      Nothing, [&]() -> absl::StatusOr<LogEntry> { return entry; },
      [&] {
        if (key_ != nullptr) is_signed = WriteSignedHead(path_, log_, *key_);
      }));
  return is_signed;
}

absl::Status Audit::BeginNewFile(absl::Time now) {
  const LogEntry goes_on{
      .time = now,
      .what = "goes_on",
      .details = {{"after", log_.head().Hex()}, {"lines", absl::StrCat(log_.lines())}}};
  // The new file is complete before an old one goes.
  const std::string next = absl::StrCat(path_, ".next");
  ::unlink(next.c_str());  // a crash has left it
  MACAW_ASSIGN_OR_RETURN(ChainedLog log, ChainedLog::Open(next));
  MACAW_RETURN_IF_ERROR(log.Lock());
  MACAW_RETURN_IF_ERROR(log.AppendLocked(
      Nothing, [&]() -> absl::StatusOr<LogEntry> { return goes_on; }, [] {}));
  for (int number = kFiles - 1; number >= 1; --number) {
    const std::string from = number == 1 ? path_ : FileNumber(path_, number - 1);
    for (const char* suffix : {"", kHeadSuffix}) {
      if (!FileExists(from + suffix)) continue;
      if (std::rename((from + suffix).c_str(), (FileNumber(path_, number) + suffix).c_str()) != 0)
        return absl::ErrnoToStatus(errno, absl::StrCat("cannot rename ", from, suffix));
    }
  }
  MACAW_RETURN_IF_ERROR(log.Rename(path_));
  log_ = std::move(log);
  return absl::OkStatus();
}

}  // namespace macaw::identity
