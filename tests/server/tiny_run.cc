#include "tests/server/tiny_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "aggregation/exact_sum.h"
#include "algorithms/around/channels.h"
#include "algorithms/builtin.h"
#include "core/files.h"
#include "proto/fleet/client_table.h"
#include "proto/fleet/vector_codec.h"
#include "testing/local_link.h"

namespace macaw::server::fixtures {
namespace {

constexpr uint64_t kClients = 8;
constexpr uint64_t kTestRows = 25;

algorithms::Setup TinySetup() {
  RunPlan run = TinyRun(1);
  run.algorithm = *Registry().Complete(run.algorithm);
  return algorithms::SetupOf(run, TinyLayout());
}

}  // namespace

RunPlan TinyRun(uint32_t rounds) {
  RunPlan run;
  run.task = TaskKind::kClassification;
  run.name = "tiny";
  run.rounds = rounds;
  run.clients = kClients;
  for (const uint32_t examples : TinyExamples()) run.train_examples += examples;
  run.model = {.name = "by hand", .input_shape = {2}, .classes = 2};
  run.cohort = {.size = 4, .seed = 11};
  run.evaluation = {.every = 1, .chunk = 10};
  return run;
}

LayoutPtr TinyLayout() {
  static const LayoutPtr layout = *ParameterLayout::Make(
      {{.name = "0.weight", .shape = {1, 3}}, {.name = "0.bias", .shape = {1}}}, DType::kF32);
  return layout;
}

std::vector<aggregation::ChannelSpec> ChannelsOf(const RunPlan& run) {
  const auto rule = Registry().RuleOf(run);
  EXPECT_TRUE(rule.ok()) << rule.status();
  const auto schema = algorithms::MakeSchema(*rule, algorithms::SetupOf(run, TinyLayout()));
  EXPECT_TRUE(schema.ok()) << schema.status();
  return algorithms::UpChannels(*schema, Phase(0));
}

namespace {
// Calls f(j, element) for the four numbers and skips the gaps between them.
template <typename F>
void ForEachNumber(const ParameterLayout& layout, const F& f) {
  uint64_t j = 0;
  for (const LayoutEntry& entry : layout.entries()) {
    for (uint64_t i = 0; i < entry.size; ++i) f(j++, entry.offset + i);
  }
}
}  // namespace

FlatVector TinyModel() {
  FlatVector model(TinyLayout());
  ForEachNumber(*TinyLayout(), [&](uint64_t j, uint64_t at) {
    model.As<float>()[at] = static_cast<float>(j + 1);
  });
  return model;
}

std::vector<uint32_t> TinyExamples() {
  std::vector<uint32_t> examples;
  for (uint32_t k = 0; k < kClients; ++k) examples.push_back(3 + k);
  return examples;
}

FlatVector TinyDelta(ClientId client, ConstVectorView model) {
  FlatVector delta(TinyLayout());
  ForEachNumber(*TinyLayout(), [&](uint64_t j, uint64_t at) {
    const auto target = static_cast<float>(client.value + j);
    delta.As<float>()[at] = (target - model.As<float>()[at]) / 2;
  });
  return delta;
}

std::string Slurp(const std::string& path) {
  const auto text = ReadFile(path);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.ok() ? *text : "";
}

std::vector<std::string> Lines(const std::string& path) {
  const std::string text = Slurp(path);
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

log::History HistoryOf(const TemporaryFolder& folder) {
  const auto history = log::ReadHistory(folder / "rounds.log");
  EXPECT_TRUE(history.ok()) << history.status();
  return history.value_or(log::History());
}

std::vector<nlohmann::json> ContributionsOf(const TemporaryFolder& folder) {
  std::vector<nlohmann::json> lines;
  for (const std::string& line : Lines(folder / "contributions.jsonl"))
    lines.push_back(nlohmann::json::parse(line));
  return lines;
}

fleet::Blob CutTo(const fleet::Blob& blob, size_t size) {
  AlignedBuffer cut(size);
  std::ranges::copy(blob.bytes->bytes().first(size), cut.bytes().begin());
  return fleet::Blob::Of(std::move(cut));
}

const algorithms::Registry& Registry() {
  static const algorithms::Registry* const registry = [] {
    auto* made = new algorithms::Registry();
    made->AddBuiltin(algorithms::BuiltinAlgorithms());
    return made;
  }();
  return *registry;
}

Options TinyOptions(const std::string& run_dir, uint32_t rounds) {
  return {.run = TinyRun(rounds), .config = {.checkpoint_every = 1}, .run_dir = run_dir};
}

std::unique_ptr<Coordinator> StartTiny(Options options) {
  auto coordinator = Coordinator::Start(std::move(options), TinyModel(), Registry());
  EXPECT_TRUE(coordinator.ok()) << coordinator.status();
  return coordinator.ok() ? *std::move(coordinator) : nullptr;
}

FakeWorker::FakeWorker(fleet::FleetHandler& server, const std::string& name)
    : FakeWorker(fleet::MakeLocalLink(server), name) {}

FakeWorker::FakeWorker(std::unique_ptr<fleet::FleetLink> link, const std::string& name)
    : link_(std::move(link)) {
  identity_ = {.name = name,
               .incarnation = 7,
               .slots = 1,
               .profile = {.trainer = "fake", .instruction_set = "none", .libraries = "1"},
               .input_shape = {2},
               .classes = 2,
               .data_digest = DigestOf("tiny data"),
               .clients = kClients,
               .table = fleet::Blob::Of(fleet::ClientTable{.rows = TinyExamples()}.Encode()),
               .central_test_rows = kTestRows,
               .arrives = true};
  const algorithms::Setup setup = TinySetup();
  channels_ = (*(*Registry().Find("fedavg"))->schema(setup)).up;
}

absl::StatusOr<fleet::RegisterReply> FakeWorker::Register() {
  auto reply = link_->Register(identity_);
  if (reply.ok()) session_ = reply->session;
  return reply;
}

fleet::LeaseReply FakeWorker::Lease() {
  const auto reply = link_->Lease({.session = session_,
                                   .wanted = 1,
                                   .running = static_cast<uint32_t>(held_.size()),
                                   .wait = std::chrono::seconds(20)});
  EXPECT_TRUE(reply.ok()) << reply.status();
  if (!reply.ok()) return {.next = fleet::Next::kFinished};
  EXPECT_NE(reply->next, fleet::Next::kWait) << "the server had no work for 20 s";
  return *reply;
}

fleet::LeaseReply FakeWorker::Arrive(const fleet::TrainingLease& lease) {
  fleet::LeaseRequest request{.session = session_,
                              .running = static_cast<uint32_t>(lease.assignments.size()),
                              .wait = std::chrono::seconds(20)};
  for (const fleet::Assignment& one : lease.assignments)
    request.trained.push_back({one.client, one.fence});
  while (true) {
    const auto reply = link_->Lease(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    if (!reply.ok()) return {.next = fleet::Next::kFinished};
    if (reply->next != fleet::Next::kWait) return *reply;
  }
}

std::optional<fleet::CommitRequest> FakeWorker::Work() {
  fleet::CommitRequest request{.session = session_, .commit_id = ++commits_};
  held_.clear();
  while (true) {
    fleet::LeaseReply reply = Lease();
    if (reply.evaluation.has_value()) Evaluate(*reply.evaluation, request);
    if (reply.training.has_value() && reply.training->arrives) reply = Arrive(*reply.training);
    if (reply.training.has_value()) Train(*reply.training, request);
    switch (reply.next) {
      case fleet::Next::kCommit:
        break;
      case fleet::Next::kWork:
        // Like a real worker, commits at once if there are only evaluation results.
        if (reply.training.has_value() ? !reply.training->last : request.part.has_value()) continue;
        break;
      default:
        EXPECT_EQ(reply.next, fleet::Next::kFinished);
        return std::nullopt;
    }
    if (!request.part.has_value()) return request;
    std::vector<Summand> summands;
    for (const fleet::ClientRecord& record : request.part->included) {
      summands.push_back({record.attempt.client, record.weight, record.multiplicity});
    }
    request.part->sums = Sums(summands);
    return request;
  }
}

std::optional<fleet::CommitRequest> FakeWorker::WorkOnPart() {
  while (auto request = Work()) {
    if (request->part.has_value()) return request;
    EXPECT_EQ(Commit(*request).verdict, fleet::Verdict::kAccepted);
  }
  return std::nullopt;
}

void FakeWorker::Train(const fleet::TrainingLease& lease, fleet::CommitRequest& request) {
  order_ = {.max_weight = lease.max_weight,
            .total_weight = lease.total_weight,
            .max_multiplicity = lease.max_multiplicity,
            .total_multiplicity = lease.total_multiplicity};
  const auto broadcast = link_->Fetch(lease.broadcast.channels[0]);
  ASSERT_TRUE(broadcast.ok()) << broadcast.status();
  const LayoutPtr layouts[] = {TinyLayout()};
  const auto views = fleet::DecodeVectors(broadcast->bytes->bytes(), layouts);
  ASSERT_TRUE(views.ok()) << views.status();
  model_ = FlatVector::CopyOf(views->front(), TinyLayout());
  if (!request.part.has_value()) {
    request.part =
        fleet::Part{.round = lease.round, .phase = lease.phase, .broadcast = lease.broadcast.name};
  }
  for (const fleet::Assignment& assignment : lease.assignments) {
    const auto rows = static_cast<double>(assignment.client.value + 3);
    held_.push_back({assignment.client, assignment.fence});
    request.part->included.push_back(
        {.attempt = held_.back(),
         .multiplicity = assignment.multiplicity,
         .weight = assignment.weight,
         .examples = static_cast<uint32_t>(rows),
         .steps = 2,
         .sums = {rows, rows * 0.25 * static_cast<double>(assignment.client.value), rows / 2}});
  }
}

void FakeWorker::Evaluate(const fleet::EvaluationLease& lease, fleet::CommitRequest& request) {
  std::optional<double> of_model;
  if (accuracy_of != nullptr) {
    const auto blob = link_->Fetch(lease.model);
    ASSERT_TRUE(blob.ok()) << blob.status();
    const LayoutPtr layouts[] = {TinyLayout()};
    const auto views = fleet::DecodeVectors(blob->bytes->bytes(), layouts);
    ASSERT_TRUE(views.ok()) << views.status();
    of_model = accuracy_of(views->front());
  }
  for (const fleet::EvaluationTask& task : lease.tasks) {
    const auto rows = static_cast<double>(task.end - task.begin);
    const bool validates = task.kind == fleet::EvaluationKind::kCentralValidation;
    const double share = (validates ? val_accuracy : accuracy)(lease.round);
    const double right = rows * (validates ? share : of_model.value_or(share));
    request.evaluations.push_back(
        {.task = task, .round = lease.round, .sums = {rows, rows * 0.5, right}});
  }
}

fleet::Blob FakeWorker::Sums(const std::vector<Summand>& summands,
                             std::vector<aggregation::ChannelSpec> channels) const {
  const LayoutPtr layout = channels.front().layout;
  std::vector<FlatVector> zeros;  // on the other channels, such as a metric's
  for (size_t i = 1; i < channels.size(); ++i) zeros.emplace_back(channels[i].layout);
  auto sum = aggregation::ExactSum::Make(std::move(channels), order_);
  EXPECT_TRUE(sum.ok()) << sum.status();
  for (const Summand& summand : summands) {
    const FlatVector delta = layout->digest() == TinyLayout()->digest()
                                 ? TinyDelta(summand.client, model_.view())
                                 : FlatVector(layout);
    std::vector<ConstVectorView> values = {delta.view()};
    for (const FlatVector& zero : zeros) values.push_back(zero.view());
    const absl::Status added = sum->Add({.client = summand.client,
                                         .weight = summand.weight,
                                         .multiplicity = summand.multiplicity,
                                         .values = values});
    EXPECT_TRUE(added.ok()) << added;
  }
  return fleet::Blob::Of(sum->Encode());
}

fleet::CommitReply FakeWorker::Commit(const fleet::CommitRequest& request) {
  const auto reply = link_->Commit(request);
  EXPECT_TRUE(reply.ok()) << reply.status();
  return reply.ok() ? *reply : fleet::CommitReply{};
}

fleet::CommitReply FakeWorker::CommitApart(const fleet::CommitRequest& request) {
  if (!request.part.has_value() || request.part->included.size() < 2) return Commit(request);
  fleet::CommitReply reply;
  fleet::CommitRequest one = request;
  for (const fleet::ClientRecord& record : request.part->included) {
    one.part->included = {record};
    one.part->sums = Sums({{record.attempt.client, record.weight, record.multiplicity}});
    reply = Commit(one);
    if (reply.verdict != fleet::Verdict::kAccepted) return reply;
    one.commit_id = ++commits_;
    one.evaluations.clear();
    one.part->left_out.clear();
  }
  return reply;
}

void FakeWorker::GiveBackEverything() {
  EXPECT_TRUE(link_->Release({.session = session_, .attempts = held_}).ok());
}

void FakeWorker::RunThrough(uint32_t last_round) {
  while (const auto request = Work()) {
    const fleet::CommitReply reply = apart ? CommitApart(*request) : Commit(*request);
    ASSERT_EQ(reply.verdict, fleet::Verdict::kAccepted) << reply.reason;
    if (request->part.has_value() && request->part->round.value >= last_round) return;
  }
}

absl::Status StartError(Options options) {
  return Coordinator::Start(std::move(options), TinyModel(), Registry()).status();
}

void SendApart(FakeWorker& worker) {
  worker.apart = true;
  worker.accuracy_of = [](ConstVectorView model) { return model.As<float>()[0] / 100; };
}

Outcome Finish(Options options) {
  const bool apart = HasContributions(options.run.evaluation), resumes = options.resume;
  const auto coordinator = StartTiny(std::move(options));
  FakeWorker worker(*coordinator);
  if (resumes) ++worker.identity().incarnation;  // another process, which counts its commits from 1
  if (apart) SendApart(worker);
  EXPECT_TRUE(worker.Register().ok());
  worker.RunToEnd();
  const auto outcome = coordinator->Wait();
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  return outcome.ok() ? *outcome : Outcome{};
}

RunBytes::RunBytes(const std::string& run_dir)
    : metrics(Slurp(run_dir + "/metrics.jsonl")),
      model(Slurp(run_dir + "/model.safetensors")),
      digest(nlohmann::json::parse(Slurp(run_dir + "/summary.json"))["model_digest"]) {}

}  // namespace macaw::server::fixtures
