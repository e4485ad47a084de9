#pragma once

#include <utility>
#include <vector>

#include "core/digest.h"
#include "core/ids.h"
#include "proto/fleet/link.h"
#include "proto/wire/convert.h"
#include "proto/wire/service.h"

// A lease as the answer of an RPC. Any thread.
namespace macaw::wire {

// How a lease is sent: with the blobs that its receiver does not have.
inline auto LeaseRule(const ServiceState& state, std::vector<Digest> have) {
  return [max_inline = state.max_inline, have = std::move(have),
          share = state.share](const auto& reply) {
    return ToWire(reply, InlineRule{max_inline, have, share});
  };
}

// Gives back work whose worker will never get the answer.
inline void GiveBackLease(fleet::FleetHandler& handler, const fleet::Caller& caller,
                          SessionId session, const fleet::LeaseReply& lease) {
  fleet::ReleaseRequest request{.session = session};
  if (lease.training.has_value()) {
    for (const fleet::Assignment& assignment : lease.training->assignments)
      request.attempts.push_back({assignment.client, assignment.fence});
  }
  if (lease.evaluation.has_value()) {
    for (const fleet::EvaluationTask& task : lease.evaluation->tasks)
      request.tasks.push_back(task.fence);
  }
  if (request.attempts.empty() && request.tasks.empty()) return;
  handler.Release(caller, std::move(request), [](const absl::StatusOr<fleet::ReleaseReply>&) {});
}

}  // namespace macaw::wire
