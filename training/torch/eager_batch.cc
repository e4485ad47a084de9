#include "training/torch/eager_batch.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "core/status.h"
#include "training/sequences.h"
#include "training/torch/precision.h"

namespace macaw::training {
namespace {

// Of a mean over so many rows. One over none is not a number.
double SumOf(double mean, double rows) { return rows > 0 ? mean * rows : 0; }

at::ScalarType TypeOf(DType dtype) { return dtype == DType::kF32 ? at::kFloat : at::kDouble; }

template <typename T>
std::span<const T> ValuesOf(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<T>(), static_cast<size_t>(tensor.numel())};
}

template <typename T>
std::span<T> Typed(std::span<std::byte> bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

bool MayDrop(const models::ModelSpec& spec) {
  return spec.is_script() || std::ranges::any_of(spec.layers, models::DrawsMasks);
}

}  // namespace

EagerBatch::EagerBatch(const models::Network& network, const data::BatchGather& gather,
                       TaskKind task, DType dtype, WorkCounter* work, at::Device device,
                       bool autocast)
    : network_(network),
      gather_(gather),
      task_(task),
      dtype_(dtype),
      device_(device),
      autocast_(autocast),
      work_(work),
      has_dropout_(MayDrop(network.spec())) {}

void EagerBatch::Reserve(size_t rows) {
  if (rows == rows_) return;
  const models::ModelSpec& spec = network_.spec();
  const size_t outputs = static_cast<size_t>(spec.outputs);
  const size_t positions = std::max<size_t>(1, static_cast<size_t>(spec.positions));
  const size_t width = SizeOf(dtype_);
  if (rows > capacity_) {
    features_ = AlignedBuffer(rows * gather_.example_bytes());
    targets_ = AlignedBuffer(rows * width);
    logit_gradient_ = AlignedBuffer(rows * positions * outputs * width);
    capacity_ = rows;
  }
  rows_ = rows;
  const bool labelled = task_ != TaskKind::kRegression && task_ != TaskKind::kReconstruction;
  classes_.resize(labelled ? rows * positions : 0);
  row_classes_.resize(task_ == TaskKind::kNextToken ? rows : 0);
  const auto options = at::dtype(TypeOf(dtype_));
  std::vector<int64_t> shape = {static_cast<int64_t>(rows)};
  for (const int64_t extent : spec.input_shape) shape.push_back(extent);
  features_tensor_ = at::from_blob(features_.bytes().data(), shape,
                                   spec.takes_tokens() ? at::dtype(at::kInt) : options);
  input_ = features_tensor_;
  shape = {static_cast<int64_t>(rows)};
  if (spec.positions > 0) shape.push_back(spec.positions);
  shape.push_back(spec.outputs);
  logit_gradient_tensor_ = at::from_blob(logit_gradient_.bytes().data(), shape, options);
}

void EagerBatch::TakeLengths(const data::Rows& rows, std::span<const uint32_t> positions) {
  lengths_.clear();
  if (rows.block.lengths == nullptr) return;
  for (const uint32_t position : positions)
    lengths_.push_back(rows.block.lengths[rows.at(position)]);
}

void EagerBatch::LabelAllPositions(std::span<const int32_t> tokens) {
  const auto length = static_cast<size_t>(network_.spec().positions);
  for (size_t row = 0; row < rows_; ++row) {
    const size_t used = lengths_.empty() ? length : static_cast<size_t>(lengths_[row]);
    LabelPositions(tokens.subspan(row * length, length), used, row_classes_[row],
                   classes_.data() + row * length);
  }
}

absl::Status EagerBatch::Load(const data::Rows& rows, std::span<const uint32_t> positions,
                              const data::AugmentKey* augment, const Objective& objective) {
  if (work_ != nullptr) work_->Count();
  Reserve(positions.size());
  const bool regression = task_ == TaskKind::kRegression;
  const bool sequences = task_ == TaskKind::kNextToken;
  gather_.Gather(rows, positions, augment, features_.bytes().first(rows_ * gather_.example_bytes()),
                 sequences ? row_classes_ : classes_,
                 targets_.bytes().first(regression ? rows_ * SizeOf(dtype_) : 0));
  if (network_.spec().takes_tokens()) {
    const auto tokens =
        std::span<const int32_t>(features_.As<int32_t>().first(rows_ * gather_.example_elements()));
    MACAW_RETURN_IF_ERROR(CheckTokens(network_.spec(), tokens));
    TakeLengths(rows, positions);
    if (sequences) LabelAllPositions(tokens);
  } else if (network_.spec().takes_sequences()) {
    TakeLengths(rows, positions);
  }
  // An empty sequence is one position of padding: a layer has something to take a mean of.
  for (int64_t& length : lengths_) length = std::max<int64_t>(length, 1);
  MACAW_RETURN_IF_ERROR(objective.CheckClasses(classes_));
  if (!device_.is_cpu()) Send();
  return absl::OkStatus();
}

void EagerBatch::Send() {
  input_ = features_tensor_.to(device_);
  labels_ = HostLabels().to(device_);
  device_lengths_ = at::Tensor();  // Lengths() gives the host's
  if (!lengths_.empty()) device_lengths_ = Lengths().to(device_);
}

Mean EagerBatch::MeanOf(const Objective& objective) const {
  Labels<float> labels{.classes = classes_};
  if (!classes_.empty()) return objective.MeanOf(labels);
  return {.divisor = static_cast<double>(rows_), .rows = static_cast<double>(rows_)};
}

void EagerBatch::RateOutputs(const at::Tensor& logits, const Objective& objective, const Mean& mean,
                             std::span<std::byte> gradient, std::span<double> sums) {
  at::Tensor values = logits.to(at::kCPU).contiguous();
  if (!objective.among().empty()) values = values.detach().clone();
  DispatchDType(dtype_, [&]<typename T>(T) {
    Labels<T> labels{.classes = classes_};
    if (task_ == TaskKind::kRegression) labels.targets = targets_.As<T>().first(rows_);
    if (task_ == TaskKind::kReconstruction)
      labels.targets = features_.As<T>().first(rows_ * gather_.example_elements());
    if (!objective.among().empty()) {
      objective.ClearAbsent(std::span(values.mutable_data_ptr<T>(), size_t(values.numel())));
    }
    objective.Rate(ValuesOf<T>(values), labels, mean, Typed<T>(gradient), sums);
    objective.ClearAbsent(Typed<T>(gradient));
  });
}

void EagerBatch::Differentiate(Replica& replica, const StageLoss& loss, const Mean& mean,
                               const StreamKey* dropout, models::Statistics statistics,
                               MetricSums& sums) {
  const at::AutoGradMode with_graph(true);
  std::optional<RandomStream> masks;
  if (has_dropout_ && dropout != nullptr) masks.emplace(*dropout);
  const models::Outputs outputs =
      Forward(replica.parameters(), masks ? &*masks : nullptr, statistics);

  const bool own_loss = loss.hooks != nullptr && loss.hooks->loss;
  if (!own_loss) {
    // The objective's gradient is computed by hand, and autograd starts at the outputs. That needs
    // fewer nodes and gives losses in double.
    std::vector<at::Tensor> roots = {outputs.logits}, gradients(1);
    if (device_.is_cpu()) {
      RateOutputs(outputs.logits, *loss.objective, mean,
                  logit_gradient_.bytes().first(
                      static_cast<size_t>(logit_gradient_tensor_.numel()) * SizeOf(dtype_)),
                  sums);
      gradients[0] = logit_gradient_tensor_;
    } else {
      roots[0] = on_device_.Rate(*loss.objective, outputs.logits, labels_, mean);
    }
    if (loss.hooks != nullptr && loss.hooks->representations) {
      at::Tensor gradient;
      sums.at(1) += RateRepresentations(outputs.representation, loss, mean.rows, &gradient);
      if (gradient.defined() && outputs.representation.requires_grad()) {
        roots.push_back(outputs.representation);
        gradients.push_back(gradient);
      }
    }
    if (roots[0].requires_grad()) torch::autograd::backward(roots, gradients);
    return;
  }
  step_ = Step{loss, dropout};
  const at::Tensor scalar = loss.hooks->loss(outputs, *this, replica.parameters());
  const double value = scalar.item<double>();
  std::vector<double> metrics(sums.size());
  RateOutputs(outputs.logits.detach(), *loss.objective, mean, {}, metrics);
  const double rows = MeanOf(*loss.objective).rows;
  metrics[1] = SumOf(value, rows);
  AddTo(sums, metrics);
  // A hook's loss is a mean over the batch, while `mean` may be over more rows.
  if (rows > 0 && scalar.requires_grad()) torch::autograd::backward({scalar * (rows / mean.rows)});
  step_.reset();
}

void EagerBatch::Rate(std::span<const at::Tensor> parameters, const StageLoss& loss,
                      const Mean& mean, MetricSums& sums) {
  const at::NoGradGuard without_graph;
  const models::Outputs outputs = Forward(parameters, nullptr, models::Statistics::kRunning);
  std::vector<double> metrics(sums.size());
  RateOutputs(outputs.logits, *loss.objective, mean, {}, metrics);
  if (loss.hooks != nullptr && loss.hooks->loss) {
    step_ = Step{loss};
    metrics[1] = SumOf(loss.hooks->loss(outputs, *this, parameters).item<double>(),
                       MeanOf(*loss.objective).rows);
    step_.reset();
  }
  if (loss.hooks != nullptr && loss.hooks->representations)
    metrics[1] += RateRepresentations(outputs.representation, loss, mean.rows, nullptr);
  AddTo(sums, metrics);
}

double EagerBatch::RateRepresentations(const at::Tensor& representation, const StageLoss& loss,
                                       double rows, at::Tensor* gradient) const {
  const at::Tensor own = RowsOf(representation);
  std::vector<at::Tensor> at_references;
  for (const std::vector<at::Tensor>& parameters : *loss.references) {
    const at::NoGradGuard without_graph;
    at_references.push_back(
        RowsOf(Forward(parameters, nullptr, models::Statistics::kRunning).representation));
  }
  Representations z{
      .rows = rows_, .width = static_cast<size_t>(own.size(1)), .own = ValuesOf<double>(own)};
  for (const at::Tensor& reference : at_references)
    z.references.push_back(ValuesOf<double>(reference));
  const at::Tensor by_hand = at::zeros_like(own);
  const std::span<double> slope(by_hand.mutable_data_ptr<double>(),
                                static_cast<size_t>(by_hand.numel()));
  const double sum = loss.hooks->representations(z, slope);
  if (gradient != nullptr && rows > 0 &&
      std::ranges::any_of(slope, [](double g) { return g != 0; }))
    *gradient = (by_hand / rows).to(representation.options()).reshape(representation.sizes());
  return sum;
}

at::Tensor EagerBatch::RowsOf(const at::Tensor& representation) const {
  if (!representation.defined()) {
    throw std::invalid_argument(
        "the rule's loss is on representations, and the model returns logits alone: let the "
        "scripted module return (logits, representation)");
  }
  const auto rows = static_cast<int64_t>(rows_);
  if (representation.dim() == 0 || representation.size(0) != rows) {
    throw std::invalid_argument("the model's representation has no row for each example");
  }
  return representation.detach().to(at::kCPU, at::kDouble).reshape({rows, -1}).contiguous();
}

void EagerBatch::Correct(Replica& replica, const StageLoss& loss, const StreamKey* dropout) {
  step_ = Step{loss, dropout};
  loss.hooks->correct(replica.values(), replica.gradient(), *this);
  replica.PutGradient();
  step_.reset();
}

models::Outputs EagerBatch::Forward(std::span<const at::Tensor> parameters, RandomStream* dropout,
                                    models::Statistics statistics) const {
  models::Outputs outputs;
  {
    const Autocast autocast(autocast_, device_);
    outputs = network_.Forward(input_, parameters, dropout, statistics, Lengths());
  }
  if (autocast_) outputs.logits = outputs.logits.to(TypeOf(dtype_));
  return outputs;
}

at::Tensor EagerBatch::Lengths() const {
  if (device_lengths_.defined()) return device_lengths_;
  if (lengths_.empty()) return {};
  // LibTorch has no tensor over constant memory; the network only reads it.
  return at::from_blob(const_cast<int64_t*>(lengths_.data()), {static_cast<int64_t>(rows_)},
                       at::dtype(at::kLong));
}

at::Tensor EagerBatch::HostLabels() const {
  // LibTorch has no tensor over constant memory. A hook that writes to its labels affects this
  // batch only.
  if (task_ == TaskKind::kReconstruction) return features_tensor_.flatten(1);
  void* const data = classes_.empty() ? const_cast<std::byte*>(targets_.bytes().data())
                                      : static_cast<void*>(const_cast<int64_t*>(classes_.data()));
  std::vector<int64_t> shape = {static_cast<int64_t>(rows_)};
  if (network_.spec().positions > 0) shape.push_back(network_.spec().positions);
  return at::from_blob(data, shape, at::dtype(classes_.empty() ? TypeOf(dtype_) : at::kLong));
}

ConstVectorView EagerBatch::GradientAt(ConstVectorView point) {
  return GradientBy(point, models::Statistics::kBatch);
}

ConstVectorView EagerBatch::GradientAtOwn(VectorView point) {
  const ConstVectorView gradient = GradientBy(point, models::Statistics::kBatchAndMove);
  if (!network_.spec().has_buffers()) return gradient;
  const std::vector<bool>* const trainable = step_->loss.trainable;
  const std::vector<LayoutEntry>& entries = point.layout->entries();
  const ConstVectorView moved = other_point_->values();
  const size_t width = SizeOf(dtype_);
  for (size_t e = 0; e < entries.size(); ++e) {
    if (entries[e].group != Group::kBuffer || (trainable != nullptr && !(*trainable)[e])) continue;
    std::memcpy(point.bytes.data() + entries[e].offset * width,
                moved.bytes.data() + entries[e].offset * width, entries[e].size * width);
  }
  return gradient;
}

ConstVectorView EagerBatch::GradientBy(ConstVectorView point, models::Statistics statistics) {
  if (point.bytes.size() != network_.spec().layout->bytes()) {
    throw std::invalid_argument("a hook asked for the gradient at a vector of another layout");
  }
  if (!other_point_) other_point_.emplace(network_.spec().layout, device_);
  const Step step = *step_;
  other_point_->Load(point);
  other_point_->SetTrainable(step.loss.trainable);
  other_point_->ZeroGradient();
  MetricSums unused(step.loss.objective->metrics());
  TensorObjective collected;  // the sums of the step itself
  std::swap(collected, on_device_);
  Differentiate(*other_point_, step.loss, MeanOf(*step.loss.objective), step.dropout, statistics,
                unused);
  std::swap(collected, on_device_);
  step_ = step;
  return other_point_->gradient();
}

models::Outputs EagerBatch::OutputsAt(ConstVectorView point) {
  const at::NoGradGuard without_graph;
  const at::Tensor flat = FlatTensorAnywhere(point).to(device_);
  return Forward(models::ViewsOf(flat, *point.layout), nullptr, models::Statistics::kRunning);
}

}  // namespace macaw::training
