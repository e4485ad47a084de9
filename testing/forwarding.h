#pragma once

#include <memory>
#include <utility>

#include "proto/fleet/link.h"

// Links and handlers of which a test overrides the calls that it looks at.
namespace macaw::fleet {

// Passes every call on to another link, which must outlive it.
class ForwardingLink : public FleetLink {
 public:
  explicit ForwardingLink(FleetLink& link) : link_(link) {}

#define MACAW_PASS_ON(Name)                                                 \
  absl::StatusOr<Name##Reply> Name(const Name##Request& request) override { \
    return link_.Name(request);                                             \
  }
  MACAW_FLEET_CALLS(MACAW_PASS_ON)
#undef MACAW_PASS_ON
  absl::StatusOr<Blob> Fetch(const Blob& blob) override { return link_.Fetch(blob); }
  void Shutdown() override { link_.Shutdown(); }
  uint64_t moved() const override { return link_.moved(); }
  Traffic traffic() const override { return link_.traffic(); }

 private:
  FleetLink& link_;
};

// Passes every call on to another handler, which must outlive it.
class ForwardingHandler : public FleetHandler {
 public:
  explicit ForwardingHandler(FleetHandler& handler) : handler_(handler) {}

#define MACAW_PASS_ON(Name)                                                                   \
  void Name(const Caller& caller, Name##Request request, Reply<Name##Reply> reply) override { \
    handler_.Name(caller, std::move(request), std::move(reply));                              \
  }
  MACAW_FLEET_CALLS(MACAW_PASS_ON)
#undef MACAW_PASS_ON
  void Offer(const Caller& caller, UploadOffer offer, Reply<UploadVerdict> reply) override {
    handler_.Offer(caller, offer, std::move(reply));
  }
  bool Knows(SessionId session) const override { return handler_.Knows(session); }
  std::shared_ptr<const AlignedBuffer> FindBlob(const Caller& caller,
                                                const Digest& digest) override {
    return handler_.FindBlob(caller, digest);
  }
  void Waited(const Caller& caller, Duration time) override { handler_.Waited(caller, time); }

 private:
  FleetHandler& handler_;
};

// Answers every call at once with an empty reply, knows every session, takes every upload, and
// serves no blob.
class AnsweringHandler : public FleetHandler {
 public:
#define MACAW_ANSWER(Name)                                                     \
  void Name(const Caller&, Name##Request, Reply<Name##Reply> reply) override { \
    std::move(reply)(Name##Reply{});                                           \
  }
  MACAW_FLEET_CALLS(MACAW_ANSWER)
#undef MACAW_ANSWER
  void Offer(const Caller&, UploadOffer, Reply<UploadVerdict> reply) override {
    std::move(reply)(UploadVerdict::kSend);
  }
  bool Knows(SessionId) const override { return true; }
  std::shared_ptr<const AlignedBuffer> FindBlob(const Caller&, const Digest&) override {
    return nullptr;
  }
  void Waited(const Caller&, Duration) override {}
};

}  // namespace macaw::fleet
