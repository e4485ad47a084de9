#include "cli/simulate/model_step.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/process/programs.h"
#include "core/named_file.h"
#include "core/safetensors.h"
#include "core/status.h"
#include "data/gather.h"
#include "models/script.h"
#include "training/backends.h"

namespace macaw::cli {
namespace {

constexpr uint64_t kBatchRows = 8;  // few, so that rounding does not hide or feign a difference
constexpr double kRate = 0.5;

// Some rows of a client, chosen by their places in the data's block.
struct Batch {
  std::vector<uint32_t> places;
  data::Rows rows;  // refers to `places`

  void Choose(const data::Rows& all, std::span<const uint32_t> positions) {
    for (const uint32_t position : positions)
      places.push_back(static_cast<uint32_t>(all.at(position)));
    rows = all;
    rows.index = places;
    rows.noise = {};
    rows.owners = {};
  }
};

// Rows of a client, and where those without padding are: layers of sequences know lengths, and a
// module of PyTorch does not.
struct WholeRows {
  data::Rows rows;
  std::vector<uint32_t> places;
};

WholeRows WholeRowsOf(data::Rows rows, int64_t length) {
  std::vector<uint32_t> places;
  for (uint64_t i = 0; i < rows.size() && places.size() < 2 * kBatchRows; ++i) {
    const int32_t* const lengths = rows.block.lengths;
    if (lengths == nullptr || lengths[rows.at(i)] == length)
      places.push_back(static_cast<uint32_t>(i));
  }
  return {std::move(rows), std::move(places)};
}

// The training rows of the first client that has two without padding; batch norm needs more than
// one row.
absl::StatusOr<std::optional<WholeRows>> RowsFor(const data::Dataset& dataset, int64_t length) {
  for (uint64_t client = 0; client < dataset.info().clients; ++client) {
    if (dataset.Examples(ClientId(client), data::Split::kTrain) < 2) continue;
    MACAW_ASSIGN_OR_RETURN(data::Rows rows, dataset.Client(ClientId(client), data::Split::kTrain));
    WholeRows whole = WholeRowsOf(std::move(rows), length);
    if (whole.places.size() >= 2) return std::optional(std::move(whole));
  }
  return std::nullopt;
}

// The tensors of the file, with the bytes behind them.
class StepFile {
 public:
  template <typename T>
  void Add(const std::string& name, const char* dtype, std::vector<uint64_t> shape,
           const std::vector<T>& values) {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
    kept_.push_back(std::make_unique<std::vector<std::byte>>(bytes.begin(), bytes.end()));
    tensors_.push_back(
        {.name = name, .dtype = dtype, .shape = std::move(shape), .bytes = *kept_.back()});
  }
  void Add(const std::string& prefix, ConstVectorView vector) {
    const size_t width = SizeOf(vector.dtype());
    for (const LayoutEntry& entry : vector.layout->entries()) {
      const auto bytes = vector.bytes.subspan(entry.offset * width, entry.size * width);
      Add(absl::StrCat(prefix, "/", entry.name), width == 4 ? "F32" : "F64",
          {entry.shape.begin(), entry.shape.end()},
          std::vector<std::byte>(bytes.begin(), bytes.end()));
    }
  }
  absl::Status Write(const std::string& path,
                     const std::map<std::string, std::string>& metadata) const {
    return WriteNamedFile(
        path, [&](const std::string& here) { return WriteSafetensors(here, tensors_, metadata); });
  }

