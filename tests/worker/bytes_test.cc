#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_split.h"
#include "core/files.h"
#include "proto/wire/remote.h"
#include "tests/worker/synthetic_run.h"
#include "worker/worker.h"

// What the columns bytes_up and bytes_down say, beside what a device and a server really move.
namespace macaw::worker {
namespace {

using fixtures::OnlyFused;
using fixtures::OptionsOf;
using fixtures::Registry;
using fixtures::StartServer;
using fixtures::SyntheticClients;
using fixtures::SyntheticRun;
using nlohmann::json;
using testing_support::TemporaryFolder;

constexpr uint32_t kRounds = 8;

struct Moved {
  std::string digest;
  json rows = json::array();
  double up = 0, down = 0;  // sums of the columns
  fleet::Traffic traffic;
  json reported;  // by the node
};

// One client a round, on a worker of one slot, as a device has it. 51,000 weights.
class BytesTest : public testing::Test {
 protected:
  Moved Run(const UpdateConfig& update, const std::string& address, bool share,
            const BroadcastConfig& broadcast = {}) {
    const TemporaryFolder folder;
    RunPlan run = SyntheticRun(*dataset_, kRounds);
    run.model = {.name = "layers",
                 .layers = {"linear 800", "relu", "linear 4"},
                 .input_shape = dataset_->info().input_shape,
                 .classes = dataset_->info().classes};
    run.model.layers.back() = "linear " + std::to_string(dataset_->info().classes);
    run.cohort.size = 1;
    if (broadcast.of == "change") run.cohort.size = dataset_->info().clients;
    run.evaluation.every = 0;
    run.update = update;
    run.broadcast = broadcast;
    const auto server = StartServer(OptionsOf(run, folder.path()));
    const auto serving = wire::FleetServer::Start(
        {.listen = address.empty() ? "unix:" + (folder / "socket") : address,
         .share_memory = share},
        *server);
    EXPECT_TRUE(serving.ok()) << serving.status();
    const auto link = *wire::Dial({.server = (*serving)->address(), .share_memory = share});
    const absl::Status status =
        worker::Run({.slots = 1}, *dataset_, *link, Registry(), OnlyFused(), {});
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(server->Wait().ok());
    Moved moved{.traffic = link->traffic()};
    const json summary = json::parse(*ReadFile(folder / "summary.json"));
    moved.digest = summary["model_digest"];
    moved.reported = summary["traffic_bytes"];
    for (const absl::string_view line :
         absl::StrSplit(*ReadFile(folder / "metrics.jsonl"), '\n', absl::SkipEmpty())) {
      moved.rows.push_back(json::parse(line));
      moved.up += moved.rows.back()["bytes_up"].get<double>();
      moved.down += moved.rows.back()["bytes_down"].get<double>();
    }
    EXPECT_EQ(summary["bytes"]["up"], moved.up);
    return moved;
  }

