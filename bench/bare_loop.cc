#include "bench/bare_loop.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/config/resolve.h"
#include "core/status.h"
#include "data/gather.h"
#include "models/one_thread.h"
#include "scheduler/cohort.h"
#include "training/batch_order.h"

namespace macaw::bench {
namespace {

using at::Tensor;
using Clock = std::chrono::steady_clock;

std::vector<Tensor> Views(FlatVector& vector) {
  std::vector<Tensor> views;
  for (const LayoutEntry& entry : vector.layout()->entries()) {
    views.push_back(at::from_blob(vector.As<float>().data() + entry.offset, entry.shape));
  }
  return views;
}

using Weights = std::vector<Tensor>;

Tensor Logistic(const Tensor& x, const Weights& w) { return at::linear(x, w[0], w[1]); }

Tensor SimpleCnn(const Tensor& x, const Weights& w) {
  Tensor y = at::relu(at::conv2d(x, w[0], w[1]));
  y = at::max_pool2d(at::relu(at::conv2d(y, w[2], w[3])), 2).flatten(1);
  return at::linear(at::relu(at::linear(y, w[4], w[5])), w[6], w[7]);
}

// Two blocks in each of four stages, group norms of two groups; the last three begin with a stride
// of 2 and a convolution beside the block.
Tensor ResNet18Gn(const Tensor& x, const Weights& w) {
  size_t next = 0;
  const auto conv_norm = [&](const Tensor& in, int64_t stride, int64_t padding) {
    const size_t first = std::exchange(next, next + 3);
    const Tensor y = at::conv2d(in, w[first], {}, stride, padding);
    return at::group_norm(y, 2, w[first + 1], w[first + 2], 1e-5, /*cudnn_enabled=*/false);
  };
  Tensor y = conv_norm(x, 1, 1).relu_();
  for (int block = 0; block < 8; ++block) {
    const int64_t stride = block > 0 && block % 2 == 0 ? 2 : 1;
    const Tensor in = y;
    y = conv_norm(in, stride, 1).relu_();
    y = conv_norm(y, 1, 1);
    y = at::relu(y + (stride == 2 ? conv_norm(in, stride, 0) : in));
  }
  y = at::adaptive_avg_pool2d(y, {1, 1}).flatten(1);
  return at::linear(y, w[next], w[next + 1]);
}

using Forward = Tensor (*)(const Tensor& x, const Weights& w);
Forward ForwardOf(const std::string& model) {
  if (model == "logistic") return Logistic;
  if (model == "simple_cnn") return SimpleCnn;
  return model == "resnet18_gn" ? ResNet18Gn : nullptr;
}

// The update and the zeroing for the next backward pass, in one pass over memory.
void Update(float lr, std::span<float> weights, std::span<float> gradient) {
  float* __restrict w = weights.data();
  float* __restrict g = gradient.data();
  for (size_t i = 0; i < weights.size(); ++i) {
    w[i] -= lr * g[i];
    g[i] = 0;
  }
}

// What one thread keeps from client to client.
class BareSlot {
 public:
  BareSlot(const cli::Config& config, const data::Dataset& dataset, const LayoutPtr& layout)
      : config_(config),
        dataset_(dataset),
        forward_(ForwardOf(config.run.model.name)),
        batch_(config.run.local.batch_size),
        gather_(dataset.info().feature_type, config.run.model.input_shape, config.run.transform,
                DType::kF32),
        values_(layout),
        gradient_(layout),
        sum_(layout),
        features_(batch_ * gather_.example_bytes()),
        labels_(batch_) {
    const std::vector<Tensor> values = Views(values_), gradients = Views(gradient_);
    for (size_t i = 0; i < values.size(); ++i) {
      Tensor leaf = at::empty(values[i].sizes()).set_requires_grad(true);
      leaf.set_data(values[i]);
      leaf.mutable_grad() = gradients[i];
      parameters_.push_back(leaf);
    }
    std::vector<int64_t> shape = {static_cast<int64_t>(batch_)};
    for (const int64_t extent : config.run.model.input_shape) shape.push_back(extent);
    x_ = at::from_blob(features_.bytes().data(), shape);
    y_ = at::from_blob(labels_.data(), {shape[0]}, at::kLong);
  }

  absl::StatusOr<uint64_t> Train(const FlatVector& model, Round round, ClientId client,
                                 float weight) {
    MACAW_ASSIGN_OR_RETURN(const data::Rows rows, dataset_.Client(client, data::Split::kTrain));
    const std::span<const std::byte> start = model.view().bytes;
    std::memcpy(values_.view().bytes.data(), start.data(), start.size());
    order_.Start({.seed = config_.run.seed, .round = round, .client = client}, 0, rows.size(),
                 config_.run.local);
    const size_t width = gather_.example_bytes();
    for (auto positions = order_.Next(); !positions.empty(); positions = order_.Next()) {
      const size_t count = positions.size();
      gather_.Gather(rows, positions, nullptr, features_.bytes().first(count * width),
                     std::span(labels_).first(count), {});
      const int64_t n = static_cast<int64_t>(count);
      const bool full = count == batch_;
      const Tensor x = full ? x_ : x_.narrow(0, 0, n), y = full ? y_ : y_.narrow(0, 0, n);
      at::cross_entropy_loss(forward_(x, parameters_), y).backward();
      Update(static_cast<float>(config_.run.local.lr), values_.As<float>(), gradient_.As<float>());
    }
    const std::span<float> sum = sum_.As<float>(), end = values_.As<float>();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += weight * end[i];
    return order_.steps();
  }

