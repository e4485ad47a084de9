#pragma once

#include <cstddef>
#include <cstdint>

#include "device/kernel.h"
#include "training/adam_numbers.h"
#include "training/api/pass_rows.h"

// What the kernel TrainClients is given: a model as a list of operations (Op), a client's work as a
// job (ClientJob). Plain data, the same on host and device; addresses are the device's.
namespace macaw::training::ondevice {

// Larger batches than kPassRows take several passes, whose gradients are added.

constexpr uint32_t kMostSums = 6;       // of a task (api/metrics.h)
constexpr uint32_t kNormLanes = 256;    // partial sums of the norm clip
constexpr uint32_t kMomentLanes = 8;    // partial sums of a channel's moments
constexpr uint32_t kBatchLanes = 32;    // of those over a batch
constexpr uint32_t kMostThreads = 256;  // that a product can use
constexpr uint32_t kTileFloats = 9216;  // of shared memory for a product's tiles
constexpr uint32_t kSharedBytes = kTileFloats * sizeof(float);

// Divides numbers below 2^31 by a constant: a multiplication and a shift.
struct Divisor {
  uint32_t value = 1;
  uint32_t multiplier = 0x80000001;
  uint32_t shift = 31;

  Divisor() = default;
  explicit Divisor(uint32_t d) : value(d) {
    uint32_t log = 0;
    while ((uint64_t{1} << log) < d) ++log;
    shift = 31 + log;
    multiplier = static_cast<uint32_t>((uint64_t{1} << shift) / d + 1);
  }
  MACAW_KERNEL uint32_t Quotient(uint32_t n) const {
    return static_cast<uint32_t>((uint64_t{n} * multiplier) >> shift);
  }
  MACAW_KERNEL uint32_t Remainder(uint32_t n) const { return n - Quotient(n) * value; }
};

// How a matrix product is divided among threads. A thread computes 4 × 4 elements of a tile of
// (4 · 2^rows) × (4 · 2^columns), or one of 2^lanes shares of them: lane l takes the products with
// index l, l + 2^lanes, … So each element is 2^lanes chains of Fma, which are added in order. It
// depends on the layer and on the run's batch size alone, because it decides bits.
struct GemmShape {
  uint32_t rows = 0, columns = 0, lanes = 0;  // logarithms
  uint32_t depth = 16;                        // products per tile of shared memory
};

// Where one element of a convolution's window lies.
struct alignas(16) Tap {
  int32_t offset =
      0;  // in the other side's example, from the window's corner (forward) or its channel
  int32_t weight = 0;    // in the weights of the first output or input channel
  int32_t y = 0, x = 0;  // from the window's corner
};

enum class OpKind : uint32_t {
  kLinear,
  kConv,
  kMaxPool,
  kAvgPool,
  kRelu,
  kTanh,
  kSigmoid,
  kDropout,
  kGelu,
  kGroupNorm,
  kBatchNorm,
  kLayerNorm,
  kAdd,        // in + factor · in2: the end of a residual block, or of an adapter
  kEmbedding,  // reads the rows' tokens
  kPositions,
  kLast,
  kMean,
  kLstm,
  kGru,
  kAttention,  // of queries, keys and values that a linear layer has made
};

constexpr uint32_t kNothing = 0xFFFFFFFF;

// A tensor of the model's layout.
struct Tensor {
  uint32_t offset = 0, size = 0;  // in floats
  uint32_t buffer = 0;            // whether it is one: no gradient reaches it
};

// One side of an operation. An example's floats; examples lie one after the other. A sequence of
// vectors has one channel, a line for each position.
struct Value {
  uint32_t at = 0;               // of the activations: times the rows of a pass
  uint32_t gradient = kNothing;  // of the gradients: likewise
  uint32_t size = 0;             // floats per example
  uint32_t channels = 1, height = 1, width = 1;
  // It is the positive part of something: whoever writes its gradient writes 0 where it is 0.
  uint32_t relu = 0;
};

struct Op {
  OpKind kind = OpKind::kLinear;
  Value in, in2, out;  // in2: of kAdd
  // The backward pass adds to the input's gradient, because another operation has written it.
  uint32_t adds = 0, adds2 = 0;
  uint32_t weight = kNothing, bias = kNothing;  // tensors
  uint32_t trained = 0;                         // tensors from `weight` on that gradients reach
  uint32_t buffer = kNothing;  // tensor of the running means; that of the variances is the next
  // Vectors per example, of an operation that treats each by itself or in turn.
  uint32_t positions = 1;
  uint32_t kernel_height = 0, kernel_width = 0, stride = 1;
  uint32_t forward_taps = 0, backward_taps = 0;  // their place in the table
  // Of the activations: winners of a max pool, moments of a norm, gates, attention's weights.
  uint32_t kept = 0;
  uint32_t cells = 0;  // likewise: an LSTM's cells, attention's weights that dropout has left
  uint32_t carry = 0;  // likewise: what goes from a position to the next, forward or back
  // Of the activations, for a convolution's input gradient by columns; kNothing: in one product.
  uint32_t columns = kNothing;
  uint32_t groups = 0;        // of channels; heads
  uint32_t causal = 0;        // whether a position sees no later ones
  uint32_t dropped = 0;       // of 2^32 words
  float factor = 1;           // of what dropout keeps; of an average; of a sum's second input
  uint64_t dropout_base = 0;  // elements per example of earlier dropout layers
  GemmShape forward, backward, gradient;
  GemmShape step_forward, step_backward, step_gradient;  // of a recurrent layer's own weights
  Divisor in_size, in_plane, in_width, out_size, out_plane, out_width;
  Divisor in_vector, out_vector;  // floats of one of the positions
  Divisor stride_by;
};

// What is the same for all clients of a run.
struct Program {
  const Op* ops = nullptr;
  const Tap* taps = nullptr;
  const Tensor* tensors = nullptr;
  const float* scale = nullptr;  // per channel: x' = x · scale + shift
  const float* shift = nullptr;
  uint32_t op_count = 0, tensor_count = 0;
  uint32_t vector_size = 0;             // floats of the layout
  uint32_t activation_size = 0;         // floats per row of a pass
  uint32_t gradient_size = 0;           // likewise
  uint32_t scratch_size = 0;            // doubles per row of a pass
  uint32_t scratch_least = kNormLanes;  // in all
  uint32_t task = 0;                    // TaskKind
  uint32_t outputs = 0;
  uint32_t positions = 1;       // that have outputs, per row
  uint32_t moves_buffers = 0;   // whether batch norm takes the statistics of batches
  uint32_t tokens = 0;          // whether features are those
  uint32_t bytes_features = 0;  // whether features are stored bytes, not floats
  uint32_t identity = 0;        // whether they are used as they are
  uint32_t channels_each = 0;   // whether channels have scales of their own
  uint32_t height = 1, width = 1;
  Value input, logits;
  Divisor elements, plane, line, classes;
};

// A batch of a client.
struct JobStep {
  uint32_t begin = 0;  // in the job's order
  uint32_t rows = 0;
  double divisor = 1;     // of the mean (Mean::divisor)
  double mean_rows = 1;   // Mean::rows: of positions with a label
  uint32_t key[2] = {};   // Philox's, of the dropout words
  uint32_t high[2] = {};  // the upper half of its counter
};

struct JobTerm {
  const float* point = nullptr;
  float factor = 1;
};

enum class JobKind : uint32_t { kTrain, kGradient, kLoss };

// A row is moved by (down, right) − pad pixels and mirrored: down | right << 15 | mirror << 30.
using MoveCode = uint32_t;
// What a moved row shows where the stored one ends: PadMode of plan/transform.h, with its numbers.
enum class Padding : uint32_t { kZeros, kReflect, kEdge };

// A client's stage.
struct ClientJob {
  JobKind kind = JobKind::kTrain;
  uint32_t steps = 0;
  const JobStep* step = nullptr;
  const uint32_t* order = nullptr;  // positions of rows; null: as they are stored
  const MoveCode* moves = nullptr;  // parallel to `order`; null: rows stay as they are
  uint32_t pad = 0;                 // of the moves
  Padding padding = Padding::kZeros;
  const std::byte* features = nullptr;
  const int32_t* classes = nullptr;  // per output position; below 0: it has none
  const float* targets = nullptr;
  const int32_t* lengths = nullptr;  // positions in use, 1 at least; null: all
  uint32_t pass_rows = kPassRows;    // at most
  const float* start = nullptr;
  float* weights = nullptr;   // kTrain: its end; else null
  float* gradient = nullptr;  // kGradient: its end; kTrain: null where no step needs it whole
  float* momentum = nullptr;  // null: none; Adam's first moment
  float* second = nullptr;    // Adam's second moment
  const AdamNumbers<float>* adam = nullptr;  // per step; null: SGD
  const float* anchor = nullptr;
  const float* v = nullptr;  // null: none, or the sum of the terms
  float* v_sum = nullptr;    // where it is written
  const JobTerm* terms = nullptr;
  uint32_t term_count = 0;
  const uint8_t* trainable = nullptr;  // per tensor; null: all
  uint32_t lowest = 0;                 // the first operation with something to train
  float lr = 0, rho = 0, mu = 0;
  float decay = 0;  // that is added to the gradient
  uint32_t nesterov = 0;
  uint32_t has_dropout = 0;
  double clip_norm = 0;         // 0: none
  uint32_t clip_corrected = 0;  // whether the clip comes behind the correction
  const double* class_weights = nullptr;
  double smoothing = 0;
  double weight_sum = 0;        // of all classes
  std::byte* memory = nullptr;  // activations, gradients of them, scratch
  double* sums = nullptr;       // kMostSums
  float* outputs = nullptr;     // kLoss: of every row of its step; null: nobody needs them
};

// How far a job is: the next pass begins with this row of this step. All else that a job leaves
// from one launch to the next is in its vectors and sums.
struct JobCursor {
  uint32_t step = 0, row = 0;
  uint32_t passes = 0;  // done so far
  uint32_t unused = 0;
};

struct TrainArgs {
  Program program;
  const ClientJob* jobs = nullptr;
  JobCursor* cursors = nullptr;  // of the jobs; all zero before the first launch
  uint32_t count = 0;
  uint32_t pass_rows = 0;  // the most of any job
  // A job gets passes until they are worth so many rows, and at least one; a pass is worth its rows
  // and `step_rows` more. The bits do not depend on it.
  uint32_t most_rows = 0xFFFFFFFF;
  uint32_t step_rows = 0;
};

constexpr device::Kernel<TrainArgs> kTrainClients = {"training.train_clients"};

// The parts of ClientJob::memory, in bytes.
struct JobMemory {
  size_t gradients = 0, scratch = 0, total = 0;
  MACAW_KERNEL JobMemory(const Program& program, uint32_t rows) {
    const size_t alignment = 256;
    gradients = (size_t{program.activation_size} * rows * sizeof(float) + alignment - 1) /
                alignment * alignment;
    scratch = gradients + (size_t{program.gradient_size} * rows * sizeof(float) + alignment - 1) /
                              alignment * alignment;
    size_t doubles = size_t{program.scratch_size} * rows;
    if (doubles < program.scratch_least) doubles = program.scratch_least;
    total = scratch + (doubles * sizeof(double) + alignment - 1) / alignment * alignment;
  }
};

}  // namespace macaw::training::ondevice
