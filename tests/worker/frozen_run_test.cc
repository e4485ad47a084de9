// Whole runs with frozen tensors: the base goes to each worker once, in each round what is trained
// goes down, and the result is that of whole models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/files.h"
#include "core/safetensors.h"
#include "models/spec.h"
#include "proto/wire/remote.h"
#include "server/log/history.h"
#include "testing/forwarding.h"
#include "testing/local_link.h"
#include "tests/worker/synthetic_run.h"
#include "tests/worker/whole_run.h"

namespace macaw::worker {
namespace {

namespace fs = std::filesystem;
using fixtures::OnlyFused;
using fixtures::OptionsOf;
using fixtures::Registry;
using fixtures::StartServer;
using fixtures::SyntheticClients;
using fixtures::SyntheticRun;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::TemporaryFolder;

constexpr uint32_t kRoundsOfFrozen = 4;

// Counts the bytes that each digest brought, and perhaps takes the parts out of what a server
// sends: so a worker of release 0.1.0 sees it.
class PartsLink final : public fleet::ForwardingLink {
 public:
  PartsLink(fleet::FleetLink& link, bool reads_parts)
      : ForwardingLink(link), reads_parts_(reads_parts) {}

  absl::StatusOr<fleet::LeaseReply> Lease(const fleet::LeaseRequest& request) override {
    if (!request.declined.empty() && when_declined) when_declined();
    absl::StatusOr<fleet::LeaseReply> reply = ForwardingLink::Lease(request);
    if (reply.ok()) Look(*reply);
    return reply;
  }
  absl::StatusOr<fleet::CommitReply> Commit(const fleet::CommitRequest& request) override {
    absl::StatusOr<fleet::CommitReply> reply = ForwardingLink::Commit(request);
    if (reply.ok() && reply->lease.has_value()) Look(*reply->lease);
    return reply;
  }
  absl::StatusOr<fleet::Blob> Fetch(const fleet::Blob& blob) override {
    ++fetched_[blob.digest];
    return ForwardingLink::Fetch(blob);
  }

  std::function<void()> when_declined;

  const Digest& base() const { return base_; }
  uint64_t base_bytes() const { return base_bytes_; }
  uint64_t trained_bytes() const { return trained_bytes_; }
  int times_fetched(const Digest& digest) const {
    const auto found = fetched_.find(digest);
    return found == fetched_.end() ? 0 : found->second;
  }
  int models_with_parts() const { return models_with_parts_; }

 private:
  void Look(fleet::LeaseReply& reply) {
    if (reply.evaluation.has_value()) Look(reply.evaluation->model);
    if (!reply.training.has_value()) return;
    for (fleet::Blob& channel : reply.training->broadcast.channels) Look(channel);
    for (fleet::OlderModel& older : reply.training->older)
      for (fleet::Blob& channel : older.broadcast.channels) Look(channel);
  }
  void Look(fleet::Blob& blob) {
    if (!blob.has_parts()) return;
    ++models_with_parts_;
    base_ = blob.base().digest;
    base_bytes_ = blob.base().size;
    trained_bytes_ = blob.trained().size;
    if (!reads_parts_) blob.parts.clear();
  }

  const bool reads_parts_;
  Digest base_;
  uint64_t base_bytes_ = 0, trained_bytes_ = 0;
  int models_with_parts_ = 0;
  std::map<Digest, int> fetched_;
};

class FrozenRun : public testing::Test {
 protected:
  RunPlan Plan(uint32_t rounds = kRoundsOfFrozen) const {
    RunPlan run = SyntheticRun(*dataset_, rounds);
    run.model = {.name = "layers",
                 .layers = {"linear 400", "relu", "linear 400", "relu",
                            absl::StrCat("linear ", dataset_->info().classes)},
                 .input_shape = dataset_->info().input_shape,
                 .classes = dataset_->info().classes,
                 .frozen = {"0.*", "2.*"}};
    run.evaluation.train = true;  // with l2_penalty, which is of what is trained
    run.local.weight_decay = 0.01;
    return run;
  }
  // One worker whose link is watched; `look` sees it at the end.
  template <typename Look>
  fixtures::Result RunWatched(const RunPlan& run, bool reads_parts, Look look) {
    const TemporaryFolder folder, states;
    const auto server = StartServer(OptionsOf(run, folder.path()));
    const auto link = fleet::MakeLocalLink(*server);
    PartsLink watched(*link, reads_parts);
    const absl::Status status = worker::Run({.slots = 2, .state = {.path = states.path()}},
                                            *dataset_, watched, Registry(), OnlyFused(), {});
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(server->Wait().ok());
    look(watched, folder.path());
    return fixtures::Result(folder.path());
  }
  // A part of a run, over TCP, with a scratch folder of the worker's. Returns its traffic.
  fleet::Traffic WorkOver(server::Coordinator& server, const std::string& scratch) {
    const auto serving =
        wire::FleetServer::Start({.listen = "127.0.0.1:0", .share_memory = false}, server);
    EXPECT_TRUE(serving.ok()) << serving.status();
    const auto link = *wire::Dial({.server = (*serving)->address(), .share_memory = false});
    const absl::Status status = worker::Run({.slots = 1, .scratch_dir = scratch}, *dataset_, *link,
                                            Registry(), OnlyFused(), {});
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(server.Wait().ok());
    return link->traffic();
  }

