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

// What a layer keeps for the backward pass beside its input: its output, and what lies between.
// `in` and `out` count the numbers of one example. Estimates: a pass is not measured.
struct Kept {
  double in, out;
  double positions;  // of a sequence; 1 otherwise

  template <typename Plain>
  double operator()(const Plain&) const {
    return out;
  }
  double operator()(const Flatten&) const { return 0; }        // a view
  double operator()(const Dropout&) const { return 2 * out; }  // with its mask
  // Gates and cells.
  double operator()(const Lstm& l) const { return 6 * out * static_cast<double>(l.layers); }
  double operator()(const Gru& l) const { return 5 * out * static_cast<double>(l.layers); }
  // Each convolution's output and its norm's, and a sum.
  double operator()(const BasicBlock& l) const {
    return (l.in == l.out && l.stride == 1 ? 6 : 8) * out;
  }
  // q, k and v, what they make, the projection of it.
  double operator()(const Attention&) const { return 5 * out; }
  double operator()(const TransformerBlock& l) const {
    const double hidden = static_cast<double>(l.ff) * positions;
    if (l.dropout == 0) return 9 * out + 2 * hidden;
    // Masks, what they leave, and the written-out attention.
    const double weights = static_cast<double>(l.heads) * positions * positions;
    return 12 * out + 4 * hidden + 4 * weights;
  }
  double operator()(const Residual& l) const {
    double kept = out, now = in;
    for (const Layer& layer : l.layers) {
      const double next = Behind(layer, now);
      kept += std::visit(Kept{now, next, positions}, layer);
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

struct Chain {
  std::vector<double> inputs;  // of each layer
  std::vector<double> kept;    // by each layer
  size_t last = 0;             // the first layer of the last segment
};

Chain ChainOf(const ModelSpec& spec) {
  Chain chain;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const std::vector<int64_t>& input = i == 0 ? spec.input_shape : spec.shapes[i - 1];
    const double positions = input.size() == 2 ? static_cast<double>(input[0]) : 1;
    chain.inputs.push_back(ElementsOf(input));
    chain.kept.push_back(std::visit(
        Kept{chain.inputs.back(), ElementsOf(spec.shapes[i]), positions}, spec.layers[i]));
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

Segments SegmentsOf(const ModelSpec& spec) {
  if (spec.is_script()) return {};
  const Chain chain = ChainOf(spec);
  const size_t layers = spec.layers.size();
  const double whole = std::accumulate(chain.kept.begin(), chain.kept.end(), 0.0);
  Segments best{.ends = {layers}, .most = whole, .whole = whole};
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

}  // namespace macaw::models
