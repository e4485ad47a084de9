#include "cli/standing/idle_fleet.h"

#include <utility>

#include "core/status.h"

namespace macaw::cli {
namespace {

// No session is open, so the wire itself answers every call in one.
class NoRun final : public fleet::FleetHandler {
 public:
#define MACAW_ANSWER(Name)                                                                       \
  void Name(const fleet::Caller&, fleet::Name##Request, fleet::Reply<fleet::Name##Reply> reply)  \
      override {                                                                                 \
    std::move(reply)(absl::UnavailableError("no run is open at this server; it waits for one")); \
  }
  MACAW_FLEET_CALLS(MACAW_ANSWER)
#undef MACAW_ANSWER
  void Offer(const fleet::Caller&, fleet::UploadOffer,
             fleet::Reply<fleet::UploadVerdict> reply) override {
    std::move(reply)(fleet::UploadVerdict::kStale);
  }
  bool Knows(SessionId) const override { return false; }
  std::shared_ptr<const AlignedBuffer> FindBlob(const fleet::Caller&, const Digest&) override {
    return nullptr;
  }
  void Waited(const fleet::Caller&, Duration) override {}
};

}  // namespace

absl::StatusOr<IdleFleet> IdleFleet::Open(const std::string& listen, identity::Authority* authority,
                                          identity::Audit* audit) {
  std::unique_ptr<fleet::FleetHandler> handler = std::make_unique<NoRun>();
  MACAW_ASSIGN_OR_RETURN(
      std::unique_ptr<wire::FleetServer> server,
      wire::FleetServer::Start(
          {.listen = listen, .max_part_clients = 1, .authority = authority, .audit = audit},
          *handler));
  return IdleFleet(std::move(handler), std::move(server));
}

}  // namespace macaw::cli
