#include "worker/acceptance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/files.h"
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
using testing::HasSubstr;
using testing_support::TemporaryFolder;

RunPlan ARun() {
  RunPlan run;
  run.algorithm.name = "scaffold";
  run.model.name = "lenet5";
  run.local.epochs = 3;
  run.local.batch_size = 10;
  return run;
}

absl::Status Check(const AcceptConfig& accept) {
  return CheckAccepted(
      accept, ARun(),
      {.parameters = 61'706, .rows = 95, .bytes_up = 500'000, .bytes_down = 250'000});
}

TEST(Acceptance, NamesTheKeyThatDoesNotLetARunIn) {
  EXPECT_TRUE(Check({}).ok());
  EXPECT_TRUE(Check({.algorithms = {"fedavg", "scaffold"},
                     .models = {"lenet5"},
                     .max_parameters = 61'706,
                     .max_steps = 30,
                     .max_bytes_up_a_day = 500'000,
                     .max_bytes_down_a_day = 250'000})
                  .ok());
  const auto why = [](const AcceptConfig& accept) {
    const absl::Status status = Check(accept);
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
    return std::string(status.message());
  };
  EXPECT_EQ(why({.algorithms = {"fedavg", "fedprox"}}),
            "the algorithm is \"scaffold\", and accept.algorithms is fedavg, fedprox");
  EXPECT_EQ(why({.models = {"mlp"}}), "the model is \"lenet5\", and accept.models is mlp");
  EXPECT_EQ(why({.max_parameters = 61'705}),
            "the model's parameters are 61706, and accept.max_parameters is 61705");
  EXPECT_EQ(why({.max_steps = 29}),
            "a client's local steps in a round are 30, and accept.max_steps is 29");
  EXPECT_THAT(why({.max_bytes_up_a_day = 499'999}),
              HasSubstr("accept.max_bytes_up_a_day is 499999"));
  EXPECT_THAT(why({.max_bytes_down_a_day = 1}), HasSubstr("accept.max_bytes_down_a_day is 1"));
}

TEST(Acceptance, CountsTheStepsThatATurnTakes) {
  RunPlan run;
  run.local.epochs = 2;
  run.local.batch_size = 10;
  EXPECT_EQ(MostSteps(run, {.rows = 95}), 20u);
  EXPECT_EQ(MostSteps(run, {.rows = 91}), 20u);
  EXPECT_EQ(MostSteps(run, {.rows = 91, .joins = true}), 18u);  // the last batch has eleven rows
  run.local.drop_last = true;
  EXPECT_EQ(MostSteps(run, {.rows = 95}), 18u);
  run.local.batch_size = 0;
  EXPECT_EQ(MostSteps(run, {.rows = 95}), 2u);
  run.local.steps = 7;
  EXPECT_EQ(MostSteps(run, {.rows = 95}), 7u);
}

// The most that some round asks for, and not what the run says of the fewest.
TEST(Acceptance, CountsTheStepsOfTheLongestRound) {
  RunPlan run = ARun();
  run.rounds = 3;
  run.local.steps = 2;
  run.local.qsr = 0.2;
  run.local.lr_schedule = {.kind = "exponential", .gamma = 0.5};  // 4, 16 and 64 steps
  EXPECT_TRUE(CheckAccepted({.max_steps = 64}, run, {.rows = 95}).ok());
  EXPECT_THAT(std::string(CheckAccepted({.max_steps = 63}, run, {.rows = 95}).message()),
              testing::AllOf(HasSubstr("are 64"), HasSubstr("accept.max_steps")));
}

// What the file of a node says under [accept].
absl::StatusOr<AcceptConfig> Read(const std::string& key, const settings::Value& value) {
  AcceptConfig accept;
  const settings::Section<AcceptConfig> section = AcceptSection();
  for (const auto& field : section.fields()) {
    if (field.key != key) continue;
    if (field.set(accept, value)) return accept;
    return absl::InvalidArgumentError(field.expected);
  }
  return absl::NotFoundError(key);
}

TEST(Acceptance, ACommandIsAListOrAStringThatIsCutAtSpaces) {
  using settings::Array;
  using settings::Value;
  const std::vector<std::string> command = {"/usr/bin/idle", "--for", "10 min"};
  Array list;
  for (const std::string& word : command) list.push_back(Value{word});
  EXPECT_EQ(Read("run_when", Value{list})->run_when, command);
  EXPECT_EQ(Read("run_when", Value{std::string(" /usr/bin/idle  -q ")})->run_when,
            (std::vector<std::string>{"/usr/bin/idle", "-q"}));
  EXPECT_FALSE(Read("run_when", Value{std::string(" ")}).ok());
  EXPECT_EQ(Read("hours", Value{std::string("22:00-06:00")})->hours,
            std::vector<std::string>{"22:00-06:00"});
  EXPECT_THAT(Read("hours", Value{std::string("at night")}).status().message(),
              HasSubstr("22:00-06:00"));
  EXPECT_FALSE(Read("run_when_every", Value{0.5}).ok());
}

// A server whose Hello tells of no run.
class SilentHello final : public fleet::ForwardingLink {
 public:
  using ForwardingLink::ForwardingLink;
  absl::StatusOr<fleet::HelloReply> Hello(const fleet::HelloRequest& request) override {
    absl::StatusOr<fleet::HelloReply> reply = ForwardingLink::Hello(request);
    if (reply.ok()) reply->run.reset();
    return reply;
  }
};

TEST(Acceptance, IsAskedOfTheRunThatIsTrainedWhateverHelloSaid) {
  const auto dataset = SyntheticClients();
  const TemporaryFolder folder;
  auto setting = OptionsOf(SyntheticRun(*dataset, 1), folder.path());
  setting.config.lease_timeout = 1;  // after which the one that only registered is forgotten
  const auto server = StartServer(std::move(setting));
  const auto link = fleet::MakeLocalLink(*server);
  SilentHello silent(*link);
  const Options picky = {.name = "phone-7", .accept = {.algorithms = {"fedprox"}}};
  const absl::Status refused = worker::Run(picky, *dataset, silent, Registry(), OnlyFused(), {});
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_THAT(refused.message(), HasSubstr("the owner of this node does not accept the run: "));
  EXPECT_TRUE(worker::Run({.name = "phone-8"}, *dataset, *link, Registry(), OnlyFused(), {}).ok());
  EXPECT_TRUE(server->Wait().ok());
}

TEST(Acceptance, ARefusalIsAReasonOnTheServerAndTheRunWaitsForOthers) {
  const auto dataset = SyntheticClients();
  const TemporaryFolder folder;
  const auto server = StartServer(OptionsOf(SyntheticRun(*dataset, 2), folder.path()));
  const auto work = [&](Options options) {
    const auto link = fleet::MakeLocalLink(*server);
    return worker::Run(options, *dataset, *link, Registry(), OnlyFused(), {});
  };
  const absl::Status refused = work({.name = "phone-7", .accept = {.algorithms = {"fedprox"}}});
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_THAT(refused.message(), HasSubstr("the owner of this node does not accept the run: "));
  EXPECT_TRUE(work({.name = "phone-8"}).ok());
  EXPECT_TRUE(server->Wait().ok());
  const std::string events = *ReadFile(folder / "events.jsonl");
  EXPECT_THAT(events, HasSubstr("phone-7"));
  EXPECT_THAT(events, HasSubstr("its owner does not accept the run: the algorithm is"));
}

TEST(Acceptance, ATrialTrainsAStepWithoutAServer) {
  const auto dataset = SyntheticClients();
  const auto trial = Try({}, *dataset, SyntheticRun(*dataset, 2), Registry(), OnlyFused());
  ASSERT_TRUE(trial.ok()) << trial.status();
  EXPECT_GT(trial->parameters, 0u);
  EXPECT_GT(trial->largest, 0u);
  RunPlan wrong = SyntheticRun(*dataset, 2);
  wrong.model.input_shape = {7};
  EXPECT_FALSE(Try({}, *dataset, wrong, Registry(), OnlyFused()).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(Try({.accept = {.max_steps = 1}}, *dataset,
                                           SyntheticRun(*dataset, 2), Registry(), OnlyFused())
                                           .status()));
  RunPlan attacked = SyntheticRun(*dataset, 2);
  attacked.clients = dataset->info().clients;
  attacked.attack = {.kind = "sign-flip", .fraction = 0.5};
  EXPECT_TRUE(Try({}, *dataset, attacked, Registry(), OnlyFused()).ok());
  const absl::Status real =
      Try({.enrolled = true}, *dataset, attacked, Registry(), OnlyFused()).status();
  EXPECT_TRUE(absl::IsPermissionDenied(real)) << real;
}

}  // namespace
}  // namespace macaw::worker