  const std::unique_ptr<data::Dataset> dataset_ = SyntheticClients();
};

TEST_F(BytesTest, AreThoseOfTheSocketWithinTwoPercent) {
  const Moved moved = Run({}, "127.0.0.1:0", false);
  EXPECT_GT(moved.up, kRounds * 100'000.0);
  EXPECT_NEAR(static_cast<double>(moved.traffic.up), moved.up, 0.02 * moved.up);
  // The model is fetched once more at the end at most.
  EXPECT_NEAR(static_cast<double>(moved.traffic.down), moved.down, 0.15 * moved.down);
  EXPECT_LE(moved.reported["up"], moved.traffic.up);
}

TEST_F(BytesTest, AreTheSameOverEachKindOfConnection) {
  const Moved network = Run({}, "127.0.0.1:0", false);
  const Moved mapped = Run({}, "", true);
  EXPECT_EQ(mapped.rows, network.rows);
  EXPECT_EQ(mapped.digest, network.digest);
  EXPECT_LT(mapped.traffic.up, network.traffic.up / 10) << "nothing large was sent";
}

// The same model, whichever form the sums took; and what a codec saves is saved on the wire.
TEST_F(BytesTest, OfCodecsAreThoseOfTheSocket) {
  const double dense = Run({}, "127.0.0.1:0", false).up;
  const struct {
    std::vector<std::string> codec;
    double most;  // of dense
  } kCodecs[] = {{{"bf16"}, 0.55},
                 {{"bits 4"}, 0.15},
                 {{"sign"}, 0.1},
                 {{"majority 0.001"}, 0.1},
                 {{"topk 0.01"}, 0.03},
                 {{"topk 0.01", "bits 8"}, 0.02},
                 {{"rotate", "bits 2"}, 0.08},
                 {{"rotate", "sign"}, 0.06},
                 {{"rotate", "sign unbiased"}, 0.07},
                 {{"acpsgd 2"}, 0.09}};
  for (const auto& [codec, most] : kCodecs) {
    const UpdateConfig update{.codec = codec, .feedback = "none"};
    const Moved network = Run(update, "127.0.0.1:0", false);
    const Moved mapped = Run(update, "", true);
    EXPECT_EQ(mapped.rows, network.rows) << codec[0];
    EXPECT_EQ(mapped.digest, network.digest) << codec[0];
    EXPECT_LT(network.up, most * dense) << codec[0];
    // Requests, records and heartbeats: a few hundred bytes a round.
    EXPECT_GE(static_cast<double>(network.traffic.up), network.up);
    EXPECT_LT(static_cast<double>(network.traffic.up), network.up + kRounds * 2000.0) << codec[0];
  }
}

// Columns that no rank uses cost nothing, up or down.
TEST_F(BytesTest, RoomForLargerRanksIsNotSent) {
  UpdateConfig update{.codec = {"acpsgd 1"}, .feedback = "none"};
  const Moved fixed = Run(update, "127.0.0.1:0", false);
  update.adapt = kRounds + 1;  // chosen once, of as many numbers or fewer
  const Moved adapting = Run(update, "127.0.0.1:0", false);
  const double model = Run({}, "127.0.0.1:0", false).down;
  EXPECT_LT(adapting.down - model, 1.2 * (fixed.down - model));
  EXPECT_GT(fixed.down, model);
}

// What goes down: a model that is coded anew, and changes of what a worker has got before.
TEST_F(BytesTest, OfTheBroadcastAreThoseOfTheSocket) {
  const double clients = static_cast<double>(dataset_->info().clients);
  const double model = Run({}, "127.0.0.1:0", false).down / kRounds;
  const struct {
    BroadcastConfig broadcast;
    double most;  // of dense
  } kCases[] = {{{{"bf16"}, "model"}, 0.55},
                {{{"bits 8"}, "model"}, 0.27},
                {{{"bits 4"}, "change"}, 0.27},  // the first round is dense
                {{{"topk 0.01", "bits 8"}, "change"}, 0.15}};
  for (const auto& [broadcast, most] : kCases) {
    const Moved network = Run({}, "127.0.0.1:0", false, broadcast);
    const Moved mapped = Run({}, "", true, broadcast);
    EXPECT_EQ(mapped.rows, network.rows) << broadcast.codec[0];
    EXPECT_EQ(mapped.digest, network.digest) << broadcast.codec[0];
    const double turns = broadcast.of == "change" ? clients : 1;
    const double dense = kRounds * turns * model;
    EXPECT_LT(network.down, most * dense) << broadcast.codec[0];
    // The worker fetches once a round for all its clients, and once the model at the end.
    const double fetched = network.down / turns + model;
    EXPECT_LT(static_cast<double>(network.traffic.down),
              fetched + kRounds * 4000.0 + turns * 2000.0)
        << broadcast.codec[0];
    EXPECT_GT(static_cast<double>(network.traffic.down), network.down / turns);
  }
}

}  // namespace
}  // namespace macaw::worker
