#include "models/random_ops.h"

#include <ATen/ATen.h>

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "models/dropout_mask.h"
#include "models/script_random.h"

namespace macaw::models {
namespace {

using at::Tensor;
using torch::jit::Stack;

thread_local RandomStream* masks_from = nullptr;

// ---- dropout

enum class Of { kNumbers, kChannels };

// A mask of 0 and 1/(1−p) that `x` can be multiplied by.
Tensor MaskFor(const Tensor& x, double p, Of what) {
  if (what == Of::kNumbers) return DropoutMask(x, p, *masks_from);
  TORCH_CHECK(x.dim() >= 2, "dropout of channels needs rows of channels");
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[0] = x.size(0);
  shape[1] = x.size(1);
  return DropoutMask(at::empty(shape, x.options().requires_grad(false)), p, *masks_from);
}

Tensor Dropped(const Tensor& x, double p, Of what = Of::kNumbers) {
  return masks_from == nullptr || p == 0 ? x : x * MaskFor(x, p, what);
}

// Alpha dropout (Klambauer et al. 2017): what is dropped takes SELU's least value, and a line keeps
// mean and variance. The numbers are LibTorch's.
Tensor AlphaDropped(const Tensor& x, double p, Of what) {
  if (masks_from == nullptr || p == 0) return x;
  const Tensor kept = MaskFor(x, p, what).ne(0).to(x.scalar_type());
  if (p >= 1) return x * kept;
  constexpr double kAlpha = 1.7580993408473766;
  const double a = 1 / std::sqrt((kAlpha * kAlpha * p + 1) * (1 - p));
  return x * (kept * a) + ((kept - 1) * (kAlpha * a) + kAlpha * a * p);
}

using Dropping = Tensor (*)(const Tensor& x, double p, Of what);

template <Dropping drop, Of what>
void RunDropout(Stack& stack) {
  const bool train = torch::jit::pop(stack).toBool();
  const double p = torch::jit::pop(stack).toDouble();
  const Tensor x = torch::jit::pop(stack).toTensor();
  torch::jit::push(stack, train ? drop(x, p, what) : x);
}

// The forms with an underscore change their argument, of which the module may have other names.
template <Dropping drop, Of what>
void RunDropoutInPlace(Stack& stack) {
  const bool train = torch::jit::pop(stack).toBool();
  const double p = torch::jit::pop(stack).toDouble();
  Tensor x = torch::jit::pop(stack).toTensor();
  if (train && p > 0 && masks_from != nullptr) x.copy_(drop(x.clone(), p, what));
  torch::jit::push(stack, std::move(x));
}

// ---- random slopes

Tensor Sloped(const Tensor& x, double lower, double upper, bool train) {
  Tensor slope = at::full({}, (lower + upper) / 2, x.options().requires_grad(false));
  if (train && masks_from != nullptr) {
    const bool doubles = x.scalar_type() == at::kDouble;
    slope = at::empty(x.sizes(), at::dtype(doubles ? at::kDouble : at::kFloat));
    const auto fill = [&]<typename T>(T) {
      for (T& s : std::span(slope.data_ptr<T>(), static_cast<size_t>(slope.numel())))
        s = static_cast<T>(lower + (upper - lower) * masks_from->Uniform());
    };
    DispatchDType(doubles ? DType::kF64 : DType::kF32, fill);
    slope = slope.to(x.device(), x.scalar_type());
  }
  return at::where(x > 0, x, x * slope);
}

template <bool kInPlace>
void RunSlopes(Stack& stack) {
  torch::jit::pop(stack);  // the generator
  const bool train = torch::jit::pop(stack).toBool();
  const double upper = torch::jit::pop(stack).toScalar().toDouble();
  const double lower = torch::jit::pop(stack).toScalar().toDouble();
  Tensor x = torch::jit::pop(stack).toTensor();
  if constexpr (kInPlace) {
    x.copy_(Sloped(x.clone(), lower, upper, train));
    torch::jit::push(stack, std::move(x));
  } else {
    torch::jit::push(stack, Sloped(x, lower, upper, train));
  }
}

// ---- random layers

// Ones with probability p, as stochastic depth draws the rows that a block keeps. Without a stream
// each number is its mean, p: what is kept is divided by p, so a block is then as it is in
// evaluation.
void RunBernoulliInPlace(Stack& stack) {
  torch::jit::pop(stack);  // the generator
  const double p = torch::jit::pop(stack).toDouble();
  Tensor x = torch::jit::pop(stack).toTensor();
  if (masks_from == nullptr) {
    x.fill_(p);
  } else {
    x.copy_(DropoutMask(x, 1 - p, *masks_from).ne(0));
  }
  torch::jit::push(stack, std::move(x));
}

// ---- attention

// LibTorch's attention, written out where weights are dropped.
Tensor Attend(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& seen,
              double p, bool causal, std::optional<double> scale, bool grouped) {
  if (masks_from == nullptr || p == 0)
    return at::scaled_dot_product_attention(q, k, v, seen, /*dropout_p=*/0.0, causal, scale,
                                            grouped);
  const bool repeats = grouped && q.size(-3) != k.size(-3);
  const Tensor keys = repeats ? k.repeat_interleave(q.size(-3) / k.size(-3), -3) : k;
  const Tensor values = repeats ? v.repeat_interleave(q.size(-3) / v.size(-3), -3) : v;
  const double factor = scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(-1))));
  Tensor scores = at::matmul(q, keys.transpose(-2, -1)) * factor;
  if (causal) {
    const Tensor before =
        at::ones({q.size(-2), k.size(-2)}, q.options().dtype(at::kBool).requires_grad(false))
            .tril();
    scores = scores.masked_fill(before.logical_not(), -HUGE_VAL);
  }
  if (seen.has_value() && seen->defined()) {
    scores = seen->scalar_type() == at::kBool ? scores.masked_fill(seen->logical_not(), -HUGE_VAL)
                                              : scores + *seen;
  }
  // As LibTorch's: a position that sees none gets zeros, and not a softmax of nothing.
  return at::matmul(Dropped(at::_safe_softmax(scores, -1), p), values);
}

