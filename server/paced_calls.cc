#include "server/paced_calls.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace macaw::server {
namespace {

using What = NodeAllowances::What;

absl::Status TooOften(const fleet::Caller& caller, absl::string_view does) {
  return absl::UnavailableError(
      absl::StrCat("\"", caller.node, "\" ", does, " too often: wait a few seconds"));
}

TimePoint Now() { return SteadyClock().Now(); }

}  // namespace

void PacedCalls::Hello(const fleet::Caller& caller, fleet::HelloRequest request,
                       fleet::Reply<fleet::HelloReply> reply) {
  handler_.Hello(caller, std::move(request), std::move(reply));
}

void PacedCalls::Register(const fleet::Caller& caller, fleet::RegisterRequest request,
                          fleet::Reply<fleet::RegisterReply> reply) {
  if (!allowances_->Take(caller.node, What::kRegister, Now()))
    return std::move(reply)(TooOften(caller, "registers"));
  handler_.Register(caller, std::move(request), std::move(reply));
}

void PacedCalls::Lease(const fleet::Caller& caller, fleet::LeaseRequest request,
                       fleet::Reply<fleet::LeaseReply> reply) {
  request.declined = allowances_->Declined(caller.node, request.declined, Now());
  request.paced = true;
  handler_.Lease(caller, std::move(request), std::move(reply));
}

void PacedCalls::Heartbeat(const fleet::Caller& caller, fleet::HeartbeatRequest request,
                           fleet::Reply<fleet::HeartbeatReply> reply) {
  handler_.Heartbeat(caller, std::move(request), std::move(reply));
}

void PacedCalls::Commit(const fleet::Caller& caller, fleet::CommitRequest request,
                        fleet::Reply<fleet::CommitReply> reply) {
  if (!allowances_->Has(caller.node, What::kTurnedDown, Now()))
    return std::move(reply)(TooOften(caller, "sends parts that do not count"));
  if (request.ask.has_value()) {
    std::string& declined = request.ask->declined;
    declined = allowances_->Declined(caller.node, declined, Now());
    request.ask->paced = true;
  }
  handler_.Commit(caller, std::move(request),
                  [allowances = allowances_, node = caller.node,
                   reply = std::move(reply)](absl::StatusOr<fleet::CommitReply> said) mutable {
                    if (said.ok() && said->verdict != fleet::Verdict::kAccepted &&
                        said->verdict != fleet::Verdict::kDuplicate) {
                      allowances->Take(node, What::kTurnedDown, Now());
                    }
                    std::move(reply)(std::move(said));
                  });
}

void PacedCalls::Release(const fleet::Caller& caller, fleet::ReleaseRequest request,
                         fleet::Reply<fleet::ReleaseReply> reply) {
  if (!allowances_->Take(caller.node, What::kRelease, Now()))
    return std::move(reply)(TooOften(caller, "gives work back"));
  handler_.Release(caller, std::move(request), std::move(reply));
}

void PacedCalls::Offer(const fleet::Caller& caller, fleet::UploadOffer offer,
                       fleet::Reply<fleet::UploadVerdict> reply) {
  handler_.Offer(caller, offer, std::move(reply));
}

}  // namespace macaw::server
