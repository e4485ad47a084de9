// What a node does with models that are too large to be kept for the next round.
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "core/files.h"
#include "testing/forwarding.h"
#include "testing/local_link.h"
#include "tests/worker/synthetic_run.h"
#include "worker/worker.h"

namespace macaw::worker {
namespace {

using fixtures::OnlyFused;
using fixtures::OptionsOf;
using fixtures::Registry;
using fixtures::StartServer;
using fixtures::SyntheticClients;
using fixtures::SyntheticRun;
using testing_support::TemporaryFolder;
using Json = nlohmann::json;

// Counts fetched blobs, and parts after which the node asks for work without any blob at hand.
class CountingLink final : public fleet::ForwardingLink {
 public:
  using ForwardingLink::ForwardingLink;
  absl::StatusOr<fleet::CommitReply> Commit(const fleet::CommitRequest& request) override {
    committed_ = committed_ || request.part.has_value();
    if (request.ask.has_value()) Asks(*request.ask);
    return ForwardingLink::Commit(request);
  }
  absl::StatusOr<fleet::LeaseReply> Lease(const fleet::LeaseRequest& request) override {
    Asks(request);
    return ForwardingLink::Lease(request);
  }
  absl::StatusOr<fleet::Blob> Fetch(const fleet::Blob& blob) override {
    ++fetched;
    return ForwardingLink::Fetch(blob);
  }
  int bare = 0, fetched = 0;

 private:
  void Asks(const fleet::LeaseRequest& request) {
    if (std::exchange(committed_, false) && request.have.empty()) ++bare;
  }
  bool committed_ = false;
};

TEST(LargeModels, GoBeforeTheUpdateIsSentWhereNothingNeedsThemAgain) {
  const auto dataset = SyntheticClients();
  struct Seen {
    std::string digest;
    int bare = 0, fetched = 0;
  };
  const auto run = [&](uint64_t kept, uint32_t evaluated_every, const std::string& algorithm) {
    const TemporaryFolder folder;
    RunPlan config = SyntheticRun(*dataset, 4);
    config.evaluation.every = evaluated_every;
    config.algorithm = *Registry().Complete({algorithm, {}});
    const auto server = StartServer(OptionsOf(config, folder.path()));
    const auto link = fleet::MakeLocalLink(*server);
    CountingLink counting(*link);
    const absl::Status status = worker::Run({.slots = 2, .kept_models_bytes = kept}, *dataset,
                                            counting, Registry(), OnlyFused(), {});
    EXPECT_TRUE(status.ok()) << status;
    if (!status.ok()) return Seen();  // the run would wait for another node
    EXPECT_TRUE(server->Wait().ok());
    return Seen{Json::parse(*ReadFile(folder / "summary.json"))["model_digest"], counting.bare,
                counting.fetched};
  };
  constexpr uint64_t kAll = uint64_t{1} << 30;
  const Seen stays = run(kAll, 0, "fedavg"), goes = run(0, 0, "fedavg");
  EXPECT_EQ(stays.bare, 0);
  EXPECT_EQ(goes.bare, 4) << "one a round";
  EXPECT_EQ(goes.fetched, stays.fetched) << "nothing is fetched twice";
  EXPECT_EQ(goes.digest, stays.digest);
  EXPECT_EQ(run(0, 1, "fedavg").bare, 0) << "the round's model is evaluated while it trains";
  EXPECT_EQ(run(0, 0, "term").bare, 0) << "a later phase gets the model again";
}

}  // namespace
}  // namespace macaw::worker