void RunAttention(Stack& stack) {
  const bool grouped = torch::jit::pop(stack).toBool();
  const auto scale = torch::jit::pop(stack).toOptional<double>();
  const bool causal = torch::jit::pop(stack).toBool();
  const double p = torch::jit::pop(stack).toDouble();
  const auto seen = torch::jit::pop(stack).toOptional<Tensor>();
  const Tensor v = torch::jit::pop(stack).toTensor();
  const Tensor k = torch::jit::pop(stack).toTensor();
  const Tensor q = torch::jit::pop(stack).toTensor();
  torch::jit::push(stack, Attend(q, k, v, seen, p, causal, scale, grouped));
}

// ---- recurrent layers

// A call of aten::lstm, gru, rnn_tanh or rnn_relu.
struct Layers {
  Tensor input, batch_sizes;   // these of a packed sequence; else undefined
  std::vector<Tensor> states;  // each [layers · directions, rows, width]; an LSTM has two
  std::vector<Tensor> weights;
  bool biases = true;
  int64_t count = 1;
  double dropout = 0;
  bool train = false, both_ways = false, batch_first = false;

  bool packed() const { return batch_sizes.defined(); }
};
// The output, and the last states.
using Results = std::vector<Tensor>;
using Cell = Results (*)(const Layers&);

Results Lstm(const Layers& l) {
  const auto [y, h, c] =
      l.packed() ? at::lstm(l.input, l.batch_sizes, l.states, l.weights, l.biases, l.count,
                            /*dropout=*/0, l.train, l.both_ways)
                 : at::lstm(l.input, l.states, l.weights, l.biases, l.count, /*dropout=*/0, l.train,
                            l.both_ways, l.batch_first);
  return {y, h, c};
}

// `op`: two overloads, of whole batches and of packed sequences.
template <typename Op>
Results OneState(const Layers& l, const Op& op) {
  const auto [y, h] = l.packed()
                          ? op(l.input, l.batch_sizes, l.states[0], l.weights, l.biases, l.count,
                               /*dropout=*/0.0, l.train, l.both_ways)
                          : op(l.input, l.states[0], l.weights, l.biases, l.count,
                               /*dropout=*/0.0, l.train, l.both_ways, l.batch_first);
  return {y, h};
}
Results Gru(const Layers& l) {
  return OneState(l, [](const auto&... arguments) { return at::gru(arguments...); });
}
Results RnnTanh(const Layers& l) {
  return OneState(l, [](const auto&... arguments) { return at::rnn_tanh(arguments...); });
}
Results RnnRelu(const Layers& l) {
  return OneState(l, [](const auto&... arguments) { return at::rnn_relu(arguments...); });
}

// Layer by layer where numbers are dropped between layers; else in one call.
Results Run(Layers layers, Cell cell) {
  const bool drops = masks_from != nullptr && layers.train && layers.dropout > 0;
  if (!drops || layers.count == 1) return cell(layers);
  const int64_t directions = layers.both_ways ? 2 : 1;
  const auto per_layer = static_cast<int64_t>(layers.weights.size()) / layers.count;
  std::vector<std::vector<Tensor>> ends(layers.states.size());
  Layers one = layers;
  one.count = 1;
  for (int64_t i = 0; i < layers.count; ++i) {
    if (i > 0) one.input = Dropped(one.input, layers.dropout);
    const auto first = layers.weights.begin() + i * per_layer;
    one.weights.assign(first, first + per_layer);
    for (size_t s = 0; s < one.states.size(); ++s)
      one.states[s] = layers.states[s].narrow(0, i * directions, directions).contiguous();
    const Results results = cell(one);
    one.input = results[0];
    for (size_t s = 0; s < ends.size(); ++s) ends[s].push_back(results[s + 1]);
  }
  Results results = {one.input};
  for (const std::vector<Tensor>& end : ends) results.push_back(at::cat(end, 0));
  return results;
}

