#include "models/segments.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <variant>

namespace macaw::models {
namespace {

double ElementsOf(const std::vector<int64_t>& shape) {
  double elements = 1;
  for (const int64_t extent : shape) elements *= static_cast<double>(extent);
  return elements;
}

template <typename... Kinds>
bool IsOneOf(const Layer& layer) {
  return (std::holds_alternative<Kinds>(layer) || ...);
}

// Whether a layer's backward pass reads its output, and whether it reads its input.
bool ReadsOutput(const Layer& layer) { return IsOneOf<Relu, Tanh, Sigmoid, Lstm, Gru>(layer); }
bool ReadsInput(const Layer& layer) {
  return !IsOneOf<Relu, Tanh, Sigmoid, AvgPool2d, GlobalAvgPool, Flatten, Dropout, Positions,
                  LastPosition, MeanOfPositions, Scale>(layer);
}

// What a layer keeps between its input and its output. `in` and `out` count the numbers of one
// example. Estimates: no pass is measured.
struct Inside {
  double in, out;
  double positions;  // of a sequence; 1 otherwise

  template <typename Plain>
  double operator()(const Plain&) const {
    return 0;
  }
  double operator()(const Dropout&) const { return out; }        // the mask
  double operator()(const MaxPool2d&) const { return 2 * out; }  // int64 places
  // Gates and cells.
  double operator()(const Lstm& l) const { return 5 * out * static_cast<double>(l.layers); }
  double operator()(const Gru& l) const { return 5 * out * static_cast<double>(l.layers); }
  // Each convolution's output, and that of its norm.
  double operator()(const BasicBlock& l) const {
    return (l.in == l.out && l.stride == 1 ? 4 : 5) * out;
  }
  // q, k and v, and what they make.
  double operator()(const Attention&) const { return 4 * out; }
  // The norms, attention, the sum behind it, and both hidden layers.
  double operator()(const TransformerBlock& l) const {
    const double hidden = static_cast<double>(l.ff) * positions;
    if (l.dropout == 0) return 7 * out + 2 * hidden;
    // Masks, what they leave, and the weights of written-out attention.
    const double weights = static_cast<double>(l.heads) * positions * positions;
    return 9 * out + 4 * hidden + 3 * weights;
  }
  double operator()(const Residual& l) const {
    double kept = 0, now = in;
    for (size_t i = 0; i < l.layers.size(); ++i) {
      const Layer& layer = l.layers[i];
      const double next = Behind(layer, now);
      kept += std::visit(Inside{now, next, positions}, layer);
      const bool read = i + 1 < l.layers.size() && ReadsInput(l.layers[i + 1]);
      if (read || ReadsOutput(layer)) kept += next;
      now = next;
    }
    return kept;
  }
  // The numbers behind a layer inside a residual, whose shapes are not noted.
  static double Behind(const Layer& layer, double now) {
    const auto ratio = [now](int64_t in, int64_t out) {
      return now * static_cast<double>(out) / static_cast<double>(in);
    };
    if (const auto* const l = std::get_if<Linear>(&layer)) return ratio(l->in, l->out);
    if (const auto* const l = std::get_if<Conv2d>(&layer)) return ratio(l->in, l->out);
    if (const auto* const l = std::get_if<Lstm>(&layer)) return ratio(l->in, l->out);
    if (const auto* const l = std::get_if<Gru>(&layer)) return ratio(l->in, l->out);
    return now;
  }
};

Chain ChainOf(const ModelSpec& spec) {
  Chain chain;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const std::vector<int64_t>& input = i == 0 ? spec.input_shape : spec.shapes[i - 1];
    const double positions = input.size() == 2 ? static_cast<double>(input[0]) : 1;
    chain.inputs.push_back(ElementsOf(input));
    const double out = ElementsOf(spec.shapes[i]);
    chain.kept.push_back(std::visit(Inside{chain.inputs.back(), out, positions}, spec.layers[i]));
    // The loss reads the model's outputs.
    const bool read = i + 1 == spec.layers.size() || ReadsInput(spec.layers[i + 1]);
    if (read || ReadsOutput(spec.layers[i])) chain.kept.back() += out;
    if (spec.tensors[i].second > 0) chain.last = i;
  }
  return chain;
}

// Segments that end where they keep more than `budget`.
Segments Cut(const Chain& chain, double budget) {
  Segments cut;
  double inside = 0;
  for (size_t i = 0; i < chain.last; ++i) {
    inside += chain.kept[i];
    if (inside <= budget && i + 1 < chain.last) continue;
    cut.ends.push_back(i + 1);
    inside = 0;
  }
  cut.ends.push_back(chain.kept.size());
  // While segment s is computed again, the inputs of those before it, its own and what it keeps are
  // there; of the last segment, too, everything.
  size_t layer = 0;
  double inputs = 0;
  for (const size_t end : cut.ends) {
    if (layer > 0) inputs += chain.inputs[layer];  // the batch is there in any case
    double kept = 0;
    for (; layer < end; ++layer) kept += chain.kept[layer];
    cut.most = std::max(cut.most, inputs + kept);
  }
  return cut;
}

}  // namespace

namespace {

constexpr size_t kMostSteps = 150;  // that the planner looks at

// The same chain with fewer places to cut it: steps in a row are one, up to the last segment's.
// `ends`: the step behind each of the new ones.
Chain Thinned(const Chain& chain, std::vector<size_t>& ends) {
  for (size_t k = 1; k <= kMostSteps; ++k) ends.push_back(k * chain.last / kMostSteps);
  ends.push_back(chain.kept.size());
  Chain thin{.inputs = {}, .kept = {}, .last = kMostSteps};
  size_t step = 0;
  for (const size_t end : ends) {
    thin.inputs.push_back(chain.inputs[step]);
    double kept = 0;
    for (; step < end; ++step) kept += chain.kept[step];
    thin.kept.push_back(kept);
  }
  return thin;
}

}  // namespace

Segments SegmentsOf(const Chain& chain) {
  if (chain.last > kMostSteps) {
    std::vector<size_t> ends;
    Segments segments = SegmentsOf(Thinned(chain, ends));
    for (size_t& end : segments.ends) end = ends[end - 1];
    return segments;
  }
  const double whole = std::accumulate(chain.kept.begin(), chain.kept.end(), 0.0);
  Segments best{.ends = {chain.kept.size()}, .most = whole, .whole = whole};
  // A segment ends where it meets the sum of some layers in a row, so no other budgets are needed.
  for (size_t begin = 0; begin < chain.last; ++begin) {
    double budget = 0;
    for (size_t i = begin; i <= chain.last; ++i) {  // the first budget is nothing: a layer each
      Segments cut = Cut(chain, budget);
      if (cut.most < best.most) {
        best.ends = std::move(cut.ends);
        best.most = cut.most;
      }
      budget += chain.kept[i];
    }
  }
  return best;
}

Segments SegmentsOf(const ModelSpec& spec) {
  return spec.is_script() ? Segments() : SegmentsOf(ChainOf(spec));
}

}  // namespace macaw::models
