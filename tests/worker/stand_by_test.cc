#include "worker/stand_by.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "identity/certificate.h"
#include "identity/verify.h"
#include "testing/forwarding.h"
#include "testing/local_link.h"
#include "testing/temporary_folder.h"
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
using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::TemporaryFolder;

class StandByTest : public testing::Test {
 protected:
  std::vector<std::string> told_;
  std::vector<Duration> pauses_;
  StandBy stand_by_{{.first = std::chrono::seconds(4), .longest = std::chrono::seconds(64)},
                    /*seed=*/7,
                    [this](const std::string& line) { told_.push_back(line); },
                    [this](Duration pause) { pauses_.push_back(pause); }};
};

TEST_F(StandByTest, TellsAReasonOnceAndItsEnd) {
  stand_by_.Passed();
  for (int i = 0; i < 3; ++i) stand_by_.Wait(absl::FailedPreconditionError("the run has begun"));
  stand_by_.Wait(absl::UnauthenticatedError("revoked"));
  stand_by_.Passed();
  stand_by_.Passed();
  EXPECT_THAT(told_, ElementsAre("stands_by reason=\"the run has begun\"",
                                 "stands_by reason=\"revoked\"", "works_again"));
}

TEST_F(StandByTest, PausesGrowToTheLongestAndBeginAnewWithAnotherReason) {
  for (int i = 0; i < 40; ++i) stand_by_.Wait(absl::FailedPreconditionError("a"));
  for (size_t i = 0; i < pauses_.size(); ++i) {
    const Duration mean = std::min(std::chrono::seconds(4) * (1 << std::min<size_t>(i, 10)),
                                   std::chrono::seconds(64));
    EXPECT_GE(pauses_[i], mean / 2) << i;
    EXPECT_LE(pauses_[i], mean * 3 / 2) << i;
  }
  stand_by_.Wait(absl::FailedPreconditionError("b"));
  EXPECT_LE(pauses_.back(), std::chrono::seconds(6));
}

