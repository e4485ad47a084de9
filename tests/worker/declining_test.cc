#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "core/files.h"
#include "data/subset.h"
#include "server/log/reader.h"
#include "testing/forwarding.h"
#include "testing/local_link.h"
#include "tests/worker/synthetic_run.h"
#include "worker/worker.h"

// Real workers whose owners do not let them work at the moment, and a real server.
namespace macaw::worker {
namespace {

using fixtures::OnlyFused;
using fixtures::OptionsOf;
using fixtures::Registry;
using fixtures::StartServer;
using fixtures::SyntheticClients;
using fixtures::SyntheticRun;
using testing::HasSubstr;
using testing::Not;
using testing_support::TemporaryFolder;

// Counts what a node asks for, and acts when it has been turned away twice.
class DeclinedLink final : public fleet::ForwardingLink {
 public:
  using ForwardingLink::ForwardingLink;
  std::function<void()> after_two_refusals;
  int declined = 0;
  uint64_t fetched = 0;

  absl::StatusOr<fleet::LeaseReply> Lease(const fleet::LeaseRequest& request) override {
    if (!request.declined.empty() && ++declined == 2 && after_two_refusals) after_two_refusals();
    fleet::LeaseRequest impatient = request;  // a test need not wait as long as a node does
    impatient.wait = std::min<Duration>(request.wait, std::chrono::milliseconds(50));
    return ForwardingLink::Lease(impatient);
  }
  absl::StatusOr<fleet::Blob> Fetch(const fleet::Blob& blob) override {
    ++fetched;
    return ForwardingLink::Fetch(blob);
  }
};

// Two owners with six clients each, of whom a round asks all.
class Declining : public testing::Test {
 protected:
  Declining() {
    RunPlan run = SyntheticRun(*whole_, /*rounds=*/3);
    run.cohort.size = 12;
    server::Options options = OptionsOf(run, folder_.path());
    options.config.workers = 2;
    server_ = StartServer(std::move(options));
    link_ = fleet::MakeLocalLink(*server_);
  }
  // Another owner, in a thread of its own. `pause`: how many seconds longer each client takes.
  void StartOther(const AcceptConfig& accept = {}, double pause = 0) {
    other_ = std::jthread([this, accept, pause] {
      const auto link = fleet::MakeLocalLink(*server_);
      DeclinedLink watched(*link);
      Options options{.name = "lab-3", .accept = accept};
      options.emulation.pause_probability = pause > 0 ? 1 : 0;
      options.emulation.pause_seconds = pause;
      const auto status = Work(watched, options, 6);
      EXPECT_TRUE(status.ok()) << status;
    });
  }
  absl::Status Work(fleet::FleetLink& link, Options options, uint64_t begin) {
    const auto own = data::SubsetOf(*whole_, {.begin = begin, .end = begin + 6});
    options.owner = options.by_name = true;
    return worker::Run(options, **own, link, Registry(), OnlyFused(), {});
  }
  std::string Events() const { return *ReadFile(folder_ / "events.jsonl"); }

  const std::unique_ptr<data::Dataset> whole_ = SyntheticClients();
  const TemporaryFolder folder_;
  std::unique_ptr<server::Coordinator> server_;
  std::unique_ptr<fleet::FleetLink> link_;
  std::jthread other_;
};

TEST_F(Declining, ARoundGoesOnWithoutANodeAndTheServerKnowsWhy) {
  StartOther();
  DeclinedLink link(*link_);
  const absl::Status status = Work(link, {.name = "phone-7", .accept = {.run_when = {"false"}}}, 0);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(server_->Wait().ok());
  const std::string events = Events();
  EXPECT_THAT(events, HasSubstr("worker_declines"));
  EXPECT_THAT(events, HasSubstr("phone-7: accept.run_when says no (exit code 1)"));
  EXPECT_THAT(events, HasSubstr("\"clients\":6,\"left_out\":6"));
  EXPECT_EQ(link.fetched, 0u) << "it got no work";
}

TEST_F(Declining, NodesWorkAgainByThemselvesAndMeanwhileNoRoundIsUsedUp) {
  const std::string idle = folder_ / "idle";
  const AcceptConfig when_idle{.run_when = {"test", "-e", idle}, .run_when_every = 0.01};
  StartOther(when_idle,
             /*pause=*/0.5);  // so that the run is not over before the phone looks again
  DeclinedLink link(*link_);
  link.after_two_refusals = [&] { std::ofstream(idle) << "yes"; };
  const absl::Status status = Work(link, {.name = "phone-7", .accept = when_idle}, 0);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(server_->Wait().ok());
  EXPECT_GT(link.fetched, 0u);
  const std::string events = Events();
  EXPECT_THAT(events, HasSubstr("worker_accepts"));
  EXPECT_THAT(events, Not(HasSubstr("round_lost")));
}

TEST_F(Declining, ANodeWhoseBytesAreUsedUpStopsAsSoonAsARoundNeedsMore) {
  StartOther();
  // Counts a message as a megabyte, so that the second round is too much.
  class Dear final : public fleet::ForwardingLink {
   public:
    using ForwardingLink::ForwardingLink;
    mutable std::atomic<uint64_t> up = 0;
    absl::StatusOr<fleet::CommitReply> Commit(const fleet::CommitRequest& request) override {
      up += 1 << 20;
      return ForwardingLink::Commit(request);
    }
    fleet::Traffic traffic() const override { return {.up = up}; }
  };
  Dear link(*link_);
  const absl::Status status = Work(link,
                                   {.name = "phone-7",
                                    .scratch_dir = folder_ / "scratch",
                                    .accept = {.max_bytes_up_a_day = 1 << 20}},
                                   0);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(server_->Wait().ok());
  EXPECT_EQ(link.up, 1u << 20) << "it committed once";
  EXPECT_THAT(Events(), HasSubstr("today's bytes are used up (accept.max_bytes_up_a_day)"));
}

TEST_F(Declining, ARunThatCannotFitTheDaysBytesIsRefusedForGood) {
  const absl::Status status = Work(*link_,
                                   {.name = "phone-7",
                                    .scratch_dir = folder_ / "scratch",
                                    .accept = {.max_bytes_down_a_day = 10}},
                                   0);
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("accept.max_bytes_down_a_day is 10"));
  server_->Interrupt();
  EXPECT_TRUE(server_->Wait().ok());
}

}  // namespace
}  // namespace macaw::worker