  // What a device received whose owner lets it receive so much a day; it stops when it declines.
  struct Day {
    bool declined = false;
    uint64_t down = 0;
  };
  Day WorkWithin(uint64_t limit, server::Coordinator& server, const std::string& scratch,
                 bool reads_parts = true) {
    const auto serving =
        wire::FleetServer::Start({.listen = "127.0.0.1:0", .share_memory = false}, server);
    EXPECT_TRUE(serving.ok()) << serving.status();
    const auto link = *wire::Dial({.server = (*serving)->address(), .share_memory = false});
    PartsLink watched(*link, reads_parts);
    std::stop_source stop;
    watched.when_declined = [&] { stop.request_stop(); };
    const Options options = {
        .slots = 1, .scratch_dir = scratch, .accept = {.max_bytes_down_a_day = limit}};
    const absl::Status status =
        worker::Run(options, *dataset_, watched, Registry(), OnlyFused(), stop.get_token());
    EXPECT_TRUE(status.ok()) << status;
    if (stop.stop_requested()) server.Interrupt();
    EXPECT_TRUE(server.Wait().ok());
    return {stop.stop_requested(), link->traffic().down};
  }

  const std::unique_ptr<data::Dataset> dataset_ = SyntheticClients();
};

TEST_F(FrozenRun, SendsItsBaseToAWorkerOnce) {
  for (const char* algorithm : {"fedavg", "scaffold"}) {
    RunPlan run = Plan();
    run.algorithm.name = algorithm;
    RunWatched(run, true, [&](const PartsLink& link, const std::string& folder) {
      EXPECT_GT(link.models_with_parts(), 3);
      EXPECT_EQ(link.times_fetched(link.base()), 1);
      const json summary = json::parse(*ReadFile(folder + "/summary.json"));
      EXPECT_EQ(summary["bytes"]["base"], link.base_bytes());
      // Of each client in each round what is trained, and SCAFFOLD's c, which is as long.
      const uint64_t vectors = run.algorithm.name == "scaffold" ? 2 : 1;
      EXPECT_EQ(summary["bytes"]["down"],
                kRoundsOfFrozen * run.cohort.size * vectors * link.trained_bytes());
      EXPECT_LT(40 * link.trained_bytes(), link.base_bytes());
    });
  }
}

// What a worker of release 0.1.0 gets and gives: whole models, and the same run to the byte.
TEST_F(FrozenRun, IsTheSameOnAWorkerThatReadsWholeModels) {
  const auto nothing = [](const PartsLink&, const std::string&) {};
  for (const char* algorithm : {"fedavg", "scaffold", "fedadam"}) {
    RunPlan run = Plan();
    run.algorithm.name = algorithm;
    const fixtures::Result parts = RunWatched(run, true, nothing);
    const fixtures::Result whole =
        RunWatched(run, false, [](const PartsLink& link, const std::string&) {
          EXPECT_EQ(link.times_fetched(link.base()), 0);
        });
    EXPECT_EQ(parts.digest, whole.digest) << algorithm;
    EXPECT_EQ(parts.metrics, whole.metrics) << algorithm;
  }
}

// The trained part alone is coded, and a codec's short forms are of it.
TEST_F(FrozenRun, IsTheSameUnderCodecsAndOnWorkersThatDoNotKnowThem) {
  const auto nothing = [](const PartsLink&, const std::string&) {};
  for (const auto& [codec, of] :
       {std::pair<const char*, const char*>{"bits 8", "model"}, {"topk 0.1", "change"}}) {
    RunPlan run = Plan();
    run.cohort.size = dataset_->info().clients;
    run.broadcast = {.codec = {codec}, .of = of};
    EXPECT_EQ(RunWatched(run, true, nothing).digest, RunWatched(run, false, nothing).digest)
        << codec;
  }
}

TEST_F(FrozenRun, KeepsTheBaseOnceBesideItsCheckpoints) {
  const TemporaryFolder folder;
  server::Options options = OptionsOf(Plan(), folder.path());
  options.config.checkpoint_every = 1;
  const auto server = StartServer(std::move(options));
  ASSERT_TRUE(fixtures::Work(*server, *dataset_, {.slots = 2}).ok());
  ASSERT_TRUE(server->Wait().ok());
  const auto bytes = [&](const std::string& name) { return fs::file_size(folder / name); };
  EXPECT_LT(bytes("checkpoints/round-00000004.safetensors"), bytes("base.safetensors") / 4);
  const auto model = SafetensorsFile::Open(folder / "model.safetensors");
  const auto trained = SafetensorsFile::Open(folder / "trained.safetensors");
  const auto base = SafetensorsFile::Open(folder / "base.safetensors");
  ASSERT_TRUE(model.ok() && trained.ok() && base.ok());
  EXPECT_EQ(model->tensors().size(), 6u);
  EXPECT_EQ(trained->metadata().at("base"), base->metadata().at("digest"));
  for (const auto* part : {&*trained, &*base}) {
    for (const auto& [name, tensor] : part->tensors()) {
      EXPECT_EQ(!name.starts_with("4."), part == &*base) << name;
      EXPECT_TRUE(std::ranges::equal(tensor.bytes, model->tensors().at(name).bytes)) << name;
    }
  }
}

TEST_F(FrozenRun, GoesOnWithTheSameBytes) {
  const TemporaryFolder whole, parts;
  for (const TemporaryFolder* folder : {&whole, &parts}) {
    for (const uint32_t rounds :
         folder == &whole ? std::vector<uint32_t>{4} : std::vector<uint32_t>{2, 4}) {
      RunPlan run = Plan(rounds);
      run.algorithm.name = "fedadam";
      server::Options options = OptionsOf(run, folder->path());
      options.resume = folder == &parts && rounds == 4;
      const auto server = StartServer(std::move(options));
      ASSERT_NE(server, nullptr);
      ASSERT_TRUE(fixtures::Work(*server, *dataset_, {.slots = 1}).ok());
      ASSERT_TRUE(server->Wait().ok());
    }
  }
  EXPECT_EQ(fixtures::Result(parts.path()).digest, fixtures::Result(whole.path()).digest);
}

// The file in the run's folder says what the base is, and another one is refused.
TEST_F(FrozenRun, GoesOnWithTheBaseOfItsFolder) {
  const TemporaryFolder folder;
  const auto begin = StartServer(OptionsOf(Plan(2), folder.path()));
  ASSERT_TRUE(fixtures::Work(*begin, *dataset_, {.slots = 1}).ok());
  ASSERT_TRUE(begin->Wait().ok());
  server::Options options = OptionsOf(Plan(4), folder.path());
  options.resume = true;
  const models::ModelSpec spec = *models::BuildSpec(options.run.model, options.run.dtype);
  const FlatVector other = models::InitialModel(spec, /*seed=*/2);
  const auto base = ReadFile(folder / "base.safetensors");
  ASSERT_TRUE(base.ok());
  ASSERT_TRUE(AtomicWriteFile(folder / "base.safetensors", "damaged").ok());
  const auto refused = server::Coordinator::Start(options, other.Clone(), Registry());
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("frozen tensors are others"));
  ASSERT_TRUE(AtomicWriteFile(folder / "base.safetensors", *base).ok());
  const auto server = server::Coordinator::Start(options, other.Clone(), Registry());
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_TRUE(fixtures::Work(**server, *dataset_, {.slots = 1}).ok());
  ASSERT_TRUE((*server)->Wait().ok());
  const fixtures::Result whole =
      RunWatched(Plan(4), true, [](const PartsLink&, const std::string&) {});
  EXPECT_EQ(fixtures::Result(folder.path()).digest, whole.digest);
}

// A file of that name that is a user's stays, and the folder as it was.
TEST_F(FrozenRun, DoesNotWriteOverAUsersFile) {
  const TemporaryFolder folder;
  const std::string path = folder / "base.safetensors";
  const std::vector<float> numbers = {1, 2, 3};
  const TensorToWrite tensor = {
      .name = "x", .dtype = "F32", .shape = {3}, .bytes = std::as_bytes(std::span(numbers))};
  ASSERT_TRUE(WriteSafetensors(path, {tensor}, {{"format", "pt"}}).ok());
  const auto before = ReadFile(path);
  const server::Options options = OptionsOf(Plan(2), folder.path());
  const models::ModelSpec spec = *models::BuildSpec(options.run.model, options.run.dtype);
  const auto refused =
      server::Coordinator::Start(options, models::InitialModel(spec, /*seed=*/2), Registry());
  EXPECT_THAT(std::string(refused.status().message()),
              AllOf(HasSubstr(path), HasSubstr("move it elsewhere")));
  EXPECT_EQ(*ReadFile(path), *before);
  EXPECT_FALSE(FileExists(folder / "epoch"));
}

// A device keeps the base on its disk, and checks it when it reads it.
TEST_F(FrozenRun, FetchesNoBaseThatTheWorkerHasOnDisk) {
  const TemporaryFolder folder, scratch;
  std::vector<uint64_t> down;
  for (uint32_t rounds = 2; rounds <= 8; rounds += 2) {
    server::Options options = OptionsOf(Plan(rounds), folder.path());
    options.resume = rounds > 2;
    const auto server = StartServer(std::move(options));
    ASSERT_NE(server, nullptr);
    if (rounds == 6) {  // a damaged one
      for (const fs::directory_entry& file : fs::directory_iterator(scratch / "bases"))
        fs::resize_file(file.path(), 1000);
    }
    down.push_back(WorkOver(*server, scratch.path()).down);
  }
  const json summary = json::parse(*ReadFile(folder / "summary.json"));
  const uint64_t base = summary["bytes"]["base"];
  EXPECT_GT(down[0], base);
  EXPECT_LT(down[1], base / 2);
  EXPECT_GT(down[2], base);
  EXPECT_LT(down[3], base / 2);
}

// Before the base is fetched, it counts as work to come; on disk, it does not; and of a server of
// release 0.1.0 each model counts as a whole.
TEST_F(FrozenRun, KeepsToTheDaysBytesWithItsBase) {
  const TemporaryFolder folder, scratch;
  const auto start = [&](uint32_t rounds) {
    server::Options options = OptionsOf(Plan(rounds), folder.path());
    options.resume = rounds > 2;
    return StartServer(std::move(options));
  };
  const Day first = WorkWithin(uint64_t{1} << 40, *start(2), scratch.path());
  EXPECT_FALSE(first.declined);
  const uint64_t base = json::parse(*ReadFile(folder / "summary.json"))["bytes"]["base"];
  ASSERT_GT(first.down, base);
  uint64_t moved = first.down;  // today

  fs::rename(scratch / "bases", scratch / "elsewhere");
  const Day without = WorkWithin(moved + base / 10 * 9, *start(4), scratch.path());
  EXPECT_TRUE(without.declined);
  EXPECT_LT(without.down, base / 2);
  moved += without.down;

  fs::rename(scratch / "elsewhere", scratch / "bases");
  const Day with = WorkWithin(moved + base / 10 * 9, *start(4), scratch.path());
  EXPECT_FALSE(with.declined);
  moved += with.down;

  const Day whole = WorkWithin(moved + base / 10 * 9, *start(6), scratch.path(), false);
  EXPECT_TRUE(whole.declined);
  EXPECT_LT(whole.down, base / 2);
}

// Where rounds do not wait for each other, clients train from models of several ages, on devices
// that read parts and on one of release 0.1.0; and so they do in the simulation that repeats it.
TEST_F(FrozenRun, HasOneBaseForModelsOfSeveralAges) {
  constexpr uint32_t kNodes = 3;
  RunPlan run = Plan(8);
  run.cohort.size = 2;
  run.evaluation.train = false;
  run.asynchronous = {.mode = "buffered", .concurrency = 5};
  const TemporaryFolder folder, again;
  server::Options options = OptionsOf(run, folder.path());
  options.config.workers = kNodes;
  {
    const auto server = StartServer(options);
    ASSERT_NE(server, nullptr);
    std::vector<std::unique_ptr<fleet::FleetLink>> links;
    std::vector<std::unique_ptr<PartsLink>> watched;
    std::vector<std::thread> nodes;
    for (uint32_t i = 0; i < kNodes; ++i) {
      links.push_back(fleet::MakeLocalLink(*server));
      watched.push_back(std::make_unique<PartsLink>(*links.back(), i > 0));
      nodes.emplace_back([this, i, link = watched.back().get()] {
        const absl::Status status =
            worker::Run({.name = absl::StrCat("node-", i),
                         .slots = 2,
                         .emulation = {.pause_probability = 1, .pause_seconds = 0.02 * (i + 1)}},
                        *dataset_, *link, Registry(), OnlyFused(), {});
        EXPECT_TRUE(status.ok()) << status;
      });
    }
    for (std::thread& node : nodes) node.join();
    ASSERT_TRUE(server->Wait().ok());
    for (uint32_t i = 0; i < kNodes; ++i)
      EXPECT_EQ(watched[i]->times_fetched(watched[i]->base()), i > 0 ? 1 : 0) << i;
  }
  const auto recorded = server::log::ReadHistory(folder / "rounds.log");
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  server::Options repeating = OptionsOf(run, again.path());
  repeating.replays = recorded->sessions().front().run;
  repeating.decisions = recorded->decisions();
  const auto server = StartServer(repeating);
  ASSERT_TRUE(fixtures::Work(*server, *dataset_, {.slots = 3}).ok());
  ASSERT_TRUE(server->Wait().ok());
  EXPECT_EQ(fixtures::Result(again.path()).digest, fixtures::Result(folder.path()).digest);
}

}  // namespace
}  // namespace macaw::worker
