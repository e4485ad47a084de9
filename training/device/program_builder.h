#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "models/spec.h"
#include "training/device/ops.h"

namespace macaw::training::ondevice {

// Floats of an example between two layers, at most.
constexpr uint64_t kMostFloats = uint64_t{1} << 24;

// Makes operations of a model's layers: gives values and what is kept for the backward pass their
// places in the activations, and values their places in the gradients.
class ProgramBuilder {
 public:
  // Products are shaped for batches of about `batch` rows. `spec` must outlive the builder.
  ProgramBuilder(const models::ModelSpec& spec, uint32_t batch);

  // An error (kUnimplemented): the activations are too large.
  absl::Status Build();

  // After Build. In the order of the forward pass:
  std::vector<Op> Ops() const;
  const std::vector<Tap>& taps() const { return taps_; }
  const Value& input() const { return values_.front(); }
  const Value& output() const { return values_[at_]; }
  uint64_t activations() const { return activations_; }      // floats per row
  uint64_t gradients() const { return gradients_; }          // floats per row
  uint64_t scratch() const { return scratch_; }              // doubles per row
  uint64_t scratch_least() const { return scratch_least_; }  // doubles in all
  bool has_dropout() const { return dropout_base_ > 0; }
  bool has_embedding() const { return has_embedding_; }

 private:
  // An operation, with its values by number.
  struct Draft {
    Op op;
    size_t in = 0, in2 = kNone, out = 0;
    bool flat = false;  // it takes its input as a vector, whatever axes that was made with
    static constexpr size_t kNone = std::numeric_limits<size_t>::max();
  };

  size_t AddValue(uint64_t channels, uint64_t height, uint64_t width);
  size_t AddLike(size_t value);
  size_t AddVectors(uint64_t width);  // one for each of the current positions
  uint32_t Keep(uint64_t floats);
  bool TakeRelu();
  void Append(OpKind kind, Op op, size_t in, size_t out, bool relu = false);
  void AddLayer(const std::vector<models::Layer>& layers, size_t layer);

  // Each adds what a layer needs, with parameters from tensor_ on and buffers from buffer_ on.
  void Add(const models::Conv2d& conv);
  void Add(const models::Linear& linear);
  void Add(const models::MaxPool2d& pool);
  void Add(const models::AvgPool2d& pool);
  void Add(const models::GlobalAvgPool& pool);
  void Add(const models::Flatten& flatten);
  void Add(const models::Relu& relu);
  void Add(const models::Tanh& tanh);
  void Add(const models::Sigmoid& sigmoid);
  void Add(const models::Gelu& gelu);
  void Add(const models::Dropout& dropout);
  void Add(const models::GroupNorm& norm);
  void Add(const models::BatchNorm& norm);
  void Add(const models::LayerNorm& norm);
  void Add(const models::BasicBlock& block);
  void Add(const models::Embedding& embedding);
  void Add(const models::Lstm& lstm);
  void Add(const models::Gru& gru);
  void Add(const models::Positions& positions);
  void Add(const models::LastPosition& last);
  void Add(const models::MeanOfPositions& mean);
  void Add(const models::Attention& attention);
  void Add(const models::TransformerBlock& block);
  void Add(const models::Residual& residual);
  void Add(const models::Scale&) {}  // CompiledModel refuses it

  // The parts of layers. Those with an input as an argument return their output.
  void AddLinear(uint64_t inputs, uint64_t outputs, uint32_t weight, bool bias, bool relu);
  // With an adapter, whose A is tensor `a` and B the next one, if it has a rank.
  void AddAdapted(uint64_t inputs, uint64_t outputs, uint32_t weight, bool bias, bool relu,
                  const models::Adapter& adapter, uint32_t a);
  size_t AddConv(const models::Conv2d& conv, uint32_t weight, size_t in, bool relu);
  void AddPool(OpKind kind, uint32_t height, uint32_t width, uint32_t stride);
  size_t AddGroupNorm(uint32_t groups, uint32_t weight, size_t in, bool relu);
  size_t AddBatchNorm(int64_t channels, uint32_t weight, uint32_t buffer, size_t in, bool relu);
  void AddLayerNorm(uint32_t weight);
  void AddElements(OpKind kind, Op op = {});
  void AddDropout(double p);
  void AddSum(size_t with, bool relu, float factor = 1);
  void AddOneVector(OpKind kind);
  void AddRecurrent(OpKind kind, int64_t inputs, int64_t outputs, int64_t layers);
  // `projections`: the A of in_proj, if it has an adapter; that of out_proj lies behind.
  template <typename Layer>
  void AddAttention(const Layer& layer, double dropout, uint32_t weight, uint32_t projections);
  void PlaceGradients();

  const models::ModelSpec& spec_;
  const uint64_t rows_;        // of a batch, roughly
  std::vector<Value> values_;  // the first one is the input
  std::vector<Draft> drafts_;
  std::vector<Tap> taps_;
  uint64_t dropout_base_ = 0;
  uint64_t activations_ = 0, gradients_ = 0, scratch_ = 0, scratch_least_ = kNormLanes;
  size_t at_ = 0;           // the value that the next layer receives
  uint64_t positions_ = 1;  // the vectors that it consists of
  uint32_t tensor_ = 0, buffer_ = kNothing;
  const std::vector<models::Layer>* layers_ = nullptr;  // that are being added
  size_t layer_ = 0;                                    // the last one of them that was
  bool has_embedding_ = false;
  bool too_large_ = false;
};

}  // namespace macaw::training::ondevice
