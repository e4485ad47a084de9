#pragma once

#include "proto/fleet/link.h"

namespace macaw::fleet {

// Passes every call on to another link, which must outlive it. A test overrides what it looks at.
class ForwardingLink : public FleetLink {
 public:
  explicit ForwardingLink(FleetLink& link) : link_(link) {}

  absl::StatusOr<HelloReply> Hello(const HelloRequest& request) override {
    return link_.Hello(request);
  }
  absl::StatusOr<RegisterReply> Register(const RegisterRequest& request) override {
    return link_.Register(request);
  }
  absl::StatusOr<LeaseReply> Lease(const LeaseRequest& request, Duration wait) override {
    return link_.Lease(request, wait);
  }
  absl::StatusOr<HeartbeatReply> Heartbeat(const HeartbeatRequest& request) override {
    return link_.Heartbeat(request);
  }
  absl::StatusOr<CommitReply> Commit(const CommitRequest& request) override {
    return link_.Commit(request);
  }
  absl::StatusOr<ReleaseReply> Release(const ReleaseRequest& request) override {
    return link_.Release(request);
  }
  absl::StatusOr<Blob> Fetch(const Blob& blob) override { return link_.Fetch(blob); }
  void Shutdown() override { link_.Shutdown(); }
  uint64_t moved() const override { return link_.moved(); }
  Traffic traffic() const override { return link_.traffic(); }

 private:
  FleetLink& link_;
};

}  // namespace macaw::fleet