// The words say what time it is, and for how long a certificate has ended.
TEST_F(StandByTest, NumbersAndTimesInAReasonMakeNoOther) {
  using identity::CheckTime;
  const absl::Time end = absl::FromUnixSeconds(1'800'000'000);
  const identity::Certificate certificate = *identity::MakeAuthorityCertificate(
      *identity::PrivateKey::Generate(), "fleet", {end - absl::Hours(1), end});
  absl::Time now = end;
  for (int i = 0; i < 20; ++i) {
    stand_by_.Wait(CheckTime(certificate, now));
    now += absl::FromChrono(pauses_.back());
  }
  EXPECT_THAT(told_, ElementsAre(HasSubstr("was valid until")));
  EXPECT_GE(pauses_.back(), std::chrono::seconds(32));
  stand_by_.Wait(absl::UnauthenticatedError("was revoked: on the 3rd"));
  EXPECT_LE(pauses_.back(), std::chrono::seconds(6));
  stand_by_.Wait(absl::InternalError("was revoked: on the 3rd"));
  EXPECT_LE(pauses_.back(), std::chrono::seconds(6));
}

TEST_F(StandByTest, GoesOnWithItsPausesIfWorkEndsForTheSameReason) {
  for (int i = 0; i < 10; ++i) {
    stand_by_.Wait(absl::ResourceExhaustedError("the disk is full"));
    stand_by_.Works();
    stand_by_.Works();
  }
  EXPECT_GE(pauses_.back(), std::chrono::seconds(32));
  EXPECT_EQ(told_.size(), 20u) << "each time both are told";
  EXPECT_EQ(told_.back(), "works_again");
  stand_by_.Passed();
  EXPECT_EQ(told_.size(), 20u);
  stand_by_.Wait(absl::ResourceExhaustedError("the disk is full"));
  EXPECT_LE(pauses_.back(), std::chrono::seconds(6));
}

TEST_F(StandByTest, TellsAReasonThatLastsEachHour) {
  Duration waited{};
  while (waited < std::chrono::hours(10)) {
    stand_by_.Wait(absl::FailedPreconditionError("not now"));
    waited += pauses_.back();
  }
  EXPECT_GE(told_.size(), 10u);
  EXPECT_LE(told_.size(), 12u);
}

// ---- the table of what a server may say: an enrolled node waits, any other one ends

// Each call is refused some times, and then let through.
class Refusing final : public fleet::ForwardingLink {
 public:
  Refusing(fleet::FleetLink& to, absl::Status why, bool at_hello)
      : ForwardingLink(to), why_(std::move(why)), at_hello_(at_hello) {}
  absl::StatusOr<fleet::HelloReply> Hello(const fleet::HelloRequest& request) override {
    if (at_hello_ && ++refused_ <= kTimes) return why_;
    return ForwardingLink::Hello(request);
  }
  absl::StatusOr<fleet::RegisterReply> Register(const fleet::RegisterRequest& request) override {
    if (!at_hello_ && ++refused_ <= kTimes) return why_;
    return ForwardingLink::Register(request);
  }
  int refused() const { return refused_; }

 private:
  static constexpr int kTimes = 3;
  const absl::Status why_;
  const bool at_hello_;
  std::atomic<int> refused_ = 0;
};

struct Refusal {
  const char* name;
  absl::Status why;
  bool at_hello = false;
};

class WhatAServerSays : public testing::TestWithParam<Refusal> {
 protected:
  absl::Status RunAs(bool enrolled, int* renewals = nullptr) {
    const auto dataset = SyntheticClients();
    const TemporaryFolder folder;
    const auto server = StartServer(OptionsOf(SyntheticRun(*dataset, 1), folder.path()));
    const auto link = fleet::MakeLocalLink(*server);
    Refusing refusing(*link, GetParam().why, GetParam().at_hello);
    Options options{.name = "phone-7", .enrolled = enrolled};
    options.stand_by = {.first = std::chrono::milliseconds(1),
                        .longest = std::chrono::milliseconds(4)};
    if (renewals != nullptr) {
      options.renew = [renewals] { return ++*renewals, absl::OkStatus(); };
    }
    const absl::Status status =
        worker::Run(options, *dataset, refusing, Registry(), OnlyFused(), {});
    if (!status.ok()) {
      server->Interrupt();
    } else {
      EXPECT_GT(refusing.refused(), 3);
    }
    EXPECT_TRUE(server->Wait().ok());
    return status;
  }
};

INSTANTIATE_TEST_SUITE_P(
    Each, WhatAServerSays,
    testing::Values(
        Refusal{"TheRunHasBegunWithoutIt", absl::FailedPreconditionError("the run has begun")},
        Refusal{"AnotherProfile", absl::FailedPreconditionError("its numeric profile differs")},
        Refusal{"OthersData", absl::FailedPreconditionError("another test set")},
        Refusal{"AnUnknownKey", absl::InvalidArgumentError("data.label_noise is not known"), true},
        Refusal{"AnotherVersion", absl::FailedPreconditionError("speaks version 2"), true},
        Refusal{"NotInTheRegistry", absl::UnauthenticatedError("is not in the registry"), true},
        Refusal{"Revoked", absl::UnauthenticatedError("was revoked: stolen"), true},
        Refusal{"NotItsClient", absl::PermissionDeniedError("the client is another's")},
        Refusal{"TooMany", absl::ResourceExhaustedError("too many calls")},
        Refusal{"AnInternalError", absl::InternalError("?")},
        Refusal{"NotThere", absl::NotFoundError("no such thing")}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(WhatAServerSays, IsWaitedOutByAnEnrolledNode) {
  int renewals = 0;
  const absl::Status status = RunAs(/*enrolled=*/true, &renewals);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(renewals, absl::IsUnauthenticated(GetParam().why) ? 3 : 0);
}

TEST_P(WhatAServerSays, EndsAWorkerOfASimulationWithThatWord) {
  EXPECT_EQ(RunAs(/*enrolled=*/false).code(), GetParam().why.code());
}

// A run that its owner does not accept is told to the server once, and the next one is joined.
TEST(EnrolledNode, WaitsForARunThatItsOwnerAccepts) {
  const auto dataset = SyntheticClients();
  const TemporaryFolder folder;
  const auto server = StartServer(OptionsOf(SyntheticRun(*dataset, 1), folder.path()));
  const auto link = fleet::MakeLocalLink(*server);
  class OtherFirst final : public fleet::ForwardingLink {
   public:
    using ForwardingLink::ForwardingLink;
    absl::StatusOr<fleet::HelloReply> Hello(const fleet::HelloRequest& request) override {
      absl::StatusOr<fleet::HelloReply> reply = ForwardingLink::Hello(request);
      if (reply.ok() && ++hellos_ <= 4) reply->run->algorithm.name = "fedprox";
      return reply;
    }
    absl::StatusOr<fleet::RegisterReply> Register(const fleet::RegisterRequest& request) override {
      if (!request.declined.empty()) declined_.push_back(request.declined);
      return request.declined.empty() ? ForwardingLink::Register(request)
                                      : absl::PermissionDeniedError("as you like");
    }
    int hellos_ = 0;
    std::vector<std::string> declined_;
  } other(*link);
  Options options{.name = "phone-7", .enrolled = true};
  options.accept.algorithms = {"fedavg"};
  options.stand_by = {.first = std::chrono::milliseconds(1),
                      .longest = std::chrono::milliseconds(4)};
  const absl::Status status = worker::Run(options, *dataset, other, Registry(), OnlyFused(), {});
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(other.hellos_, 5);
  EXPECT_THAT(other.declined_, ElementsAre(HasSubstr("accept.algorithms")));
  EXPECT_TRUE(server->Wait().ok());
}

TEST(EnrolledNode, SaysThatItWorksAgainWhenItDoes) {
  const auto dataset = SyntheticClients();
  const TemporaryFolder folder;
  const auto server = StartServer(OptionsOf(SyntheticRun(*dataset, 1), folder.path()));
  const auto link = fleet::MakeLocalLink(*server);
  class Late final : public fleet::ForwardingLink {
   public:
    using ForwardingLink::ForwardingLink;
    absl::StatusOr<fleet::RegisterReply> Register(const fleet::RegisterRequest& request) override {
      return ++registered_ < 3 ? absl::FailedPreconditionError("not yet")
                               : ForwardingLink::Register(request);
    }
    absl::StatusOr<fleet::LeaseReply> Lease(const fleet::LeaseRequest& request) override {
      if (said_.empty()) said_ = testing::internal::GetCapturedStderr();
      return ForwardingLink::Lease(request);
    }
    int registered_ = 0;
    std::string said_;  // before it asks for work
  } late(*link);
  Options options{.name = "phone-7", .enrolled = true};
  options.stand_by = {.first = std::chrono::milliseconds(1),
                      .longest = std::chrono::milliseconds(4)};
  testing::internal::CaptureStderr();
  const absl::Status status = worker::Run(options, *dataset, late, Registry(), OnlyFused(), {});
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(late.said_, HasSubstr("stands_by reason=\"not yet\""));
  EXPECT_THAT(late.said_, HasSubstr("works_again"));
  EXPECT_TRUE(server->Wait().ok());
}

// Makes the trainer with which a batch is tried, and the first lane none.
class LaneWithoutTrainer final : public training::Backend {
 public:
  std::string name() const override { return "no-lane"; }
  absl::Status Supports(const training::TrainerSetup&) const override { return absl::OkStatus(); }
  absl::StatusOr<NumericProfile> Profile(const training::TrainerSetup& setup) const override {
    return training::FusedBackend().Profile(setup);
  }
  absl::StatusOr<std::unique_ptr<training::LocalTrainer>> MakeTrainer(
      const training::TrainerSetup& setup) const override {
    if (setup.work == nullptr) ++tries;
    if (setup.work != nullptr && ++lanes == 1) return absl::InternalError("no power");
    return training::FusedBackend().MakeTrainer(setup);
  }
  std::string Report() const override { return ""; }

  mutable std::atomic<int> tries = 0, lanes = 0;
};

TEST(EnrolledNode, GivesItsRegistrationBackAndTriesABatchOfEachRun) {
  for (const bool another : {false, true}) {
    const auto dataset = SyntheticClients();
    const TemporaryFolder folder;
    const auto server = StartServer(OptionsOf(SyntheticRun(*dataset, 1), folder.path()));
    const auto link = fleet::MakeLocalLink(*server);
    class Renamed final : public fleet::ForwardingLink {
     public:
      using ForwardingLink::ForwardingLink;
      absl::StatusOr<fleet::RegisterReply> Register(
          const fleet::RegisterRequest& request) override {
        auto reply = ForwardingLink::Register(request);
        if (++registered_ == 2 && another_ && reply.ok()) reply->run_id = DigestOf("another");
        return reply;
      }
      absl::StatusOr<fleet::ReleaseReply> Release(const fleet::ReleaseRequest& request) override {
        if (request.leaving) ++left_;
        return ForwardingLink::Release(request);
      }
      int registered_ = 0;
      std::atomic<int> left_ = 0;
      bool another_ = false;
    } renamed(*link);
    renamed.another_ = another;
    const LaneWithoutTrainer backend;
    training::Backends backends("");
    backends.Add(backend);
    Options options{.name = "phone-7", .enrolled = true};
    options.backend.name = backend.name();
    options.stand_by = {.first = std::chrono::milliseconds(1),
                        .longest = std::chrono::milliseconds(4)};
    const absl::Status status = worker::Run(options, *dataset, renamed, Registry(), backends, {});
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(renamed.registered_, 2);
    EXPECT_EQ(renamed.left_, 1) << "the server must not wait for it";
    EXPECT_EQ(backend.tries, another ? 2 : 1);
    EXPECT_TRUE(server->Wait().ok());
  }
}

// A server that asks for rows beyond those of the node's clients.
class Curious final : public fleet::ForwardingLink {
 public:
  using ForwardingLink::ForwardingLink;
  absl::StatusOr<fleet::LeaseReply> Lease(const fleet::LeaseRequest& request) override {
    absl::StatusOr<fleet::LeaseReply> reply = ForwardingLink::Lease(request);
    if (reply.ok() && reply->training.has_value())
      reply->training->assignments.front().place = ~uint64_t{0} - 2;
    return reply;
  }
};

TEST(Session, GivesNoRowsThatTheNodeDidNotRegister) {
  const auto dataset = SyntheticClients();
  const TemporaryFolder folder;
  const auto server = StartServer(OptionsOf(SyntheticRun(*dataset, 1), folder.path()));
  const auto link = fleet::MakeLocalLink(*server);
  Curious curious(*link);
  const absl::Status status =
      worker::Run({.name = "phone-7"}, *dataset, curious, Registry(), OnlyFused(), {});
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("the server asks for the rows of client"));
  server->Interrupt();
  EXPECT_TRUE(server->Wait().ok());
}

}  // namespace
}  // namespace macaw::worker