  // Adds what the slot has to `total` and starts afresh.
  void AddTo(std::span<float> total) {
    const std::span<float> sum = sum_.As<float>();
    for (size_t i = 0; i < sum.size(); ++i) total[i] += sum[i];
    std::fill(sum.begin(), sum.end(), 0.0f);
  }

 private:
  const cli::Config& config_;
  const data::Dataset& dataset_;
  const Forward forward_;
  const size_t batch_;
  const data::BatchGather gather_;
  FlatVector values_, gradient_, sum_;
  AlignedBuffer features_;
  std::vector<int64_t> labels_;
  std::vector<Tensor> parameters_;
  Tensor x_, y_;
  training::BatchOrder order_;
};

// The cohorts, round after round, the clients with the most examples first.
class Draws {
 public:
  static absl::StatusOr<Draws> Make(const cli::Config& config, const data::Dataset& dataset) {
    Draws draws;
    for (size_t i = 0; i < dataset.info().clients; ++i)
      draws.examples_.push_back(dataset.Examples(ClientId(i), data::Split::kTrain));
    MACAW_ASSIGN_OR_RETURN(draws.sampler_,
                           scheduler::MakeSampler(config.run.cohort, draws.examples_));
    return draws;
  }

  void Next() {
    cohort_ = sampler_->Sample(Round(++round_)).entries;
    std::stable_sort(cohort_.begin(), cohort_.end(),
                     [](const auto& a, const auto& b) { return a.load > b.load; });
    total_examples_ = 0;
    for (const auto& entry : cohort_) total_examples_ += examples_[entry.client.value];
  }

  uint32_t round() const { return round_; }  // 0 before the first
  size_t size() const { return cohort_.size(); }
  ClientId client(size_t i) const { return cohort_[i].client; }
  float share(size_t i) const {
    return static_cast<float>(examples_[client(i).value] / total_examples_);
  }

 private:
  std::vector<uint32_t> examples_;
  std::unique_ptr<scheduler::CohortSampler> sampler_;
  std::vector<scheduler::CohortEntry> cohort_;
  double total_examples_ = 0;
  uint32_t round_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<RoundTime>> RunBareLoop(const cli::Config& config,
                                                   const data::Dataset& dataset, uint32_t slots) {
  MACAW_ASSIGN_OR_RETURN(const models::ModelSpec spec, cli::SpecOf(config));
  if (ForwardOf(spec.name) == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("the bare loop has no model ", spec.name));
  }
  MACAW_ASSIGN_OR_RETURN(FlatVector model, cli::InitialWeights(config, spec));
  MACAW_ASSIGN_OR_RETURN(Draws draws, Draws::Make(config, dataset));

  std::vector<std::optional<BareSlot>> threads(slots);
  std::vector<RoundTime> times;
  std::atomic<size_t> next = 0;
  std::atomic<uint64_t> steps = 0;
  std::vector<absl::Status> errors(slots);
  Clock::time_point begin;
  const auto close = [&]() noexcept {
    if (draws.round() > 0) {
      const std::span<float> values = model.As<float>();
      std::fill(values.begin(), values.end(), 0.0f);
      for (auto& slot : threads) slot->AddTo(values);
      const Clock::time_point now = Clock::now();
      times.push_back({steps.exchange(0), std::chrono::duration<double>(now - begin).count()});
      begin = now;
    } else {
      begin = Clock::now();
    }
    next = 0;
    if (draws.round() < config.run.rounds) draws.Next();
  };
  std::barrier barrier(slots, close);
  const auto run = [&](uint32_t index) {
    models::UseOneThread();
    threads[index].emplace(config, dataset, spec.layout);
    for (uint32_t r = 1; r <= config.run.rounds; ++r) {
      barrier.arrive_and_wait();
      for (size_t i = next++; i < draws.size(); i = next++) {
        const auto taken = threads[index]->Train(model, Round(r), draws.client(i), draws.share(i));
        if (!taken.ok()) errors[index] = taken.status();
        steps += taken.value_or(0);
      }
    }
    barrier.arrive_and_wait();
  };
  {
    std::vector<std::jthread> running;
    for (uint32_t i = 0; i < slots; ++i) running.emplace_back(run, i);
  }
  for (const absl::Status& error : errors) MACAW_RETURN_IF_ERROR(error);
  return times;
}

}  // namespace macaw::bench
