// Whole runs whose clients a device trains side by side: a real server and a real worker, and a
// device in this process (testing/fake_device.h). Every rule must give what it gives on a processor
// core, but for rounding, and the same bytes however the device is used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "aggregation/device_sum.h"
#include "core/files.h"
#include "core/safetensors.h"
#include "data/together.h"
#include "device/collective.h"
#include "testing/fake_device.h"
#include "testing/forwarding.h"
#include "testing/local_link.h"
#include "tests/worker/synthetic_run.h"
#include "training/device/device_backend.h"
#include "training/device/kernels.h"
#include "worker/worker.h"

namespace macaw::worker {
namespace {

using fixtures::OptionsOf;
using fixtures::Registry;
using fixtures::StartServer;
using fixtures::SyntheticClients;
using fixtures::SyntheticRun;
using macaw::testing_support::FakeDevice;
using macaw::testing_support::FakeDeviceOptions;
using testing::HasSubstr;
using testing_support::TemporaryFolder;
using Json = nlohmann::json;

std::vector<device::HostKernelEntry> Kernels() {
  const auto kernels = training::DeviceTrainerKernels();
  std::vector<device::HostKernelEntry> all = aggregation::SumHostKernels();
  all.insert(all.end(), kernels.begin(), kernels.end());
  return all;
}

class FakeBackend final : public training::DeviceBackend {
 public:
  explicit FakeBackend(std::vector<FakeDeviceOptions> devices,
                       const training::DeviceLimits& limits = {})
      : DeviceBackend(limits) {
    for (const FakeDeviceOptions& options : devices)
      devices_.push_back(std::make_unique<FakeDevice>(Kernels(), options));
  }
  std::string name() const override { return "fake"; }
  std::string Report() const override { return ""; }
  FakeDevice& device(size_t i) { return *devices_[i]; }
  uint64_t reductions() const { return reductions_; }  // of sums of several devices
  uint64_t opened() const { return opened_; }          // calls that open devices

  absl::StatusOr<std::unique_ptr<device::Collective>> MakeCollective(
      std::vector<device::Device*> devices) const override {
    auto host = device::MakeHostCollective(std::move(devices));
    if (!host.ok()) return host;
    return std::make_unique<Counting>(*std::move(host), reductions_);
  }

 private:
  class Counting final : public device::Collective {
   public:
    Counting(std::unique_ptr<device::Collective> inner, std::atomic<uint64_t>& reductions)
        : inner_(std::move(inner)), reductions_(reductions) {}
    size_t devices() const override { return inner_->devices(); }
    absl::Status Reduce(Operation operation, std::span<const int64_t* const> parts, int64_t* to,
                        size_t count) override {
      ++reductions_;
      return inner_->Reduce(operation, parts, to, count);
    }
    std::string name() const override { return inner_->name(); }

   private:
    const std::unique_ptr<device::Collective> inner_;
    std::atomic<uint64_t>& reductions_;
  };

  absl::StatusOr<size_t> CountDevices(const std::vector<std::string>&) const override {
    return devices_.size();
  }
  absl::StatusOr<std::vector<device::Device*>> Devices(
      const std::vector<std::string>&) const override {
    ++opened_;
    std::vector<device::Device*> devices;
    for (const auto& device : devices_) devices.push_back(device.get());
    return devices;
  }

