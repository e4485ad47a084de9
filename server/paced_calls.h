#pragma once

#include <memory>

#include "proto/fleet/link.h"
#include "server/node_allowances.h"

namespace macaw::server {

// The calls of a fleet over TLS, each node within its allowances. A call beyond them is answered
// with kUnavailable: the node comes again. Of leases that a node says it never got, only the engine
// knows whether there are any, so it counts them (LeaseRequest::paced). (The workers of a private
// socket are the supervisor's own children, and need none.) Thread-safe.
class PacedCalls final : public fleet::FleetHandler {
 public:
  // `handler` must outlive it.
  explicit PacedCalls(fleet::FleetHandler& handler) : handler_(handler) {}

  void Hello(const fleet::Caller& caller, fleet::HelloRequest request,
             fleet::Reply<fleet::HelloReply> reply) override;
  void Register(const fleet::Caller& caller, fleet::RegisterRequest request,
                fleet::Reply<fleet::RegisterReply> reply) override;
  void Lease(const fleet::Caller& caller, fleet::LeaseRequest request,
             fleet::Reply<fleet::LeaseReply> reply) override;
  void Heartbeat(const fleet::Caller& caller, fleet::HeartbeatRequest request,
                 fleet::Reply<fleet::HeartbeatReply> reply) override;
  void Commit(const fleet::Caller& caller, fleet::CommitRequest request,
              fleet::Reply<fleet::CommitReply> reply) override;
  void Release(const fleet::Caller& caller, fleet::ReleaseRequest request,
               fleet::Reply<fleet::ReleaseReply> reply) override;
  void Offer(const fleet::Caller& caller, fleet::UploadOffer offer,
             fleet::Reply<fleet::UploadVerdict> reply) override;
  bool Knows(SessionId session) const override { return handler_.Knows(session); }
  std::shared_ptr<const AlignedBuffer> FindBlob(const fleet::Caller& caller,
                                                const Digest& digest) override {
    return handler_.FindBlob(caller, digest);
  }
  void Waited(const fleet::Caller& caller, Duration time) override {
    handler_.Waited(caller, time);
  }

 private:
  fleet::FleetHandler& handler_;
  // Shared with replies, which may come late.
  const std::shared_ptr<NodeAllowances> allowances_ = std::make_shared<NodeAllowances>();
};

}  // namespace macaw::server
