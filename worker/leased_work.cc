#include "worker/leased_work.h"

#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace macaw::worker {

absl::Status CheckPlaces(const fleet::LeaseReply& reply, uint64_t clients) {
  const auto check = [clients](uint64_t place) {
    return place < clients ? absl::OkStatus()
                           : absl::PermissionDeniedError(
                                 absl::StrCat("the server asks for the rows of client ", place,
                                              " of this node, which registered ", clients));
  };
  if (reply.training.has_value()) {
    for (const fleet::Assignment& assignment : reply.training->assignments)
      MACAW_RETURN_IF_ERROR(check(assignment.place));
  }
  if (!reply.evaluation.has_value()) return absl::OkStatus();
  for (const fleet::EvaluationTask& task : reply.evaluation->tasks) {
    using fleet::EvaluationKind;
    const bool of_a_client = task.kind != EvaluationKind::kCentralTest &&
                             task.kind != EvaluationKind::kCentralValidation &&
                             task.kind != EvaluationKind::kCentralBackdoor &&
                             task.kind != EvaluationKind::kStateDigest;
    if (of_a_client) MACAW_RETURN_IF_ERROR(check(task.place));
  }
  return absl::OkStatus();
}

const fleet::Blob* ModelOf(const fleet::LeaseReply& reply) {
  if (reply.training.has_value() && !reply.training->broadcast.channels.empty())
    return &reply.training->broadcast.channels[0];
  const bool evaluates = reply.evaluation.has_value() && reply.evaluation->model.named();
  return evaluates ? &reply.evaluation->model : nullptr;
}

Unbegun WorkOf(const fleet::LeaseReply& reply) {
  Unbegun work;
  if (reply.evaluation.has_value()) {
    for (const fleet::EvaluationTask& task : reply.evaluation->tasks)
      work.tasks.push_back(task.fence);
  }
  if (reply.training.has_value()) {
    for (const fleet::Assignment& assignment : reply.training->assignments)
      work.attempts.push_back({assignment.client, assignment.fence});
  }
  return work;
}

void GiveBack(fleet::FleetLink& link, SessionId session, const Unbegun& work) {
  if (work.empty()) return;
  (void)link.Release({.session = session, .attempts = work.attempts, .tasks = work.tasks});
}

}  // namespace macaw::worker