  std::vector<std::unique_ptr<FakeDevice>> devices_;
  mutable std::atomic<uint64_t> reductions_ = 0, opened_ = 0;
};

// Where LibTorch's trainer is, which trains on cores what the fused one cannot.
#ifdef MACAW_MODULES
constexpr char kModules[] = MACAW_MODULES;
#else
constexpr char kModules[] = "";
#endif

struct Ended {
  absl::Status worker;  // of the last one
  std::string model_digest, state_digest, metrics;
  double test_loss = 0;
};

using Change = std::function<void(RunPlan&)>;

// Three rounds of the rule on twelve clients. The workers come one after the other, each with what
// its back end offers; null: processor cores.
Ended TrainWith(const std::string& rule, uint32_t slots, const std::vector<FakeBackend*>& workers,
                const Change& change = nullptr) {
  auto dataset = SyntheticClients();
  const TemporaryFolder folder;
  RunPlan run = SyntheticRun(*dataset, 3);
  if ((*Registry().Find(rule))->pools_clients) {
    dataset = *data::TrainTogether(std::move(dataset));
    run.train_clients = run.cohort.size = 1;
  }
  run.model.name = "layers";
  run.model.layers = {"linear 12", "relu", "linear 10"};
  run.algorithm.name = rule;
  if (rule == "fedbn") run.algorithm.parameters["local"] = std::string("0.*");
  if (rule == "fltrust") run.cohort.size = run.clients;  // its root trains in each round
  if (change != nullptr) change(run);
  Ended ended;
  const auto server = StartServer(OptionsOf(run, folder.path()));
  if (server == nullptr) return ended;
  for (FakeBackend* const backend : workers) {
    training::Backends backends(kModules);
    Options options{.slots = slots};
    options.state.path = folder / "state";
    if (backend != nullptr) {
      backends.Add(*backend);
      options.backend.name = backend->name();
    }
    const auto link = fleet::MakeLocalLink(*server);
    ended.worker = worker::Run(options, *dataset, *link, Registry(), backends, {});
  }
  if (!ended.worker.ok()) return ended;
  EXPECT_TRUE(server->Wait().ok());
  const Json summary = Json::parse(*ReadFile(folder / "summary.json"));
  ended.model_digest = summary["model_digest"];
  ended.state_digest = summary.value("state_digest", "");
  ended.metrics = *ReadFile(folder / "metrics.jsonl");
  ended.test_loss = summary["final"]["clients_test_loss"];
  return ended;
}

std::vector<std::string> Rules(bool with_hooks) {
  std::vector<std::string> names;
  for (const algorithms::Description* rule : Registry().All()) {
    // A device trains no slices, and sums over rows are the host's.
    if (rule->has_slices || rule->has_statistics) continue;
    if (rule->has_hooks == with_hooks) names.push_back(rule->name);
  }
  return names;
}

class RuleOnADevice : public testing::TestWithParam<std::string> {};

TEST_P(RuleOnADevice, LearnsWhatItLearnsOnACore) {
  FakeBackend backend({FakeDeviceOptions{}});
  const Ended core = TrainWith(GetParam(), 2, {nullptr}),
              device = TrainWith(GetParam(), 6, {&backend});
  ASSERT_TRUE(core.worker.ok()) << core.worker;
  ASSERT_TRUE(device.worker.ok()) << device.worker;
  EXPECT_GT(backend.device(0).launches(), 0u);
  EXPECT_NEAR(device.test_loss, core.test_loss, 1e-5 * std::abs(core.test_loss));
}

TEST_P(RuleOnADevice, GivesTheSameBytesForAnySlotsDevicesThreadsAndMemory) {
  FakeBackend one({FakeDeviceOptions{}});
  const Ended alone = TrainWith(GetParam(), 1, {&one});
  ASSERT_TRUE(alone.worker.ok()) << alone.worker;
  FakeBackend two({{.threads = 3, .seed = 1}, {.threads = 2, .seed = 2}});
  two.device(1).FailAllocations(/*first=*/3);
  const Ended many = TrainWith(GetParam(), 12, {&two});
  ASSERT_TRUE(many.worker.ok()) << many.worker;
  EXPECT_GT(two.device(0).launches(), 0u);
  EXPECT_EQ(many.model_digest, alone.model_digest);
  EXPECT_EQ(many.state_digest, alone.state_digest);
  EXPECT_EQ(many.metrics, alone.metrics);
}

INSTANTIATE_TEST_SUITE_P(Every, RuleOnADevice, testing::ValuesIn(Rules(/*with_hooks=*/false)),
                         [](const auto& info) { return info.param; });

// What a run of the rule may ask for, beside a run without it that learns something else.
struct Option {
  std::string name, rule;
  Change with, without;
};

Change Optimizer(const std::string& name) {
  return [name](RunPlan& run) {
    run.local.optimizer = name;
    run.local.lr = 0.01;
    run.local.weight_decay = 0.01;
    run.local.epsilon = 1e-3;  // above what rounding does to a gradient
  };
}
Change Clip(const std::string& what) {
  return [what](RunPlan& run) {
    run.algorithm.parameters["mu"] = 3.0;
    run.local.clip = what;
    run.local.clip_norm = 0.5;
  };
}

void Noise(RunPlan& run) { run.transform.client_noise = 0.8; }

class OptionOnADevice : public testing::TestWithParam<Option> {};

TEST_P(OptionOnADevice, GivesTheSameBytesForAnySlotsDevicesThreadsAndMemory) {
  const auto& [name, rule, with, without] = GetParam();
  FakeBackend one({FakeDeviceOptions{}}), two({{.threads = 3, .seed = 1}, {.threads = 2}});
  two.device(1).FailAllocations(/*first=*/3);
  const Ended alone = TrainWith(rule, 1, {&one}, with), many = TrainWith(rule, 12, {&two}, with);
  ASSERT_TRUE(alone.worker.ok()) << alone.worker;
  ASSERT_TRUE(many.worker.ok()) << many.worker;
  EXPECT_EQ(many.model_digest, alone.model_digest);
  EXPECT_EQ(many.metrics, alone.metrics);
}

TEST_P(OptionOnADevice, LearnsWhatItLearnsOnACore) {
  const auto& [name, rule, with, without] = GetParam();
  const Ended core = TrainWith(rule, 2, {nullptr}, with);
  if (absl::StrContains(core.worker.message(), "LibTorch")) {
    GTEST_SKIP() << "no other trainer here can do it: " << core.worker;
  }
  ASSERT_TRUE(core.worker.ok()) << core.worker;
  FakeBackend backend({FakeDeviceOptions{}}), other({FakeDeviceOptions{}});
  const Ended device = TrainWith(rule, 6, {&backend}, with);
  ASSERT_TRUE(device.worker.ok()) << device.worker;
  EXPECT_GT(backend.device(0).launches(), 0u);
  EXPECT_NEAR(device.test_loss, core.test_loss, 1e-5 * std::abs(core.test_loss));
  const double otherwise = TrainWith(rule, 6, {&other}, without).test_loss;
  EXPECT_GT(std::abs(device.test_loss - otherwise), 1e-3 * std::abs(otherwise));
}

INSTANTIATE_TEST_SUITE_P(
    Every, OptionOnADevice,
    testing::Values(Option{"adam", "fedprox", Optimizer("adam"), nullptr},
                    Option{"adam_in_two_stages", "ditto", Optimizer("adam"), nullptr},
                    Option{"adamw", "fedavg", Optimizer("adamw"), Optimizer("adam")},
                    Option{"clip_corrected", "fedprox", Clip("corrected"), Clip("gradient")},
                    Option{"noise", "fedavg", Noise, nullptr},
                    Option{"noise_of_joined_rows", "pooled", Noise, nullptr}),
    [](const auto& info) { return info.param.name; });

// A model of 754 parameters; 18 clients in three rounds. Evaluations copy out some numbers a row.
constexpr uint64_t kVectorBytes = 754 * sizeof(float);

TEST(DeviceRun, UpdatesThatAreOnlyAddedUpStayOnTheDevice) {
  for (const std::string rule : {"fedavg", "fedprox", "fedadam", "fednova"}) {
    FakeBackend backend({FakeDeviceOptions{}});
    ASSERT_TRUE(TrainWith(rule, 6, {&backend}).worker.ok());
    // The sum of a round, of 8 bytes a parameter, and a client's sums of losses.
    EXPECT_LT(backend.device(0).copied_out(), 12 * kVectorBytes) << rule;
  }
  FakeBackend backend({FakeDeviceOptions{}});
  ASSERT_TRUE(TrainWith("scaffold", 6, {&backend}).worker.ok());
  EXPECT_GT(backend.device(0).copied_out(), 18 * kVectorBytes);  // it looks at every update
}

TEST(DeviceRun, SumsOfSeveralDevicesMeetInTheirCollective) {
  FakeBackend one({FakeDeviceOptions{}}), three({{.seed = 1}, {.seed = 2}, {.seed = 3}});
  const Ended alone = TrainWith("fedavg", 4, {&one}), many = TrainWith("fedavg", 6, {&three});
  ASSERT_TRUE(many.worker.ok()) << many.worker;
  EXPECT_EQ(one.reductions(), 0);
  EXPECT_GE(three.reductions(), 1);
  EXPECT_EQ(many.model_digest, alone.model_digest);
}

// A command that only asks what a run would use leaves the devices alone.
TEST(DeviceRun, AskingForAProfileOrLanesOpensNoDevice) {
  const FakeBackend backend({FakeDeviceOptions{}, FakeDeviceOptions{}});
  const auto dataset = SyntheticClients();
  RunPlan run = SyntheticRun(*dataset, 1);
  const auto setup = training::TrainerSetup::Of(run, *models::BuildSpec(run.model, run.dtype),
                                                dataset->info().feature_type);
  EXPECT_TRUE(backend.Profile(setup).ok());
  EXPECT_EQ(*backend.DevicesFor({}), 2u);
  EXPECT_EQ(*backend.LanesFor(setup, 100), 4u);
  EXPECT_EQ(backend.opened(), 0u);
  EXPECT_TRUE(backend.MakeTrainer(setup).ok());
  EXPECT_EQ(backend.opened(), 1u);
}

// Notes what heartbeats tell while a client is trained.
class Listening final : public fleet::ForwardingLink {
 public:
  explicit Listening(fleet::FleetLink& link) : ForwardingLink(link) {}
  absl::StatusOr<fleet::HeartbeatReply> Heartbeat(const fleet::HeartbeatRequest& request) override {
    if (!committed_ && (told_.empty() || request.progress > told_.back()))
      told_.push_back(request.progress);
    return ForwardingLink::Heartbeat(request);
  }
  absl::StatusOr<fleet::CommitReply> Commit(const fleet::CommitRequest& request) override {
    committed_ = true;
    return ForwardingLink::Commit(request);
  }
  const std::vector<uint64_t>& told() const { return told_; }