 private:
  std::vector<std::unique_ptr<std::vector<std::byte>>> kept_;
  std::vector<TensorToWrite> tensors_;
};

void AddBatch(const std::string& number, const Batch& batch, const training::TrainerSetup& setup,
              StepFile& file) {
  const data::BatchGather gather(setup.feature_type, setup.spec.input_shape, setup.transform,
                                 setup.dtype);
  const uint64_t count = batch.rows.size();
  std::vector<std::byte> features(count * gather.example_bytes());
  const bool numbers = setup.task == TaskKind::kRegression;
  std::vector<int64_t> classes(numbers ? 0 : count);
  std::vector<std::byte> targets(numbers ? count * SizeOf(setup.dtype) : 0);
  std::vector<uint32_t> positions(count);
  std::iota(positions.begin(), positions.end(), 0);
  gather.Gather(batch.rows, positions, /*augment=*/nullptr, features, classes, targets);
  const char* const real = setup.dtype == DType::kF32 ? "F32" : "F64";
  std::vector<uint64_t> shape = {count};
  shape.insert(shape.end(), setup.spec.input_shape.begin(), setup.spec.input_shape.end());
  const bool tokens = setup.feature_type == data::FeatureType::kI32;
  file.Add(absl::StrCat("features.", number), tokens ? "I32" : real, shape, features);
  const std::string labels = absl::StrCat("labels.", number);
  numbers ? file.Add(labels, real, {count}, targets) : file.Add(labels, "I64", {count}, classes);
}

// The tensors that the run trains; null: all.
std::shared_ptr<const std::vector<bool>> TrainableOf(const models::ModelSpec& spec) {
  if (spec.frozen.empty()) return nullptr;
  std::vector<bool> trainable = spec.frozen;
  trainable.flip();
  return std::make_shared<const std::vector<bool>>(std::move(trainable));
}

training::Stage StageOf(const models::ModelSpec& spec, training::StageKind kind,
                        training::Point start, data::Split rows) {
  training::Stage stage{.kind = kind, .start = std::move(start), .rows = rows};
  stage.trainable = TrainableOf(spec);
  stage.local.batch_size = 0;  // all rows
  stage.local.lr = kRate;
  return stage;
}

training::TrainerSetup SetupFor(const Config& config, const models::ModelSpec& spec,
                                const data::DatasetInfo& info) {
  auto setup = training::TrainerSetup::Of(config.run, spec, info.feature_type);
  setup.backend = config.node.workers.backend;
  setup.transform.pad_crop = 0;
  setup.transform.flip = false;
  setup.transform.client_noise = 0;
  return setup;
}

// The first back end of `setup`, that of the run's steps, at plain SGD.
absl::StatusOr<std::unique_ptr<training::LocalTrainer>> TrainerFor(
    const training::TrainerSetup& setup) {
  MACAW_ASSIGN_OR_RETURN(const std::string programs, ProgramFolder());
  training::Backends backends(training::Backends::FolderBeside(programs));
  MACAW_RETURN_IF_ERROR(backends.CheckFor(setup));
  MACAW_ASSIGN_OR_RETURN(const std::vector<std::string> names, training::BackendsFor(setup));
  MACAW_ASSIGN_OR_RETURN(const training::Backend* const backend, backends.Find(names.front()));
  return backend->MakeTrainer(setup);
}

}  // namespace

absl::Status WriteModelStep(const Config& config, models::ModelSpec spec, const FlatVector& start,
                            const data::Dataset& dataset, const std::string& out) {
  const data::DatasetInfo& info = dataset.info();
  StepFile file;
  std::map<std::string, std::string> metadata = {{"task", Name(config.run.task)},
                                                 {"dtype", std::string(Name(config.run.dtype))}};
  const auto skip = [&](const std::string& why) {
    metadata["skipped"] = why;
    return StepFile().Write(out, metadata);
  };
  if (info.declared || config.node.workers.backend.name == training::kProcessBackend)
    return skip("a program of the owner's trains the rows");
  if (config.run.model.name == models::kScriptName) {
    MACAW_ASSIGN_OR_RETURN(
        spec.script, models::ReadScript(config.node.model_script, config.run.model.script_digest));
  }
  const int64_t length = spec.input_shape.empty() ? 0 : spec.input_shape[0];
  MACAW_ASSIGN_OR_RETURN(const std::optional<WholeRows> found, RowsFor(dataset, length));
  if (!found.has_value()) return skip("no client has two training rows without padding");
  const std::span<const uint32_t> whole = found->places;

  const auto first = whole.first(std::min<size_t>(kBatchRows, whole.size()));
  const bool again = whole.size() < first.size() + 2;
  Batch batches[2];
  batches[0].Choose(found->rows, first);
  batches[1].Choose(found->rows, again ? first : whole.subspan(first.size()));

  const training::TrainerSetup setup = SetupFor(config, spec, info);
  MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<training::LocalTrainer> trainer, TrainerFor(setup));
  for (const int i : {0, 1}) AddBatch(absl::StrCat(i), batches[i], setup, file);
  std::vector<double> losses;
  for (uint64_t row = 0; row < first.size(); ++row) {
    MACAW_ASSIGN_OR_RETURN(const training::MetricSums sums,
                           trainer->Evaluate(start.view(), batches[0].rows, row, row + 1, 1));
    losses.push_back(sums[1] / sums[0]);
  }
  file.Add("loss", "F64", {losses.size()}, losses);

  training::ClientTask task;
  task.seed = config.run.seed;
  task.round = Round(1);
  task.train = batches[0].rows;
  task.validation = batches[1].rows;
  const ConstVectorView origin = start.view();
  using training::StageKind;
  training::LocalPlan plan;
  plan.stages = {StageOf(spec, StageKind::kGradient, origin, data::Split::kTrain),
                 StageOf(spec, StageKind::kTrain, origin, data::Split::kTrain),
                 StageOf(spec, StageKind::kTrain, training::StageEnd{1}, data::Split::kValidation)};
  MACAW_ASSIGN_OR_RETURN(const std::vector<training::StageOutcome> outcomes,
                         trainer->Run(plan, task));
  const char* const prefixes[] = {"gradient", "first", "second"};
  for (size_t i = 0; i < outcomes.size(); ++i) {
    MACAW_RETURN_IF_ERROR(outcomes[i].end.Fetch());
    file.Add(prefixes[i], outcomes[i].end.view());
  }
  metadata["backend"] = trainer->name();
  metadata["lr"] = absl::StrCat(kRate);
  const int random = std::ranges::any_of(spec.layers, models::DrawsMasks) ? 1 : 0;
  metadata["random"] = absl::StrCat(random);
  metadata["frozen_statistics"] = absl::StrCat(spec.move_buffers ? 0 : 1);
  return file.Write(out, metadata);
}

}  // namespace macaw::cli