template <Cell cell, bool kPacked, bool kTwoStates>
void RunRecurrent(Stack& stack) {
  Layers layers;
  if (!kPacked) layers.batch_first = torch::jit::pop(stack).toBool();
  layers.both_ways = torch::jit::pop(stack).toBool();
  layers.train = torch::jit::pop(stack).toBool();
  layers.dropout = torch::jit::pop(stack).toDouble();
  layers.count = torch::jit::pop(stack).toInt();
  layers.biases = torch::jit::pop(stack).toBool();
  layers.weights = torch::jit::pop(stack).toTensorVector();
  const c10::IValue states = torch::jit::pop(stack);
  layers.states = kTwoStates ? states.toTensorVector() : std::vector<Tensor>{states.toTensor()};
  if (kPacked) layers.batch_sizes = torch::jit::pop(stack).toTensor();
  layers.input = torch::jit::pop(stack).toTensor();
  for (Tensor& result : Run(std::move(layers), cell)) torch::jit::push(stack, std::move(result));
}

#define MACAW_DROPOUT(name, drop, what)                                             \
  {"aten::" name, "macaw::" name "(Tensor x, float p, bool train) -> Tensor",       \
   RunDropout<drop, what>},                                                         \
  {                                                                                 \
    "aten::" name "_", "macaw::" name "_(Tensor x, float p, bool train) -> Tensor", \
        RunDropoutInPlace<drop, what>                                               \
  }

// `hx`: the states in the schema; `results`: what it returns.
#define MACAW_RECURRENT(name, cell, two, hx, results)                                        \
  {"aten::" name ".input",                                                                   \
   "macaw::" name "_input(Tensor input, " hx                                                 \
   " hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, "      \
   "bool bidirectional, bool batch_first) -> " results,                                      \
   RunRecurrent<cell, false, two>},                                                          \
  {                                                                                          \
    "aten::" name ".data",                                                                   \
        "macaw::" name "_data(Tensor data, Tensor batch_sizes, " hx                          \
        " hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, " \
        "bool bidirectional) -> " results,                                                   \
        RunRecurrent<cell, true, two>                                                        \
  }

constexpr RandomOp kOps[] = {
    MACAW_DROPOUT("dropout", Dropped, Of::kNumbers),
    MACAW_DROPOUT("feature_dropout", Dropped, Of::kChannels),
    MACAW_DROPOUT("alpha_dropout", AlphaDropped, Of::kNumbers),
    MACAW_DROPOUT("feature_alpha_dropout", AlphaDropped, Of::kChannels),
    {"aten::rrelu",
     "macaw::rrelu(Tensor x, Scalar lower, Scalar upper, bool train, Generator? g) -> Tensor",
     RunSlopes<false>},
    {"aten::rrelu_",
     "macaw::rrelu_(Tensor x, Scalar lower, Scalar upper, bool train, Generator? g) -> Tensor",
     RunSlopes<true>},
    {"aten::bernoulli_.float", "macaw::bernoulli_(Tensor x, float p, Generator? g) -> Tensor",
     RunBernoulliInPlace},
    {"aten::scaled_dot_product_attention",
     "macaw::attention(Tensor q, Tensor k, Tensor v, Tensor? seen, float p, bool causal, *, "
     "float? scale, bool grouped) -> Tensor",
     RunAttention},
    MACAW_RECURRENT("lstm", Lstm, true, "Tensor[]", "(Tensor, Tensor, Tensor)"),
    MACAW_RECURRENT("gru", Gru, false, "Tensor", "(Tensor, Tensor)"),
    MACAW_RECURRENT("rnn_tanh", RnnTanh, false, "Tensor", "(Tensor, Tensor)"),
    MACAW_RECURRENT("rnn_relu", RnnRelu, false, "Tensor", "(Tensor, Tensor)"),
};

#undef MACAW_DROPOUT
#undef MACAW_RECURRENT

}  // namespace

std::span<const RandomOp> RandomOps() { return kOps; }

MasksFrom::MasksFrom(RandomStream* stream) { masks_from = stream; }
MasksFrom::~MasksFrom() { masks_from = nullptr; }

}  // namespace macaw::models