 private:
  std::atomic<bool> committed_ = false;
  std::vector<uint64_t> told_;  // growing; of the heartbeats' thread
};

TEST(DeviceRun, HeartbeatsTellHowFarALongClientIs) {
  FakeBackend backend({FakeDeviceOptions{}}, {.launch_seconds = 1e-4});
  const auto dataset = SyntheticClients();
  const TemporaryFolder folder;
  RunPlan run = SyntheticRun(*dataset, 1);
  run.cohort.size = 1;
  run.local.steps = 30000;
  run.local.lr = 1e-4;
  server::Options options = OptionsOf(run, folder.path());
  options.config.lease_timeout = 0.15;  // a heartbeat each 0.05 s
  const auto server = StartServer(options);
  ASSERT_NE(server, nullptr);
  training::Backends backends(kModules);
  backends.Add(backend);
  Options worker{.slots = 1};
  worker.backend.name = backend.name();
  const auto link = fleet::MakeLocalLink(*server);
  Listening listening(*link);
  const absl::Status ended = worker::Run(worker, *dataset, listening, Registry(), backends, {});
  ASSERT_TRUE(ended.ok()) << ended;
  EXPECT_TRUE(server->Wait().ok());
  EXPECT_GT(listening.told().size(), 4u);
}

TEST(DeviceRun, ARuleWithHooksIsRefusedBeforeItTakesAClient) {
  for (const std::string& rule : Rules(/*with_hooks=*/true)) {
    FakeBackend backend({FakeDeviceOptions{}});
    const Ended ended = TrainWith(rule, 4, {&backend});
    EXPECT_THAT(ended.worker.ToString(), HasSubstr("hooks")) << rule;
  }
}

// The process cannot use its device any more, so it waits for nothing.
TEST(DeviceRun, AnEnrolledNodeThatHasLostItsDeviceStartsAgain) {
  for (const bool at_work : {true, false}) {
    FakeBackend backend({FakeDeviceOptions{}});
    backend.device(0).LoseAfter(at_work ? 20 : 0);
    const auto dataset = SyntheticClients();
    const TemporaryFolder folder;
    const auto server = StartServer(OptionsOf(SyntheticRun(*dataset, 2), folder.path()));
    training::Backends backends(kModules);
    backends.Add(backend);
    std::vector<std::string> why;
    Options worker{.slots = 4, .enrolled = true};
    worker.backend.name = backend.name();
    worker.stand_by = {.first = std::chrono::milliseconds(1),
                       .longest = std::chrono::milliseconds(20)};
    worker.start_again = [&](const std::string& reason) { why.push_back(reason); };
    const auto link = fleet::MakeLocalLink(*server);
    const absl::Status ended = worker::Run(worker, *dataset, *link, Registry(), backends, {});
    EXPECT_THAT(ended.ToString(), HasSubstr("lost"));
    EXPECT_THAT(why, testing::ElementsAre(HasSubstr("lost")));
    server->Interrupt();
    EXPECT_TRUE(server->Wait().ok());
  }
}

TEST(DeviceRun, ALostDeviceEndsItsWorkerAndAnotherGoesOn) {
  FakeBackend undisturbed({FakeDeviceOptions{}}), lost({FakeDeviceOptions{}}),
      other({FakeDeviceOptions{}});
  lost.device(0).LoseAfter(20);
  EXPECT_THAT(TrainWith("fedavg", 4, {&lost}).worker.ToString(), HasSubstr("lost"));
  FakeBackend again({FakeDeviceOptions{}});
  again.device(0).LoseAfter(20);
  const Ended ended = TrainWith("fedavg", 4, {&again, &other});
  ASSERT_TRUE(ended.worker.ok()) << ended.worker;
  EXPECT_EQ(ended.model_digest, TrainWith("fedavg", 4, {&undisturbed}).model_digest);
}

}  // namespace
}  // namespace macaw::worker
