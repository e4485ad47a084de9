#include "worker/trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "training/batch_order.h"

namespace macaw::worker {
namespace {

using training::BatchOrder;

const char* Name(training::StageKind kind) {
  switch (kind) {
    case training::StageKind::kTrain:
      return "train";
    case training::StageKind::kGradient:
      return "gradient";
    case training::StageKind::kLoss:
      return "loss";
    case training::StageKind::kStatistics:
      return "statistics";
  }
  return "unknown";
}

uint64_t RowsOf(const training::ClientTask& task, data::Split split) {
  switch (split) {
    case data::Split::kValidation:
      return task.validation.size();
    case data::Split::kTest:
      return task.test.size();
    case data::Split::kTrain:
      break;
  }
  return task.train.size();
}

}  // namespace

absl::StatusOr<Trace> Trace::Open(const std::string& path) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd.open()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  return Trace(path, std::move(fd));
}

absl::Status Trace::Write(const training::LocalPlan& plan, const training::ClientTask& task,
                          const About& about) const {
  std::string line =
      absl::StrCat("{\"round\":", task.round.value, ",\"phase\":", int{task.phase.value},
                   ",\"client\":", task.client.value, ",\"rows\":", task.train.size(),
                   about.hostile ? ",\"hostile\":true" : "", ",\"stages\":[");
  const StreamKey key{
      .seed = task.seed, .round = task.round, .phase = task.phase, .client = task.client};
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const training::Stage& stage = plan.stages[i];
    absl::StrAppend(&line, i == 0 ? "" : ",", "{\"kind\":\"", Name(stage.kind), "\"");
    if (stage.kind == training::StageKind::kTrain) {
      // The same order as in every trainer: a function of the key, so it can be computed again.
      BatchOrder order;
      order.Start(
          key, static_cast<uint32_t>(i), RowsOf(task, stage.rows), stage.local,
          about.norms_need_two_rows ? BatchOrder::Single::kJoin : BatchOrder::Single::kKeep);
      absl::StrAppend(&line, ",\"batches\":[");
      bool first = true;
      for (auto batch = order.Next(); !batch.empty(); batch = order.Next()) {
        absl::StrAppend(&line, first ? "[" : ",[", absl::StrJoin(batch, ","), "]");
        first = false;
      }
      absl::StrAppend(&line, "]");
    }
    absl::StrAppend(&line, "}");
  }
  absl::StrAppend(&line, "]}\n");
  const ssize_t written = ::write(fd_.get(), line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return absl::OkStatus();
  return absl::ErrnoToStatus(written < 0 ? errno : ENOSPC, absl::StrCat("cannot write ", path_));
}

}  // namespace macaw::worker
